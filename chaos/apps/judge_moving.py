"""Whether consumers go on: nothing that is acknowledged waits long for who lives to take it."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from chaos.apps.faults import NAMESRV_FAULTS
from chaos.apps.findings import judged
from chaos.apps.history import AppHistory
from chaos.apps.judge_delivery import readers
from chaos.apps.names import ORDERLY
from chaos.apps.plan import ACTS
from chaos.apps.producing import ACKED
from pipeline.history.results import Finding
from pipeline.plain.check_liveness import Due, silences_of
from pipeline.plain.check_service import beyond
from pipeline.plain.evidence import NEVER
from pipeline.plain.finalscan import Span, joined

# Seconds that one queue may be silent to a reader while it holds something for him, outside of faults: clients share
# queues anew every 20 s at the latest, RECOVERS_S of them excused, and then there may be a hiccup. Of who reads in
# order: a hiccup. (1.6 s and 0.14 s were the longest of a valid run of a minute.)
SILENT_S = 20.0
SILENT_ORDERED_S = 10.0
# Seconds that a fault counts longer than it lasts: who leads is to be found, and clients learn of it. And for who reads
# in order, when one of them went meanwhile: a lock whose holder is gone is another's 30 s after a new leader has begun.
RECOVERS_S = 5.0
LOCK_LEFT_S = 35.0
_NS = 1_000_000_000


class Stall(NamedTuple):
    """How long a queue was silent to a reader outside of faults, and when that began; seconds."""

    seconds: float
    reader: str
    queue: str
    began: float


def moving(history: AppHistory) -> Finding:
    """Check that of each queue something new comes to each reader in time, as long as there is something for him."""
    found = list(stalls(history))
    bad = [one._asdict() for one in sorted(found, reverse=True) if one.seconds > _bound(one.reader)]
    return judged("M-moves", "a reader to whom nothing came that was there", len(found), bad)


def longest_stalls(history: AppHistory) -> dict[str, float]:
    """Return the longest silence of each reader outside of faults, seconds."""
    longest: dict[str, float] = defaultdict(float)
    for one in stalls(history):
        longest[one.reader] = max(longest[one.reader], round(one.seconds, 3))
    return dict(longest)


def stalls(history: AppHistory) -> Iterator[Stall]:
    """Yield the silences of each reader and queue, as far as no fault excuses them."""
    first: dict[tuple[str, str], tuple[float, str]] = {}
    moves: dict[tuple[str, str], list[int]] = defaultdict(list)
    for delivery in history.deliveries:
        for one in delivery.ids:
            if (delivery.reader, one) not in first:
                first[delivery.reader, one] = (delivery.at, delivery.queue)
                moves[delivery.reader, delivery.queue].append(_ns(delivery.at))
    due: dict[tuple[str, str], list[Due]] = defaultdict(list)
    who = readers(history)
    for send in history.sends:
        if send.fate != ACKED:
            continue
        for reader in (reader for reader, topic in who.items() if topic == send.topic):
            # What never came is lost, which another check says.
            for at, queue in (first[reader, one] for one in send.ids if (reader, one) in first):
                if at > send.at:
                    due[reader, queue].append((_ns(send.at), _ns(at)))
    for (reader, queue), some in sorted(due.items()):
        excused = excused_of(history, ordered=reader == ORDERLY)
        for silence in silences_of(reader, ("", queue, 0), some, sorted(moves[reader, queue])):
            for start, end in beyond((silence.began, silence.ended), excused):
                yield Stall((end - start) / _NS, reader, queue, start / _NS)


def _bound(reader: str) -> float:
    return SILENT_ORDERED_S if reader == ORDERLY else SILENT_S


def excused_of(history: AppHistory, *, ordered: bool) -> list[Span]:
    """Return when a silence counts for nothing, in order and apart."""
    spans = []
    left_until = -math.inf
    gone = _goings(history) if ordered else []
    for fault in history.faults:
        ended = fault.ended + RECOVERS_S
        if ordered and fault.name not in NAMESRV_FAULTS:
            # Who goes while nobody leads gives nothing back; whoever leads next counts anew what is left.
            in_vain = any(began < ended and until > fault.began for began, until in gone)
            if in_vain or fault.began < left_until:
                ended = left_until = fault.ended + LOCK_LEFT_S
        spans.append((_ns(fault.began), NEVER if math.isinf(ended) else _ns(ended)))
    return joined(spans)


def _goings(history: AppHistory) -> list[tuple[float, float]]:
    """Return when consumers in order were ending: from the order, or the kill, until they had."""
    ends: list[tuple[float, float]] = []
    began: dict[str, float] = {}
    for event in sorted(history.events, key=lambda event: event.at):
        if event.reader != ORDERLY:
            continue
        if event.kind in ACTS:
            began.setdefault(event.app, event.at)
        elif event.kind == "ended":
            ends.append((began.pop(event.app, event.at), event.at))
    return [*ends, *((at, math.inf) for at in began.values())]


def _ns(seconds: float) -> int:
    return int(seconds * _NS)
