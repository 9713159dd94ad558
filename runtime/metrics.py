"""Prometheus metrics of one process: a registry that is handed in, never the library's global one."""

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from runtime.version import RELEASE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one process. Names follow RocketMQ's (prefix ``rocketmq_``) where it has them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        build = self.gauge("raftmq_build_info", "What runs: always 1.", ("version", "python"))
        build.labels(RELEASE, platform.python_version()).set(1)

    def counter(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Counter:
        """Make a counter."""
        return Counter(name, help_text, labels, registry=self.registry)

    def gauge(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Gauge:
        """Make a gauge."""
        return Gauge(name, help_text, labels, registry=self.registry)

    def histogram(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...] = (),
        buckets: tuple[float, ...] = Histogram.DEFAULT_BUCKETS,
    ) -> Histogram:
        """Make a histogram with the given upper bounds."""
        return Histogram(name, help_text, labels, buckets=buckets, registry=self.registry)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
