"""What a process tells of itself as plain values: each part names its figures, runtime/metrics.py renders them.

So whoever counts knows nothing of Prometheus, and nothing is looked up or set before somebody scrapes.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from runtime.timings import Timings

Kind = Literal["gauge", "counter", "histogram"]
Value = float | Timings


class Figure(NamedTuple):
    """One metric: its name as it is shown (a counter's ends in `_total`), what it means, its values by label values."""

    name: str
    text: str
    kind: Kind
    values: list[tuple[tuple[str, ...], Value]]
    labels: tuple[str, ...] = ()


def gauge(name: str, text: str, value: float) -> Figure:
    """Return a figure that rises and falls, and has one value."""
    return Figure(name, text, "gauge", [((), value)])


def counter(name: str, text: str, value: float) -> Figure:
    """Return a figure that only rises while the process lives."""
    return Figure(name, text, "counter", [((), value)])


def histogram(name: str, text: str, timings: Timings) -> Figure:
    """Return how long something took."""
    return Figure(name, text, "histogram", [((), timings)])


def by(label: str, kind: Kind, name: str, text: str, values: Iterable[tuple[str, Value]]) -> Figure:
    """Return a figure with one label."""
    return Figure(name, text, kind, [((key,), value) for key, value in values], (label,))
