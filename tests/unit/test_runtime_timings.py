"""Histograms as plain numbers, what they are rendered to, and quantiles of late."""

from typing import cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from runtime.figures import Figure, by, counter, gauge, histogram
from runtime.metrics import Metrics
from runtime.timings import Lately, Timings, quantile


class Fixed:
    """A collector of the library's."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]


BOUNDS = (0.001, 0.01, 0.1)


def test_what_took_as_long_as_a_bound_is_within_it() -> None:
    times = Timings(BOUNDS)
    for seconds in (0.0, 0.001, 0.0011, 0.1, 0.2):
        times.add(seconds)
    times.add(0.05, times=3)
    assert times.counts == [2, 1, 4, 1]
    assert times.total == 8
    assert times.seconds == pytest.approx(0.001 + 0.0011 + 0.1 + 0.2 + 0.15)


def test_a_quantile_lies_on_a_line_between_bounds() -> None:
    assert quantile(BOUNDS, [0, 0, 0, 0], 0.99) is None
    assert quantile(BOUNDS, [0, 100, 0, 0], 0.5) == pytest.approx(0.001 + 0.009 / 2)
    assert quantile(BOUNDS, [50, 0, 50, 0], 0.99) == pytest.approx(0.01 + 0.09 * 49 / 50)
    assert quantile(BOUNDS, [0, 0, 0, 7], 0.99) == 0.1


def test_of_late_is_what_came_since_the_oldest_mark() -> None:
    times = Timings(BOUNDS)
    times.add(0.05, times=100)
    lately = Lately(times, marks=2)
    assert lately.quantile(0.99) is None
    times.add(0.0005)
    assert lately.quantile(0.99) == pytest.approx(0.00099)
    lately.mark()
    assert lately.quantile(0.99) is not None
    lately.mark()
    assert lately.quantile(0.99) is None


def test_figures_become_text_that_prometheus_reads() -> None:
    times = Timings(BOUNDS)
    times.add(0.005, times=4)
    times.add(5.0)
    shown: list[Figure] = [
        histogram("a_seconds", "How long", times),
        by("code", "counter", "b_total", "How often", [("0", 3), ("14", 1)]),
        gauge("c", "How much", 2.5),
        counter("d_total", "In all", 7),
        by("member", "gauge", "e", "Of nobody", []),
    ]
    metrics = Metrics()
    metrics.show(lambda: shown, {"cluster": 'C"1'})
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    within = {each.labels["le"]: each.value for each in families["a_seconds"].samples if each.name.endswith("_bucket")}
    assert within == {"0.001": 0, "0.01": 4, "0.1": 4, "+Inf": 5}
    totals = {each.name: each.value for each in families["a_seconds"].samples if "le" not in each.labels}
    assert totals == {"a_seconds_count": 5, "a_seconds_sum": pytest.approx(5.02)}
    assert {each.labels["code"]: each.value for each in families["b"].samples} == {"0": 3, "14": 1}
    assert families["c"].samples[0].labels == {"cluster": 'C"1'}
    assert (families["c"].type, families["d"].type, families["a_seconds"].type) == ("gauge", "counter", "histogram")
    assert families["e"].samples == []
    shown.pop(0)
    assert "a_seconds" not in metrics.render().decode()


def test_labels_stand_as_the_library_writes_them_whatever_is_in_them() -> None:
    odd = 'a "quoted" \\ 100 % of\ntwo lines'
    figure = Figure("z", f"Help of {odd}", "gauge", [((odd, "x"), 1.5), (("plain", odd), 1e300)], ("zone", "a"))
    metrics = Metrics()
    metrics.show(lambda: [figure], {"m": odd})
    text = metrics.render().decode()
    lines = [line for line in text.splitlines() if line.startswith("z{")]
    family = Metric("z", figure.text, "gauge")
    for (zone, a), value in cast(list[tuple[tuple[str, ...], float]], figure.values):
        family.add_sample("z", {"zone": zone, "a": a, "m": odd}, value)
    registry = CollectorRegistry()
    registry.register(cast(Collector, Fixed(family)))
    assert generate_latest(registry).decode().splitlines()[2:] == lines
    (read,) = [each for each in text_string_to_metric_families(text) if each.name == "z"]
    assert [sample.labels["zone"] for sample in read.samples] == [odd, "plain"]


def test_every_process_tells_of_itself_and_of_nothing_made_twice() -> None:
    text = Metrics().render().decode()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {
        "process_resident_memory_bytes",
        "process_cpu_seconds",
        "python_gc_collections",
        "raftmq_build_info",
    } <= names
    assert "_created" not in text
