"""Plots of figures that were printed as lines of JSON: of `bench growth`, and of `bench peers`."""

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raftmq.bench.peers.systems import FSYNCED, MAJORITY, PAGE_CACHE, PAIR, STORED
from raftmq.bench.plots import Points, bar_plot, line_plot

# What grows → what stands at the axis.
GROWN = {
    "topics": "topics, sent to in turn",
    "queues": "queues of one topic, sent to in turn",
    "connections": "connections that send",
    "consumers": "consumer groups, each reads all",
    "backlog": "messages in the topic",
    "groups": "Raft groups of three on one machine",
    "members": "members of one Raft group",
}
# From here on each power of ten takes as much of the axis as the next.
LOG_FROM = 20

# Where a message is when it is acknowledged, on how many nodes: as short as an axis needs it.
PROMISES = {
    FSYNCED: "3, fsync",
    MAJORITY: "3, memory",
    STORED: "3, no fsync",
    PAIR: "2, memory",
    PAGE_CACHE: "1, memory",
}
GROWTH_KEYS = {"of", "value", "what", "server_cpu_us_per_message"}

Row = Mapping[str, Any]


class NothingToPlot(Exception):
    """The lines hold no figures that there is a plot for; the text says which there are."""


def plot_rows(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Draw what can be drawn of some rows; return the files. Raises NothingToPlot."""
    known = list(rows)
    # Its name becomes a file's.
    growth = [row for row in known if row.keys() >= GROWTH_KEYS and row["of"] in GROWN]
    peers = [row for row in known if {"system", "promise", "in_flight", "body_bytes", "messages_per_s"} <= row.keys()]
    if not growth and not peers:
        raise NothingToPlot("these lines hold no figures of `bench growth --json` or `bench peers --json`")
    return [*plot_growth(growth, folder), *plot_peers(peers, folder)]


def plot_growth(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Draw, for each that grows, what a message costs, and for all of them together how many times the first cost."""
    written: list[Path] = []
    ratios: dict[str, list[tuple[float, float]]] = {}
    for of, kinds in _by_kind(rows, "server_cpu_us_per_message").items():
        written.append(folder / f"growth-{of}.svg")
        label = GROWN.get(of, of)
        line_plot(
            written[-1], f"What a message costs: {of}", label, "server time, µs a message", kinds, log_x=_log(kinds)
        )
    for of, kinds in _by_kind(rows, "to_first").items():
        for number, points in enumerate(kinds.values()):
            # Pulls beside a backlog are a line of their own.
            ratios[of if not number else f"{of}, pulls"] = list(points)
    if ratios:
        written.append(folder / "growth.svg")
        line_plot(
            written[-1],
            "What a message costs, to its cost at the lowest number",
            "how many there are",
            "times the lowest's cost",
            ratios,
            log_x=_log(ratios),
        )
    return written


def plot_peers(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Draw medians of the rates of systems that promise the same side by side; a plot for each load.

    What does not count is left out, and the first system's second measurement of a round.
    """
    loads: dict[tuple[int, int], dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        if not row.get("failed") and not row.get("again"):
            promises = loads.setdefault((int(row["body_bytes"]), int(row["in_flight"])), {})
            systems = promises.setdefault(str(row["promise"]), {})
            systems.setdefault(str(row["system"]), []).append(float(row["messages_per_s"]))
    written = []
    for (body, in_flight), promises in sorted(loads.items()):
        written.append(folder / f"peers-{body}-{in_flight}.svg")
        medians = {
            PROMISES.get(promise, promise): {system: statistics.median(rates) for system, rates in systems.items()}
            for promise, systems in promises.items()
        }
        bar_plot(written[-1], f"{in_flight} sends in flight, {body:,} bytes", "messages per second", medians)
    return written


def _by_kind(rows: Iterable[Row], name: str) -> dict[str, dict[str, Points]]:
    """Return what grows → what was done → its points."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.get(name) is not None:
            kinds = found.setdefault(str(row["of"]), {})
            kinds.setdefault(str(row["what"]), []).append((float(row["value"]), float(row[name])))
    return {of: dict(kinds) for of, kinds in found.items()}


def _log(kinds: Mapping[str, Points]) -> bool:
    return max(x for points in kinds.values() for x, _ in points) >= LOG_FROM
