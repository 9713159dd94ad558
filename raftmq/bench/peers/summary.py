"""What the rounds come to: medians, how many times the first system's messages, and what chance alone does."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raftmq.bench.peers.rounds import PeerRound


@dataclass(frozen=True, slots=True)
class PeerRow:
    """Medians of one system with so many in flight, over the rounds that count."""

    system: str
    again: bool
    promise: str
    in_flight: int
    body_bytes: int
    rounds: int
    failed: int
    """Rounds that do not count."""
    messages_per_s: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    cpu_us_per_message: float | None = None
    client_busy: float = 0.0
    others_busy: float = 0.0
    first_times: float | None = None
    """How many times this one's messages per second the first system brought in the same rounds."""


@dataclass(frozen=True, slots=True)
class PeerNoise:
    """The first system against itself with so many in flight: ratios of its two measurements of a round."""

    system: str
    in_flight: int
    ratio: float
    lowest: float
    highest: float


def peer_rows(rounds: Sequence[PeerRound]) -> list[PeerRow]:
    """Return a row for each number in flight and system, in the order in which they came first."""
    kinds: dict[tuple[int, str, bool], list[PeerRound]] = {}
    order: dict[str, None] = {}
    for one in rounds:
        kinds.setdefault((one.in_flight, one.system, one.again), []).append(one)
        order.setdefault(one.system)
    places = list(order)
    keys = sorted(kinds, key=lambda key: (key[0], places.index(key[1]), key[2]))
    return [_row(kinds[key], _first_rates(rounds, key[0])) for key in keys]


def peer_noise(rounds: Sequence[PeerRound]) -> list[PeerNoise]:
    """Return how the first system's two measurements of a round differ, for each number in flight."""
    found = []
    for in_flight in sorted({one.in_flight for one in rounds}):
        first = _first_rates(rounds, in_flight)
        again = [one for one in rounds if one.again and one.in_flight == in_flight and one.failed is None]
        ratios = [round(one.messages_per_s / first[one.round], 2) for one in again if one.round in first]
        if ratios:
            middle = round(statistics.median(ratios), 2)
            found.append(PeerNoise(again[0].system, in_flight, middle, min(ratios), max(ratios)))
    return found


def _first_rates(rounds: Sequence[PeerRound], in_flight: int) -> dict[int, int]:
    """Return the first system's messages per second by round: the one that is measured again."""
    name = next((one.system for one in rounds if one.again), None)
    return {
        one.round: one.messages_per_s
        for one in rounds
        if one.system == name and not one.again and one.in_flight == in_flight and one.failed is None
    }


def _row(rounds: Sequence[PeerRound], first: dict[int, int]) -> PeerRow:
    told, good = rounds[0], [one for one in rounds if one.failed is None]
    row = PeerRow(
        told.system, told.again, told.promise, told.in_flight, told.body_bytes, len(good), len(rounds) - len(good)
    )
    if not good:
        return row
    cpu = [one.cpu_us_per_message for one in good if one.cpu_us_per_message is not None]
    ratios = [first[one.round] / one.messages_per_s for one in good if one.round in first]
    return replace(
        row,
        messages_per_s=round(statistics.median(one.messages_per_s for one in good)),
        p50_ms=round(statistics.median(one.p50_ms for one in good), 3),
        p99_ms=round(statistics.median(one.p99_ms for one in good), 3),
        cpu_us_per_message=round(statistics.median(cpu), 1) if cpu else None,
        client_busy=round(statistics.median(one.client_busy for one in good), 2),
        others_busy=round(statistics.median(one.others_busy for one in good), 2),
        first_times=round(statistics.median(ratios), 2) if ratios else None,
    )
