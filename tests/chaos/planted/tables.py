"""Bugs of a Raft group's tables: offsets and topics that do not go through the log as they should, and locks."""

import math
from collections.abc import Iterable
from typing import Any

from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.operations import Operation, Table, Verb
from broker.metadata.replicated import GroupMeta
from broker.queue_locks import Holders, LockTable
from chaos.workloads.admin import PREFIX
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from tests.chaos.planted.grafts import graft

# Behind any end of a queue.
FAR = 100_000


def keep_offsets_to_oneself() -> None:
    """Store a commit in the leader's own table, and tell no other member."""

    def make(_honest: Any) -> Any:
        def gather(self: OffsetTable, _cycle: Any, place: tuple[str, int], offset: int, end: int, *_who: Any) -> bool:
            if offset >= 0:
                self._table.setdefault(place[0], {})[place[1]] = min(offset, end)
                self._touch()
            return True

        return gather

    graft(OffsetTable, "_gather", make)


def store_offsets_beyond_the_end() -> None:
    """Store what a client commits plus something, wherever the queue ends."""

    def make(honest: Any) -> Any:
        def gather(self: OffsetTable, cycle: Any, place: Any, offset: int, end: int, *who: Any) -> bool:
            stored: bool = honest(self, cycle, place, offset + FAR, end + FAR, *who)
            return stored

        return gather

    graft(OffsetTable, "_gather", make)


def keep_topics_to_oneself() -> None:
    """Create an administrator's topics in the leader's own table, and tell no other member."""

    def make(honest: Any) -> Any:
        def propose(self: GroupMeta, operation: Operation, done: Any = None) -> None:
            if operation[0] == Verb.PUT and operation[1] == Table.TOPICS:
                # The load's own topics are spared: where these are missing nothing runs at all.
                told = [row for row in operation[3] if not row[0].startswith(PREFIX)]
                if not told:
                    if done is not None:
                        done(ResponseCode.SUCCESS)
                    return
                operation = [*operation[:3], told]
            honest(self, operation, done)

        return propose

    graft(GroupMeta, "propose", make)


def grant_every_lock() -> None:
    """Grant a queue's lock to whoever asks, also while another client holds it."""

    def make(_honest: Any) -> Any:
        def lock(_self: LockTable, _group: str, _client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
            return list(queues)

        return lock

    graft(LockTable, "lock", make)


def keep_locks_for_nobody() -> None:
    """Begin to lead with every lock that somebody has held by nobody, who never gives it back."""

    def make(honest: Any) -> Any:
        def inherit(self: LockTable, holders: Holders) -> None:
            honest(self, holders)
            self._groups = {group: dict.fromkeys(held, ("", math.inf)) for group, held in holders.items()}

        return inherit

    graft(LockTable, "inherit", make)
