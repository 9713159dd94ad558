"""How a report looks: light and dark, phone and desk, one sheet inside the file."""

STYLE = """
:root{--bg:#f6f7f9;--card:#fff;--ink:#14181f;--soft:#5c6675;--line:#dfe3e9;--band:#7a869a22;--fault:#7b8798;
--ok:#1f7a8c;--okfill:#1f7a8c38;--info:#d98a00;--fail:#c8323c;--p50:#1f7a8c;--p99:#7a3fa0;
--valid:#15803d;--invalid:#b91c2b;--unknown:#a15c00;--skipped:#64707f;--tone:#15803d14;
--m0:#2f6fd0;--m1:#c2571a;--m2:#2c8a57;--m3:#9a3f98;--m4:#8a6d00;--m5:#0d8390;--code:#eef1f5}
@media (prefers-color-scheme:dark){:root{--bg:#0f1216;--card:#171b21;--ink:#e8ebf0;--soft:#98a3b3;--line:#2a313b;
--band:#a6b2c526;--fault:#93a0b3;--ok:#4fb8cc;--okfill:#4fb8cc3a;--info:#f0ad3d;--fail:#ff6b70;--p50:#4fb8cc;
--p99:#c08ae6;
--valid:#4ac77a;--invalid:#ff6f78;--unknown:#f0ad3d;--skipped:#8b97a6;
--m0:#6ea3f5;--m1:#f08c55;--m2:#5cc98c;--m3:#d584d3;--m4:#d6b945;--m5:#4cc4d0;--code:#20262e}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;overflow-wrap:anywhere;
background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:20px 16px 56px}
h1,h2,h3,p,figure,dl,dd{margin:0}
h2{font-size:18px;line-height:1.3;margin:34px 0 10px}
h3{font-size:15px;margin:18px 0 6px}
a{color:inherit}
code,.mono{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.note{color:var(--soft);font-size:13px}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 16px}
.banner{border-left:8px solid var(--tint);padding:18px 20px;--tint:var(--skipped)}
.banner h1{font-size:30px;line-height:1.15;letter-spacing:-.01em;color:var(--tint)}
.banner p{margin-top:6px;overflow-wrap:anywhere}
.banner .what{color:var(--soft);font-size:13px;margin:0 0 4px}
.valid{--tint:var(--valid)}.invalid{--tint:var(--invalid)}.unknown{--tint:var(--unknown)}
.skipped,.info{--tint:var(--skipped)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:10px;margin-top:12px}
.tiles .card{padding:10px 14px}
.tiles dt{color:var(--soft);font-size:13px}
.tiles dd{font-size:22px;font-weight:600;font-variant-numeric:tabular-nums;line-height:1.3}
.tiles dd small{font-size:13px;font-weight:400;color:var(--soft)}
.map{display:flex;flex-wrap:wrap;gap:5px;margin-bottom:12px}
.map a{min-width:47px;padding:3px 4px;border-radius:6px;text-align:center;text-decoration:none;font-size:13px;
font-weight:600;
border:1px solid var(--tint);color:var(--tint)}
.map a.invalid,.map a.unknown{background:var(--tint);color:var(--card)}
.map a.skipped,.map a.info{border-style:dashed;font-weight:400}
.chip{display:inline-block;border-radius:999px;padding:0 9px;font-size:12px;line-height:20px;font-weight:600;
border:1px solid var(--tint);color:var(--tint);white-space:nowrap}
.panels{padding:4px 0}
.panel{padding:10px 0 2px}
.panel figcaption{display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline;justify-content:space-between;
font-size:14px;
margin-bottom:4px}
.plot{position:relative}
.plot svg{display:block;width:100%;height:100%;overflow:hidden;border-bottom:1px solid var(--line)}
.plot a,.plot span{position:absolute}
.ticks{position:relative;height:18px;color:var(--soft);font-size:11px;line-height:18px}
.ticks span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.ticks span:first-child{transform:none}
.mark{right:0;padding:0 3px;border-radius:4px;opacity:.9;background:var(--card);
color:var(--soft);font-size:11px;line-height:14px;transform:translateY(-100%);
}
.name{left:0;font-size:12px;line-height:16px;text-shadow:0 0 3px var(--card),0 0 3px var(--card)}
.reign{color:var(--card);font-size:11px;font-weight:600;padding-left:6px;overflow:hidden;white-space:nowrap;
display:flex;
align-items:center}
.number{font-size:11px;line-height:14px;font-weight:600;color:var(--card);text-decoration:none;padding-left:3px;
transform:translateY(-50%)}
.key{display:inline-flex;align-items:center;gap:4px;margin-right:10px}.key:last-child{margin-right:0}
.key i{width:10px;height:10px;border-radius:3px;background:var(--k)}
.band{fill:var(--band)}.fault{fill:var(--fault)}.rule{stroke:var(--line);vector-effect:non-scaling-stroke;fill:none}
.area{fill:var(--okfill);stroke:var(--ok);stroke-width:1.2;vector-effect:non-scaling-stroke}
rect.info,.dots.info{fill:var(--info);stroke:var(--info)}rect.fail,.dots.fail{fill:var(--fail);stroke:var(--fail)}
rect.info,rect.fail{stroke:none}
.dots{fill:none;stroke-width:3px;stroke-linecap:round;vector-effect:non-scaling-stroke;stroke:var(--ok)}
.dots.ok{opacity:.3}
.line{fill:none;stroke-width:1.8px;stroke-linejoin:round;vector-effect:non-scaling-stroke;stroke:var(--k)}
.w0{stroke-width:6px}.w1{stroke-width:3px}.w2{stroke-width:1.3px}
.follows{fill:var(--k);opacity:.26}.leads{fill:var(--k)}
.m0{--k:var(--m0)}.m1{--k:var(--m1)}.m2{--k:var(--m2)}.m3{--k:var(--m3)}.m4{--k:var(--m4)}.m5{--k:var(--m5)}
.key .ok{--k:var(--ok)}.key .info{--k:var(--info)}.key .fail{--k:var(--fail)}
.p50,.key .p50{--k:var(--p50)}.p99,.key .p99{--k:var(--p99)}
table{width:100%;border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;font-size:12px;color:var(--soft);padding:4px 10px 4px 0;
border-bottom:1px solid var(--line)}
td{padding:6px 10px 6px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}
@media (min-width:641px){.fold td:first-child{white-space:nowrap}}
.scroll{overflow-x:auto}.scroll table{font-size:13px}.scroll td,.scroll th{white-space:nowrap;padding:4px 12px 4px 0}
.scroll td:first-child,.scroll th:first-child{padding-left:4px}
tr.about td{font-weight:600;background:var(--code)}
tr:target td{background:var(--band)}
td.nowrap{white-space:nowrap}
details{border-top:1px solid var(--line);padding:8px 0}
details:first-of-type{border-top:0}
summary{cursor:pointer;overflow-wrap:anywhere}
details details{margin-left:2px}
.cmd{display:block;background:var(--code);border-radius:8px;padding:8px 12px;margin:4px 0 10px;overflow-x:auto;
user-select:all;
white-space:pre-wrap;overflow-wrap:anywhere}
pre{background:var(--code);border-radius:8px;padding:8px 12px;margin:6px 0;overflow-x:auto;font-size:12px}
.finding{margin-bottom:10px}.finding h3:first-child{margin-top:0;overflow-wrap:anywhere}
dl.facts{display:grid;grid-template-columns:minmax(110px,max-content) 1fr;gap:2px 14px;font-size:14px}
dl.facts dt{color:var(--soft)}dl.facts dd{overflow-wrap:anywhere}
@media (max-width:640px){main{padding:12px 10px 40px}.card{padding:12px}.banner{padding:14px}.banner h1{font-size:25px}
.tiles{grid-template-columns:1fr 1fr;gap:8px}.tiles dd{font-size:19px}
table.fold,table.fold tbody,table.fold tr,table.fold td{display:block}table.fold thead{display:none}
table.fold tr{padding:8px 0;border-bottom:1px solid var(--line)}table.fold tr:last-child{border-bottom:0}
table.fold td{border:0;padding:1px 0;display:flex;gap:10px}table.fold td:empty{display:none}
table.fold td:first-child{font-weight:600}table.fold td:first-child::before{display:none}
table.fold td::before{content:attr(data-label);flex:0 0 96px;color:var(--soft);font-size:12px;line-height:21px}
dl.facts{grid-template-columns:88px 1fr}dl.facts dt{font-size:12px;line-height:21px;overflow-wrap:anywhere}}
@media print{body{background:#fff}.card{break-inside:avoid}}
"""
