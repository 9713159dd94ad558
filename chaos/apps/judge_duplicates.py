"""What came twice: counted, and put down to what had happened last before it came again."""

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import Any

from chaos.apps.history import AppEvent, AppHistory
from chaos.apps.judge_delivery import group_of
from chaos.apps.names import GROUPS
from chaos.apps.plan import CANCELLED, CLOSED, KILLED, STARTED

# Events of a group's own processes, and what they are called in the table.
OWN = {
    KILLED: "consumer killed",
    CLOSED: "consumer closed",
    CANCELLED: "consumer cancelled",
    STARTED: "consumer started (rebalance)",
}
REFUSED, STORED_TWICE, NOTHING = "refused by its consumer", "stored twice by a repeated send", "nothing before it"


class _Latest:
    """What happened last before a moment, for each reader."""

    def __init__(self, events: list[AppEvent]) -> None:
        self._all = sorted((event for event in events if self.named(event)), key=lambda event: event.at)
        self._by_reader: dict[str, tuple[list[float], list[str]]] = {}

    @staticmethod
    def named(event: AppEvent) -> str:
        """Return what an event is called, "" for one that repeats nothing."""
        if event.app:
            return OWN.get(event.kind, "") if event.reader else ""
        return event.kind

    def before(self, reader: str, at: float) -> str:
        """Return what the latest event was that concerned a reader."""
        if reader not in self._by_reader:
            mine = [event for event in self._all if event.reader in {"", reader}]
            self._by_reader[reader] = [event.at for event in mine], [self.named(event) for event in mine]
        times, names = self._by_reader[reader]
        place = bisect_right(times, at)
        return names[place - 1] if place else NOTHING


def duplicates(history: AppHistory) -> list[dict[str, Any]]:
    """Return a row for each kind of event: how many there were, and what came again after them to each group."""
    latest = _Latest(history.events)
    places: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for delivery in history.deliveries:
        for one, offset, times in zip(delivery.ids, delivery.offsets, delivery.again, strict=True):
            before = places[delivery.reader, one]
            place = delivery.queue, offset
            if before:
                if times:
                    why = REFUSED
                else:
                    why = latest.before(delivery.reader, delivery.at) if place in before else STORED_TWICE
                found[why][group_of(delivery.reader)] += 1
            before.add(place)
    happened = Counter(_Latest.named(event) for event in history.events)
    del happened[""]
    return [
        {"after": kind, "events": happened[kind], **{group: found[kind][group] for group in GROUPS}}
        for kind in [*sorted(happened), *(set(found) - set(happened))]
    ]
