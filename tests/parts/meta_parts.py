"""A member's tables over a log that the test itself is: it decides what is committed, who leads, who starts again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auth.directory import AccessDirectory
from broker.metadata.agreed_locks import AgreedLocks
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.delay_progress import DelayProgress
from broker.metadata.queue_starts import QueueStarts, StartEvents
from broker.metadata.replicated import GroupMeta
from broker.metadata.request_modes import RequestModes
from broker.metadata.topics import DeleteQueues, TopicTable
from broker.metadata.users import UserTable
from broker.settings.config import BrokerConfig, LiveConfig
from raft.protocol.types import Fate, OnFate, Refusal
from runtime.clock import ManualClock
from store.config import StoreConfig
from tests.parts.raft_parts import SetNode

GROUP = bytes(range(16))


class FakeRole:
    def __init__(self) -> None:
        self.leads = False
        self.term = 0
        self.broker_id = 1
        self.leader_address: str | None = None
        self.callbacks: list[Callable[[], None]] = []

    def lease(self) -> bool:
        return self.leads

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def become(self, term: int | None) -> None:
        self.leads = term is not None
        self.term = self.term if term is None else term
        for callback in self.callbacks:
            callback()


class Member(SetNode):
    """One broker of a group: `proposed` are the entries it has appended, in the order of the log."""

    def __init__(
        self,
        folder: Path,
        clock: ManualClock,
        group: bytes = GROUP,
        *,
        on_topics: Callable[[], None] = lambda: None,
        delete_queues: DeleteQueues | None = None,
        starts: StartEvents | None = None,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.clock = clock
        self.role = FakeRole()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.proposed: list[tuple[bytes, OnFate]] = []
        self.refusal: Refusal | None = None
        self.reached: dict[int, int] = {}
        self.at = 0
        self.meta = GroupMeta(self.role, self.later, clock)
        self.meta.attach_node(self)
        live = LiveConfig(BrokerConfig(brokerName="broker-a"), StoreConfig())
        self.topics = TopicTable(
            folder / "topics.json", live, clock, self.meta, on_change=on_topics, delete_queues=delete_queues
        )
        self.groups = GroupTable(folder / "subscriptionGroup.json", live, clock, self.meta)
        self.offsets = OffsetTable.load(folder / "consumerOffset.json", clock, self.meta)
        self.delay = DelayProgress(folder / "delayOffset.json", clock, self.meta, lambda: self.reached)
        self.starts = QueueStarts(folder / "queueStart.json", clock, self.meta, starts or StartEvents())
        self.able = True
        self.locks = AgreedLocks(folder / "queueLocks.json", clock, self.meta, able=lambda: self.able)
        self.users = UserTable(folder / "auth.json", clock, AccessDirectory(), self.meta)
        self.modes = RequestModes(folder / "messageRequestMode.json", self.meta)
        tables = (self.topics, self.groups, self.offsets, self.delay, self.starts, self.locks, self.users, self.modes)
        self.tables = tables
        if self.meta.load_stamps(group, 1) is not None:
            self.meta.stamp_all(group, 1)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append((seconds, call))

    def propose_meta(self, payload: bytes, on_fate: OnFate) -> Refusal | None:
        if self.refusal is None:
            self.proposed.append((payload, on_fate))
        return self.refusal

    def turn(self) -> None:
        """End the turn of the loop: what was to happen at once happens."""
        while due := [timer for timer in self.timers if timer[0] == 0]:
            self.timers = [timer for timer in self.timers if timer[0] != 0]
            for _, call in due:
                call()

    def wait(self) -> None:
        """Let every timer ring once, and then whatever that set off at once."""
        due, self.timers = self.timers, []
        for _, call in due:
            call()
        self.turn()

    def commit(self) -> list[bytes]:
        """Have everything proposed so far committed and applied; returns the payloads."""
        payloads = []
        while self.proposed:
            payload, fate = self.proposed.pop(0)
            self.at = max(self.at, self.meta.index) + 1
            self.meta.apply(self.at, payload)
            fate(Fate.COMMITTED)
            payloads.append(payload)
        return payloads

    def settle(self) -> list[bytes]:
        """Let timers ring and commit until nothing is left to do."""
        payloads = []
        self.wait()
        while self.proposed:
            payloads += self.commit()
            self.wait()
        return payloads

    def state(self) -> dict[str, Any]:
        """What is applied, as the files would have it, without the stamps."""
        return {table.file.path.name: json.loads(b"".join(table._snapshot(None)())) for table in self.tables}

    def shown(self) -> dict[str, Any]:
        """What the tables of topics and groups show."""
        return {
            "topics.json": json.loads(self.topics.encode()),
            "subscriptionGroup.json": json.loads(self.groups.encode()),
        }

    def write(self) -> None:
        """Write all files with the stamp of now."""
        for table in self.tables:
            table.file.write_now()


def leader(folder: Path, clock: ManualClock | None = None, term: int = 3, **hears: Any) -> Member:
    """A member that leads, with everything that a new leader owes applied."""
    member = Member(folder, clock or ManualClock(), **hears)
    member.role.become(term)
    member.settle()
    return member
