"""Plots of the benchmarks' figures as SVG: lines and bars on a light ground, the same bytes for the same figures.

They are drawn by Pygal, which the extra `bench` brings. Its scripts (tooltips), its date and what only they need are
left out, so that a plot is a picture that a repository can hold.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pygal
from pygal.style import Style

# Pygal has a way of its own to import maps, which are not used here. It lacks what Python asks for since 3.4, and every
# import after it would warn of that.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]

WIDTH, HEIGHT = 720, 400
# Told apart by eyes that do not see all colours (Okabe and Ito's palette, and grey).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442", "#999999")
GROUND, GRID, TEXT = "#ffffff", "#d0d0d0", "#333333"
# Numbers at the y axis above its 0.
STEPS_MOST = 5
# Powers of ten, with 0, that make other numbers at the x axis needless.
TENS_LEAST = 4
Points = Sequence[tuple[float, float]]


def line_plot(
    path: Path, title: str, x_label: str, y_label: str, series: Mapping[str, Points], *, log_x: bool = False
) -> None:
    """Draw a line for each name, its points marked. The y axis begins at 0.

    `log_x`: each power of ten takes as much of the x axis as the next; 0 stands a step left of the lowest.
    """
    xs = sorted({x for points in series.values() for x, _ in points})
    assert xs, "there is something to draw"
    places = _log_places(xs) if log_x else {x: x for x in xs}
    chart = pygal.XY(
        **_looks(title, x_label, y_label),
        show_dots=True,
        dots_size=3,
        stroke_style={"width": 2},
        xrange=_widened(places[xs[0]], places[xs[-1]]),
    )
    chart.x_labels = [{"value": places[x], "label": number_text(x)} for x in _labelled(xs, places)]
    for name, points in series.items():
        chart.add(name, [(places[x], y) for x, y in sorted(points)])
    _write(chart, path, [y for points in series.values() for _, y in points])


def bar_plot(path: Path, title: str, y_label: str, groups: Mapping[str, Mapping[str, float]]) -> None:
    """Draw a bar for each name in each group: what is compared stands side by side, in one colour everywhere."""
    assert groups, "there is something to draw"
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    chart = pygal.Bar(**_looks(title, "", y_label))
    chart.x_labels = list(groups)
    for name in names:
        chart.add(name, [bars.get(name) for bars in groups.values()])
    _write(chart, path, [value for bars in groups.values() for value in bars.values()])


def number_text(value: float) -> str:
    """Return a number as people read it on an axis: 5,000,000 is 5M."""
    if not value:
        return "0"
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if abs(value) >= 10 * size or (abs(value) >= size and not value % (size / 2)):
            return f"{value / size:.4g}{unit}"
    return f"{value:,.4g}"


def _log_places(xs: Sequence[float]) -> dict[float, float]:
    above = [x for x in xs if x > 0]
    lowest = math.log10(above[0]) if above else 0.0
    return {x: math.log10(x) if x > 0 else lowest - 1 for x in xs}


def _widened(first: float, last: float) -> tuple[float, float]:
    """Return a range with a little room at both ends, also of a single value."""
    room = (last - first) * 0.03 or 0.5
    return first - room, last + room


def _labelled(xs: Sequence[float], places: Mapping[float, float]) -> list[float]:
    """Return the values that are written at the axis: those that have room beside the one before.

    On an axis of powers of ten they are those, where some of them were measured.
    """
    tens = [x for x in xs if places[x] != x and (not x or x == 10 ** round(math.log10(x)))]
    if len(tens) >= TENS_LEAST:
        return tens
    room = (places[xs[-1]] - places[xs[0]]) / 16
    kept = [xs[0]]
    for x in xs[1:]:
        if places[x] - places[kept[-1]] > room:
            kept.append(x)
    return kept


def _looks(title: str, x_label: str, y_label: str) -> dict[str, Any]:
    style = Style(
        background=GROUND,
        plot_background=GROUND,
        foreground=TEXT,
        foreground_strong=TEXT,
        foreground_subtle=GRID,
        guide_stroke_color=GRID,
        major_guide_stroke_color=GRID,
        colors=COLOURS,
        font_family="sans-serif",
        title_font_size=15,
        label_font_size=12,
        major_label_font_size=12,
        legend_font_size=12,
        opacity=".9",
        transition="0s",
    )
    return {
        "title": title,
        "x_title": x_label,
        "y_title": y_label,
        "style": style,
        "width": WIDTH,
        "height": HEIGHT,
        "no_prefix": True,
        "js": [],
        "legend_at_bottom": True,
        "truncate_legend": -1,
        "show_y_guides": True,
        "value_formatter": number_text,
        "print_values": False,
    }


def _write(chart: Any, path: Path, values: Sequence[float]) -> None:
    step = _step(max(values, default=0.0))
    chart.y_labels = [step * part for part in range(STEPS_MOST + 1) if not part or step * (part - 1) < max(values)]
    chart.range = (0, chart.y_labels[-1])
    chart.add_xml_filter(_picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(chart.render() + b"\n")


def _step(highest: float) -> float:
    """Return how far apart an axis's numbers stand, which are easily read and few."""
    if highest <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(highest / STEPS_MOST))
    return next(size * part for part in (1, 2, 2.5, 5, 10) if size * part * STEPS_MOST >= highest)


def _picture(root: Any) -> Any:
    """Take out of a drawing what is none: comments (with a date), scripts, tooltips and their data."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag is ET.Comment or child.tag in {"script", "desc"} or _is_tooltip(child):
                parent.remove(child)
    del root.attrib["id"]  # empty
    return root


def _is_tooltip(element: Any) -> bool:
    # The marks themselves have the class tooltip-trigger.
    return not {"tooltip", "tooltip-overlay"}.isdisjoint(str(element.get("class", "")).split())
