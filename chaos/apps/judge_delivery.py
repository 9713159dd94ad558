"""What became of messages: each that was acknowledged came to everybody, nothing was skipped or turned round."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from chaos.apps.findings import judged
from chaos.apps.history import AppDelivery, AppHistory
from chaos.apps.names import BROADCAST, GROUPS, LITE, ORDERLY, parse_id
from chaos.apps.plan import KILLED, STARTED
from chaos.apps.producing import ACKED, FAILED
from pipeline.history.results import Finding

Witness = dict[str, Any]

# Of a queue that was not resumed where it should be, so many of the newest commits are told.
COMMITS_TOLD = 3


def readers(history: AppHistory) -> dict[str, str]:
    """Return who consumes in this run, each with its topic."""
    return {slot.reader: GROUPS[slot.group] for slot in history.plan.slots if slot.group}


def lost(history: AppHistory) -> Finding:
    """Check that each group, and each place of a broadcasting one, consumed every acknowledged message."""
    acked: dict[str, set[str]] = defaultdict(set)
    for send in history.sends:
        if send.fate == ACKED:
            acked[send.topic].update(send.ids)
    seen: dict[str, set[str]] = defaultdict(set)
    consumed: dict[str, set[str]] = defaultdict(set)
    for delivery in history.deliveries:
        seen[delivery.reader].update(delivery.ids)
        if delivery.ok:
            consumed[delivery.reader].update(delivery.ids)
    bad = [
        {"reader": reader, "id": one, "seen": one in seen[reader]}
        for reader, topic in readers(history).items()
        for one in sorted(acked[topic] - consumed[reader])
    ]
    looked = sum(len(acked[topic]) for topic in readers(history).values())
    return judged("L-lost", "acknowledged and not consumed", looked, bad)


def ghosts(history: AppHistory) -> Finding:
    """Check that a message of which its producer was told that it is surely not stored came to nobody."""
    fates: dict[str, set[str]] = defaultdict(set)
    for send in history.sends:
        for one in send.ids:
            fates[one].add(send.fate)
    failed = {one for one, told in fates.items() if told == {FAILED}}
    bad = [
        {"reader": delivery.reader, "id": one, "offset": offset}
        for delivery in history.deliveries
        for one, offset in zip(delivery.ids, delivery.offsets, strict=True)
        if one in failed
    ]
    return judged("L-ghost", "told to be not stored, and consumed", len(fates), bad)


def skipped(history: AppHistory) -> Finding:
    """Check that each reader has had every offset of each queue up to the last one that it had."""
    had: dict[tuple[str, str], set[int]] = defaultdict(set)
    for delivery in history.deliveries:
        # What comes again by way of the retry topic has that one's offsets.
        first = (offset for offset, times in zip(delivery.offsets, delivery.again, strict=True) if not times)
        had[delivery.reader, delivery.queue].update(first)
    bad = [
        {"reader": reader, "queue": queue, "offset": offset}
        for (reader, queue), offsets in sorted(had.items())
        for offset in sorted(set(range(max(offsets, default=-1) + 1)) - offsets)
    ]
    return judged("L-skipped", "offsets that were skipped", sum(map(len, had.values())), bad)


def inversions(history: AppHistory) -> Finding:
    """Check that of one key and of one queue no message came for the first time after a later one."""
    seen: set[str] = set()
    newest: dict[str, int] = {}
    furthest: dict[str, int] = {}
    bad: list[Witness] = []
    for delivery in _of(history, ORDERLY):
        for one, offset in zip(delivery.ids, delivery.offsets, strict=True):
            if one in seen:
                continue
            seen.add(one)
            stream, number = parse_id(one)
            if number < newest.get(stream, 0):
                bad.append({"id": one, "after": newest[stream], "app": delivery.app, "at": delivery.at})
            newest[stream] = max(number, newest.get(stream, 0))
            if offset < furthest.get(delivery.queue, -1):
                bad.append({"queue": delivery.queue, "offset": offset, "after": furthest[delivery.queue]})
            furthest[delivery.queue] = max(offset, furthest.get(delivery.queue, -1))
    return judged("O-inversion", "first deliveries out of order", len(seen), bad)


def together(history: AppHistory) -> Finding:
    """Check that no two handlers of the orderly group were busy with one queue at once."""
    dead = {event.app: event.gone for event in history.events if event.kind == KILLED}
    busy: dict[str, tuple[float, str]] = {}
    bad: list[Witness] = []
    looked = 0
    for delivery in _of(history, ORDERLY):
        looked += 1
        until, app = busy.get(delivery.queue, (0.0, ""))
        if delivery.at < until:
            bad.append({"queue": delivery.queue, "app": delivery.app, "other": app, "for_s": until - delivery.at})
        # Of one that was killed meanwhile it is known when it was gone.
        end = delivery.until if delivery.until is not None else dead.get(delivery.app, delivery.at)
        busy[delivery.queue] = max(busy.get(delivery.queue, (0.0, "")), (end, delivery.app))
    return judged("O-together", "two handlers of one queue at once", looked, bad)


def resumed(history: AppHistory) -> Finding:
    """Check that who began to poll a queue went on between the last acknowledged and the furthest attempted commit."""
    started = {event.app: event.at for event in history.events if event.kind == STARTED}
    commits = sorted((one for one in history.commits if one.reader == LITE), key=lambda one: one.began)
    bad: list[Witness] = []
    looked = 0
    for delivery in _firsts(history):
        queue = delivery.queue
        least = max(
            (
                commit.positions.get(queue, 0)
                for commit in commits
                if commit.ok and commit.until is not None and commit.until < started.get(delivery.app, 0.0)
            ),
            default=0,
        )
        most = max((commit.positions.get(queue, 0) for commit in commits if commit.began < delivery.at), default=0)
        looked += least > 0
        if not least <= delivery.offsets[0] <= most:
            newest = [commit for commit in commits if queue in commit.positions and commit.began < delivery.at][
                -COMMITS_TOLD:
            ]
            told = [[commit.began, commit.until, commit.ok, commit.positions[queue]] for commit in newest]
            found = {"app": delivery.app, "queue": queue, "at": delivery.offsets[0], "least": least, "most": most}
            bad.append({**found, "commits": told})
    return judged("P-resumed", "polling that did not resume where it was committed", looked, bad)


def _of(history: AppHistory, reader: str) -> Iterator[AppDelivery]:
    return (delivery for delivery in history.deliveries if delivery.reader == reader)


def _firsts(history: AppHistory) -> Iterator[AppDelivery]:
    """Return what each polling process got first of each queue."""
    known: set[tuple[str, str]] = set()
    for delivery in _of(history, LITE):
        if (delivery.app, delivery.queue) not in known:
            known.add((delivery.app, delivery.queue))
            yield delivery


def group_of(reader: str) -> str:
    """Return the group of a reader."""
    return BROADCAST if reader.startswith(BROADCAST) else reader
