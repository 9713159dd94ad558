"""Prometheus metrics of one process: a registry that is handed in, never the library's global one."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.figures import Figure, Value, gauge
from runtime.timings import Timings
from runtime.version import RELEASE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one process. Names follow RocketMQ's (prefix ``rocketmq_``) where it has them.

    Every process tells of its own use of the machine (``process_``) and of Python's collector (``python_gc_``).
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self.show(lambda: [_build()])

    def show(self, source: Callable[[], Iterable[Figure]], common: Mapping[str, str] | None = None) -> None:
        """Have figures shown, asked for at each scrape; `common` labels stand at each of their series."""
        self._registry.register(_Shown(source, dict(common or {})))

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Shown(Collector):
    """Turns figures into the library's families."""

    def __init__(self, source: Callable[[], Iterable[Figure]], common: dict[str, str]) -> None:
        self._source = source
        self._names = tuple(common)
        self._common = tuple(common.values())

    def describe(self) -> Iterable[Metric]:
        # Names are known when somebody asks for values, not before.
        return ()

    def collect(self) -> Iterator[Metric]:
        for figure in self._source():
            labels = (*self._names, *figure.labels)
            yield _family(figure, labels, [((*self._common, *key), value) for key, value in figure.values])


def _family(figure: Figure, labels: tuple[str, ...], values: list[tuple[tuple[str, ...], Value]]) -> Metric:
    name, text, kind = figure.name, figure.text, figure.kind
    if kind == "histogram":
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for key, value in values:
            assert isinstance(value, Timings), f"{name} is a histogram"
            histogram.add_metric(key, _buckets(value), value.seconds)
        return histogram
    family = (GaugeMetricFamily if kind == "gauge" else CounterMetricFamily)(name, text, labels=labels)
    for key, value in values:
        assert not isinstance(value, Timings), f"{name} is no histogram"
        family.add_metric(key, value)
    return family


def _buckets(timings: Timings) -> list[tuple[str, float]]:
    """Return what was done within each bound: Prometheus' buckets hold those before them."""
    buckets: list[tuple[str, float]] = []
    within = 0
    for bound, count in zip((*map(str, timings.bounds), "+Inf"), list(timings.counts), strict=True):
        within += count
        buckets.append((bound, within))
    return buckets


def _build() -> Figure:
    labels = RELEASE, platform.python_version()
    return gauge("raftmq_build_info", "What runs: always 1", 1)._replace(
        labels=("version", "python"), values=[(labels, 1)]
    )
