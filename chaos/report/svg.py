"""Drawings of a report: panels over one time axis, in SVG that stretches with the screen while its texts do not.

Each drawing is 1,000 wide and HEIGHT units high, whatever its size on the screen; strokes keep their width, and every
text is HTML laid over it, so that a phone shows the same panels as a desk, only narrower.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from chaos.report.facts import SILENT_S, Band, Bucket, Facts, RoleSpan
from chaos.report.html import Html, join, tag
from pipeline.history.rows import Kind

WIDTH, HEIGHT = 1000.0, 100.0
Point = tuple[float, float] | None
"""Seconds and height; None is a gap in a line."""
# Members get one of these colours each; a group of more than six starts again.
COLOURS = 6
WIDTHS = 3
# A fault shorter than this part of the run is drawn as long as that, so that it can be seen and numbered.
SHORTEST = 0.028


def panels(facts: Facts) -> Html:
    """Return all panels of a run, one under the other, over the same time axis."""
    drawn: list[Html | None] = [_fault_panel(facts), _lane_panel(facts), _commit_panel(facts)]
    drawn += [_throughput_panel(facts), _trouble_panel(facts), _latency_panel(facts), _unseen_panel(facts)]
    return tag("div", *drawn, class_="panels")


def _panel(facts: Facts, title: str, note: object, drawing: object, texts: object, height: int) -> Html:
    svg = tag(
        "svg",
        _bands(facts.bands, facts.seconds),
        drawing,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
    )
    plot = tag("div", svg, texts, class_="plot", style=f"height:{height}px")
    head = tag("figcaption", tag("b", title), tag("span", note, class_="note"))
    return tag("figure", head, plot, _ticks(facts.seconds), class_="panel")


def _bands(bands: Iterable[Band], seconds: float) -> Html:
    return join(*(_rect(band.start, band.end, 0, HEIGHT, seconds, "band") for band in bands))


def _rect(start: float, end: float, top: float, bottom: float, seconds: float, class_: str, title: str = "") -> Html:
    left, right = start / seconds * WIDTH, end / seconds * WIDTH
    name = tag("title", title) if title else None
    return tag(
        "rect",
        name,
        x=f"{left:.1f}",
        y=f"{top:.1f}",
        width=f"{max(right - left, 1):.1f}",
        height=f"{bottom - top:.1f}",
        class_=class_,
    )


def _ticks(seconds: float) -> Html:
    step = _round_up(seconds / 5)
    # The last would reach over the edge.
    places = [i * step for i in range(int(seconds / step) + 1) if i * step <= seconds * 0.97]
    unit, name = (60.0, " min") if step >= 60 else (1.0, " s")
    marks = [tag("span", f"{place / unit:g}{name}", style=f"left:{place / seconds:.2%}") for place in places]
    return tag("div", *marks, class_="ticks")


def _round_up(step: float) -> float:
    """Return the next length of time that people count in."""
    for nice in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600):
        if step <= nice:
            return nice
    return math.ceil(step / 3600) * 3600.0


def _fault_panel(facts: Facts) -> Html:
    rows = _packed(facts.bands, facts.seconds)
    deep = max(rows, default=-1) + 1
    shapes, texts = [], []
    for band, row in zip(facts.bands, rows, strict=True):
        fault = band.fault
        top, bottom = (row + 0.08) / deep * HEIGHT, (row + 0.92) / deep * HEIGHT
        end = max(band.end, band.start + facts.seconds * SHORTEST)
        words = f"{fault.fault}. {fault.name}: {fault.target}, {band.start:.1f} s to {band.end:.1f} s"
        shapes.append(_rect(band.start, end, top, bottom, facts.seconds, "fault", words))
        place = f"left:{band.start / facts.seconds:.2%};top:{(row + 0.5) / deep:.2%}"
        texts.append(tag("a", str(fault.fault), href=f"#fault-{fault.fault}", style=place, class_="number"))
    note = "none: a control run" if not facts.bands else f"{len(facts.bands)}, numbered as in the table below"
    return _panel(facts, "Faults", note, join(*shapes), join(*texts), max(deep * 22, 22))


def _packed(bands: Sequence[Band], seconds: float) -> list[int]:
    """Return a row for each fault, so that none covers another."""
    free: list[float] = []
    rows = []
    for band in bands:
        end = max(band.end, band.start + seconds * SHORTEST * 2)
        row = next((i for i, until in enumerate(free) if until <= band.start), len(free))
        free[row : row + 1] = [end]
        rows.append(row)
    return rows


def _lane_panel(facts: Facts) -> Html:
    deep = max(len(facts.lanes), 1)
    shapes, texts = [], []
    for row, (member, spans) in enumerate(facts.lanes.items()):
        top, bottom = (row + 0.46) / deep * HEIGHT, (row + 0.96) / deep * HEIGHT
        texts.append(tag("span", member, class_="name", style=f"top:{row / deep:.2%}"))
        for span in spans:
            shapes.append(_span(span, member, row, top, bottom, facts.seconds))
            if span.leads and (span.end - span.start) / facts.seconds > 0.03:
                wide = f"left:{span.start / facts.seconds:.2%};width:{(span.end - span.start) / facts.seconds:.2%}"
                place = f"{wide};top:{(row + 0.46) / deep:.2%};height:{0.5 / deep:.2%}"
                texts.append(tag("span", str(span.term), class_="reign", style=place))
    note = "solid: leads, in this term; pale: follows; empty: silent" if facts.lanes else "no member was looked at"
    return _panel(facts, "Leader and term", note, join(*shapes), join(*texts), max(deep * 38, 22))


def _span(span: RoleSpan, member: str, row: int, top: float, bottom: float, seconds: float) -> Html:
    role = "leads" if span.leads else "follows"
    words = f"{member} {role} in term {span.term}, {span.start:.1f} s to {span.end:.1f} s"
    return _rect(span.start, span.end, top, bottom, seconds, f"m{row % COLOURS} {role}", words)


def _commit_panel(facts: Facts) -> Html:
    top = max((value for line in facts.commits.values() for _, value in line), default=0)
    # Members that keep up lie on one another: each is drawn thinner than the one beneath it.
    lines = [
        _polyline(_parts(line, top), facts.seconds, f"line m{row % COLOURS} w{row % WIDTHS}")
        for row, line in enumerate(facts.commits.values())
    ]
    legend = join(*(_key(f"m{row % COLOURS}", member) for row, member in enumerate(facts.commits)))
    return _panel(facts, "Commit index", legend, join(_grid(top), *lines), _scale(top), 110)


def _throughput_panel(facts: Facts) -> Html:
    rates = [bucket.ok / facts.bucket_s for bucket in facts.buckets]
    top = max(rates, default=0.0)
    area = _steps(rates, top)
    drawing = join(_grid(top), tag("path", d=f"M0 {HEIGHT:g}{area}V{HEIGHT:g}Z", class_="area"))
    note = f"longest silence {facts.silence_s:.2f} s"
    return _panel(facts, "Acknowledged sends per second", note, drawing, _scale(top), 120)


def _trouble_panel(facts: Facts) -> Html:
    top = max((bucket.info + bucket.fail for bucket in facts.buckets), default=0)
    shapes = []
    for i, bucket in enumerate(facts.buckets):
        base = HEIGHT
        for count, name in ((bucket.info, "info"), (bucket.fail, "fail")):
            if count:
                high = count / top * HEIGHT * 0.9
                start = i * facts.bucket_s
                shapes.append(_rect(start, start + facts.bucket_s, base - high, base, facts.seconds, name))
                base -= high
    note = join(_key("info", "indefinite"), _key("fail", "failed"), tag("span", f"in {facts.bucket_s:.2g} s each"))
    return _panel(facts, "Sends without acknowledgement", note, join(_grid(top), *shapes), _scale(top), 80)


def _latency_panel(facts: Facts) -> Html:
    shown = [ms for _, ms, _ in facts.points if ms > 0]
    low = 10 ** math.floor(math.log10(max(min(shown, default=1.0), 0.01)))
    high = max(10 ** math.ceil(math.log10(max(shown, default=10.0))), low * 10)
    decades = math.log10(high / low)

    def y(ms: float) -> float:
        return HEIGHT * (1 - 0.92 * math.log10(max(ms, low) / low) / decades)

    dots = [_dots([(at, y(ms)) for at, ms, k in facts.points if k == kind], facts.seconds, kind) for kind in Kind]
    middle = [((i + 0.5) * facts.bucket_s, bucket) for i, bucket in enumerate(facts.buckets)]
    lines = [
        _polyline([_and_y(at, y, bucket, name) for at, bucket in middle], facts.seconds, f"line {name}")
        for name in ("p50", "p99")
    ]
    marks = [low * 10**i for i in range(round(decades) + 1)]
    grid = join(*(_rule(y(ms)) for ms in marks))
    texts = join(*(_mark(y(ms), _duration(ms)) for ms in marks[1:]))
    note = join(_key("p50", "p50"), _key("p99", "p99"), _key("info", "indefinite"), _key("fail", "failed"))
    return _panel(facts, "Latency of sends", note, join(grid, *dots, *lines), texts, 150)


def _and_y(at: float, y: Callable[[float], float], bucket: Bucket, name: str) -> Point:
    """Return a bucket's place on a quantile's line; None where nothing was acknowledged, and the line has a gap."""
    return (at, y(bucket.p50_ms if name == "p50" else bucket.p99_ms)) if bucket.ok else None


def _duration(ms: float) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"


def _unseen_panel(facts: Facts) -> Html | None:
    if not facts.unseen:
        return None
    top = max(value for _, value in facts.unseen)
    line = _polyline(_parts(facts.unseen, top), facts.seconds, "line m3")
    note = f"at the end {facts.unseen[-1][1]:,}"
    return _panel(facts, "Acknowledged, not yet read", note, join(_grid(top), line), _scale(top), 80)


def _steps(values: Sequence[float], top: float) -> str:
    wide = WIDTH / max(len(values), 1)
    return "".join(f"V{_y(value, top):.1f}H{(i + 1) * wide:.1f}" for i, value in enumerate(values))


def _parts(points: Iterable[tuple[float, float]], top: float) -> Iterator[Point]:
    """Yield places on a line, with a gap where nothing was heard for long."""
    last = None
    for at, value in points:
        if last is not None and at - last > SILENT_S:
            yield None
        last = at
        yield (at, _y(value, top))


def _polyline(points: Iterable[Point], seconds: float, class_: str) -> Html:
    path, pen = "", "M"
    for point in points:
        if point is None:
            pen = "M"
        else:
            path += f"{pen}{point[0] / seconds * WIDTH:.1f} {point[1]:.1f}"
            pen = "L"
    return tag("path", d=path or "M0 0", class_=class_)


def _dots(points: Iterable[tuple[float, float]], seconds: float, kind: str) -> Html:
    path = "".join(f"M{at / seconds * WIDTH:.1f} {y:.1f}h0" for at, y in points)
    return tag("path", d=path or "M0 0", class_=f"dots {kind}")


def _y(value: float, top: float) -> float:
    # A tenth is left free above, where the scale's word stands.
    return HEIGHT * (1 - 0.9 * value / top) if top else HEIGHT


def _grid(top: float) -> Html:
    return join(*(_rule(_y(top * part, top)) for part in (0.5, 1)), _rule(HEIGHT)) if top else _rule(HEIGHT)


def _scale(top: float) -> Html:
    return join(*(_mark(_y(top * part, top), _short(top * part)) for part in (0.5, 1))) if top else join()


def _short(value: float) -> str:
    for limit, name in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= limit:
            return f"{value / (1e3 if limit == 1e4 else limit):.3g}{name}"
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def _rule(y: float) -> Html:
    return tag("path", d=f"M0 {y:.1f}H{WIDTH:g}", class_="rule")


def _mark(y: float, text: str) -> Html:
    return tag("span", text, class_="mark", style=f"top:{y / HEIGHT:.2%}")


def _key(class_: str, text: str) -> Html:
    return tag("span", tag("i", class_=class_), text, class_="key")
