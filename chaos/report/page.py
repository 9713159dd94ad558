"""report.html: one file with all it needs, nothing that runs, and nothing that is fetched.

What a run brings (names, errors, witnesses with parts of bodies) is hostile input: `html.tag` escapes it, and the
policy in the head forbids the page to run or to load anything, should a piece ever slip through.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chaos.report.facts import Band, Facts
from chaos.report.html import Html, tag
from chaos.report.parts import card, chip, folded, note, pairs_list, section, table
from chaos.report.run import NotRun, Reported
from chaos.report.style import STYLE
from chaos.report.svg import panels
from chaos.report.text import headline, overall, reason
from chaos.report.witness import Witnesses
from pipeline.history.results import Verdict
from pipeline.history.rows import Kind

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
WORDS = {
    Verdict.VALID: "✓ Valid",
    Verdict.INVALID: "✗ Invalid",
    Verdict.UNKNOWN: "? Unknown",
    Verdict.SKIPPED: "NotRun",
    Verdict.INFO: "Counted",
}
GUARDS = "V"


def run_page(run: Reported) -> str:
    """Return the report of one run."""
    body = (
        _banner(run.results.verdict, run.named, reason(run)),
        _tiles(run),
        _trouble(run),
        section("What happened", card(panels(run.facts))),
        _faults(run),
        _checks(run),
        _commands(run),
        _guards(run),
        _capabilities(run.info.get("capabilities", ())),
        _about(run),
    )
    return _document(f"{run.results.verdict}: {run.scenario} (seed {run.seed})", body)


def suite_page(runs: Sequence[tuple[str, Reported]], not_run: Sequence[NotRun]) -> str:
    """Return the page over several runs; each comes with the address of its own report."""
    verdict = overall([run for _, run in runs], not_run)
    acknowledged = sum(run.acknowledged for _, run in runs)
    faults = sum(len(run.faults) for _, run in runs)
    words = f"{len(runs)} scenarios, {acknowledged:,} acknowledged sends, {faults:,} faults"
    rows: list[tuple[object, ...]] = [
        (
            tag("a", f"{run.scenario} (secured)" if run.secured else run.scenario, href=address),
            chip(run.results.verdict),
            reason(run),
            f"{run.acknowledged:,}",
            str(len(run.faults)),
            f"{run.silence_s:.2f} s",
        )
        for address, run in runs
    ]
    rows += [(one.scenario, chip(one.verdict), one.why, "", "", "") for one in not_run]
    columns = ("scenario", "verdict", "why", "acknowledged", "faults", "longest silence")
    body = (_banner(verdict, "raftmq chaos", words), section("Scenarios", card(table(columns, rows))))
    return _document(f"{verdict}: raftmq chaos", body)


def _document(title: str, body: Iterable[object]) -> str:
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        Html(f"<style>{STYLE}</style>"),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *body)), lang='en')}\n"


def _banner(verdict: Verdict, what: str, why: str) -> Html:
    name = tag("p", what, class_="what")
    return tag("header", name, tag("h1", WORDS[verdict], id_="verdict"), tag("p", why), class_=f"card banner {verdict}")


def _tiles(run: Reported) -> Html:
    facts, figures = run.facts, run.results.figures
    available = figures.get("availability_percent")
    delivery = figures.get("delivery", {})
    tiles = (
        ("Acknowledged", f"{run.acknowledged:,}", f"of {run.sends:,} sends"),
        ("Delivery", str(delivery.get("semantics", "not looked at")), ""),
        ("Faults", f"{len(run.faults)}", f"in {facts.seconds:.0f} s"),
        ("Changes of leader", str(facts.leader_changes), ""),
        ("Longest silence", f"{run.silence_s:.2f} s", ""),
        ("Available", "?" if available is None else f"{available:g} %", ""),
        ("Latency p50", f"{facts.quantiles_ms['p50']:.1f} ms", ""),
        ("Latency p99", f"{facts.quantiles_ms['p99']:.1f} ms", ""),
    )
    return tag("dl", *(_tile(*tile) for tile in tiles), class_="tiles")


def _tile(name: str, value: str, beside: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", f" {beside}")), class_="card")


def _trouble(run: Reported) -> Html | None:
    bad = run.found(Verdict.INVALID) + run.found(Verdict.UNKNOWN)
    if not bad:
        return None
    witnesses = Witnesses(run)
    cards = (
        tag(
            "div",
            tag("h3", chip(finding.verdict), " ", headline(finding)),
            witnesses.of(finding),
            class_="card finding",
            id_=f"check-{finding.check}",
        )
        for finding in bad
    )
    return section("What is wrong, or cannot be told", *cards)


def _faults(run: Reported) -> Html | None:
    if not run.facts.bands:
        return None
    columns = ("fault", "target", "when", "proof of effect", "silence", "recovered after", "p99 meanwhile")
    figures = {one.get("fault"): one for one in run.results.figures.get("faults", ())}
    rows = [_fault_row(band, figures.get(band.fault.fault, {})) for band in run.facts.bands]
    ids = [f"fault-{band.fault.fault}" for band in run.facts.bands]
    words = (
        "Silence: the longest time without an acknowledged send that touches the fault; recovered: from the fault's "
        "beginning to the end of that silence."
    )
    return section("Faults", card(note(words), table(columns, rows, ids)))


def _fault_row(band: Band, figures: Mapping[str, Any]) -> tuple[object, ...]:
    fault = band.fault
    target = fault.target if not fault.wanted or fault.wanted == fault.target else f"{fault.target} ({fault.wanted})"
    silence = figures.get("silence_s", band.silence_s)
    recovery, p99 = figures.get("recovery_s"), figures.get("p99_ms")
    return (
        f"{fault.fault}. {fault.name}",
        target,
        f"{band.start:.1f} s, for {band.end - band.start:.1f} s",
        fault.effect or tag("span", "none proven", class_="chip unknown"),
        "" if silence is None else f"{silence:.2f} s",
        ("never" if figures else "") if recovery is None else f"{recovery:.2f} s",
        "" if p99 is None else f"{p99:.1f} ms",
    )


def _checks(run: Reported) -> Html:
    catalogue = [finding for finding in run.results.findings if not finding.check.startswith(GUARDS)]
    bad = {Verdict.INVALID, Verdict.UNKNOWN}
    # Those with witnesses stand above, where the map leads; the others are below.
    squares = (
        tag("a", f.check, href=f"#check-{f.check}", class_=str(f.verdict), title=f"{f.title}: {f.verdict}")
        for f in catalogue
    )
    columns = ("check", "verdict", "what", "count", "words")
    others = [f for f in catalogue if f.verdict not in bad]
    rows = [(f.check, chip(f.verdict), f.title, f"{f.count:,}" if f.count else "", f.text) for f in others]
    listed = table(columns, rows, [f"check-{f.check}" for f in others])
    below = folded(f"{len(others)} checks that found nothing wrong", listed) if others else None
    return section("Checks", card(tag("div", *squares, class_="map"), below))


def _guards(run: Reported) -> Html | None:
    rows = [(f.check, chip(f.verdict), f.title, f.text) for f in run.results.findings if f.check.startswith(GUARDS)]
    if not rows:
        return None
    columns = ("guard", "verdict", "what", "words")
    ids = [f"guard-{row[0]}" for row in rows]
    return section(
        "Was enough tried?",
        card(note("A run in which little happened proves nothing: these make it unknown."), table(columns, rows, ids)),
    )


def _commands(run: Reported) -> Html:
    parts = []
    for words, command in (
        ("Fire the same faults again", run.replay),
        ("Judge this run again, without a cluster", run.recheck),
    ):
        parts += [tag("div", words, class_="note"), tag("code", command, class_="cmd")]
    return section("Again", card(note("To be run in this run's folder."), *parts))


def _capabilities(found: Sequence[Mapping[str, Any]]) -> Html | None:
    if not found:
        return None
    rows = [
        (
            one.get("name", ""),
            str(one.get("tier", "")),
            chip(Verdict.VALID, "yes") if one.get("ok") else chip(Verdict.SKIPPED, "no"),
            one.get("why", ""),
        )
        for one in found
    ]
    return section("What this machine can do", card(table(("fault or means", "tier", "here", "why"), rows)))


def _about(run: Reported) -> Html:
    known = {"capabilities", "replay", "recheck"}
    pairs = list(_flat({key: value for key, value in run.info.items() if key not in known}))
    shown = {key: value for key, value in run.results.figures.items() if key not in {"faults", "operations"}}
    figures = list(_flat(shown))
    parts = [folded("What was run", pairs_list(pairs))]
    parts.append(folded("Operations", _operations(run.facts)))
    if figures:
        parts.append(folded("Figures", pairs_list(figures)))
    return section("Details", card(*parts))


def _operations(facts: Facts) -> Html:
    rows = [
        (str(act), *(f"{counts[kind]:,}" for kind in Kind), f"{counts.total():,}")
        for act, counts in sorted(facts.counts.items())
    ]
    return table(("operation", "ok", "failed", "indefinite", "all"), rows)


def _flat(value: object, name: str = "") -> Iterable[tuple[str, str]]:
    """Name nested values by their path; lists of plain values stay one line."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name} · {key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(inner, Mapping | list) for inner in value):
        for place, inner in enumerate(value, 1):
            yield from _flat(inner, f"{name} · {place}")
    elif isinstance(value, list | tuple):
        yield name, ", ".join(str(inner) for inner in value)
    else:
        yield name, f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
