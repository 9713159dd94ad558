"""The metrics of one process in Prometheus' text format.

The library tells of the process and of Python's collector, from a registry of its own, never the global one. Our own
figures are written here: its way costs ten times as much, and a scrape of a broker with as many topics as have series
held up the event loop, so its heartbeats, for 0.1 s.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

from runtime.figures import Figure, Value, gauge
from runtime.timings import Timings
from runtime.version import RELEASE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Values of labels that are remembered as they are written: at each scrape they are mostly the same.
ESCAPED_MAX = 8192

_LABEL = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})


class Metrics:
    """The metrics of one process. Names follow RocketMQ's (prefix ``rocketmq_``) where it has them.

    Every process tells of its own use of the machine (``process_``) and of Python's collector (``python_gc_``).
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._sources: list[tuple[Callable[[], Iterable[Figure]], dict[str, str]]] = []
        self.show(lambda: [_build()])

    def show(self, source: Callable[[], Iterable[Figure]], common: Mapping[str, str] | None = None) -> None:
        """Have figures shown, asked for at each scrape; `common` labels stand at each of their series."""
        self._sources.append((source, dict(common or {})))

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        own = [line for source, common in self._sources for figure in source() for line in _lines(figure, common)]
        return generate_latest(self._registry) + "".join(own).encode()


class _Series:
    """Writes the series of one name: labels in the order of their names, as the library does."""

    def __init__(self, name: str, labels: tuple[str, ...], common: Mapping[str, str]) -> None:
        places = sorted(range(len(labels)), key=labels.__getitem__)
        self._places = None if places == list(range(len(labels))) else places
        written = dict.fromkeys(labels, "%s") | {label: _quoted(text) for label, text in common.items()}
        assert len(written) == len(labels) + len(common), f"{name} has a label twice"
        inner = ",".join(f'{label}="{text}"' for label, text in sorted(written.items()))
        self._template = f"{name}{{{inner}}} %s\n" if written else f"{name} %s\n"

    def line(self, key: tuple[str, ...], value: float) -> str:
        if self._places is not None:
            key = tuple(map(key.__getitem__, self._places))
        return self._template % (*map(_escaped, key), float(value))


def _lines(figure: Figure, common: Mapping[str, str]) -> Iterator[str]:
    name, labels = figure.name, figure.labels
    yield f"# HELP {name} {figure.text.translate(_HELP)}\n# TYPE {name} {figure.kind}\n"
    if figure.kind == "histogram":
        yield from _histogram(figure, common)
        return
    series = _Series(name, labels, common)
    for key, value in figure.values:
        assert not isinstance(value, Timings), f"{name} is no histogram"
        yield series.line(key, value)


def _histogram(figure: Figure, common: Mapping[str, str]) -> Iterator[str]:
    """Yield what was done within each bound: Prometheus' buckets hold those before them."""
    name, labels = figure.name, figure.labels
    buckets = _Series(f"{name}_bucket", (*labels, "le"), common)
    count, total = _Series(f"{name}_count", labels, common), _Series(f"{name}_sum", labels, common)
    for key, timings in figure.values:
        assert isinstance(timings, Timings), f"{name} is a histogram"
        within = 0
        for bound, times in zip((*map(str, timings.bounds), "+Inf"), tuple(timings.counts), strict=True):
            within += times
            yield buckets.line((*key, bound), within)
        yield count.line(key, within)
        yield total.line(key, timings.seconds)


def _quoted(text: str) -> str:
    """Return a label's value as it stands in a template."""
    return _escaped(text).replace("%", "%%")


@lru_cache(ESCAPED_MAX)
def _escaped(text: str) -> str:
    return text.translate(_LABEL)


def _build() -> Figure:
    values: list[tuple[tuple[str, ...], Value]] = [((RELEASE, platform.python_version()), 1.0)]
    return gauge("raftmq_build_info", "What runs: always 1", 1)._replace(labels=("version", "python"), values=values)
