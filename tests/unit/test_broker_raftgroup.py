"""broker/raft_group/replication.py: what becomes one entry, who is answered when, and what is sent elsewhere."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.raft_group import replication as raftgroup
from broker.raft_group.replication import IN_FLIGHT_ENTRIES, RaftReplication
from raft.protocol.types import Fate, OnFate, Refusal
from remoting.codes import ResponseCode
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.raft_parts import SetNode, SetRole

HOST = bytes(8)


def record(body: bytes = b"x", topic: str = "T") -> PendingRecord:
    return PendingRecord(topic, 0, 0, 0, 0, HOST, 0, 0, body, b"")


class Log:
    """Entries in a list; a topic named "bad" is refused."""

    def __init__(self) -> None:
        self.entries: list[list[str]] = []

    def append_records(
        self, records: Sequence[PendingRecord | Sequence[PendingRecord]], term: int, commit: int
    ) -> tuple[int, list[Any]]:
        assert (term, commit) == (1, 0)
        results: list[Any] = []
        entry: list[str] = []
        for item in records:
            group = [item] if isinstance(item, PendingRecord) else list(item)
            if any(each.topic == "bad" for each in group):
                placed = [PutResult(PutStatus.MESSAGE_ILLEGAL)]
            else:
                placed = [PutResult(PutStatus.PUT_OK, len(self.entries), len(entry) + n) for n in range(len(group))]
                entry += [bytes(each.body).decode() for each in group]
            results.append(placed[0] if isinstance(item, PendingRecord) else placed)
        if not entry:
            return -1, results
        self.entries.append(entry)
        return len(self.entries), results


class Node(SetNode):
    """Appends at once; fates are told by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal: Refusal | None = None
        self.fates: list[OnFate] = []

    def propose(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        if self.refusal is not None:
            return self.refusal
        if append(1, 0) < 0:
            return Refusal.LOG_REFUSES
        self.fates.append(on_fate)
        return None


class Setting:
    def __init__(self) -> None:
        self.log, self.node, self.role = Log(), Node(), SetRole()
        self.role.set(1, "n1")
        self.refuses: str | None = None
        self.metadata_taken = True
        self.answers: list[tuple[str, str, int]] = []
        self.replication = RaftReplication(
            self.log,
            self.role,
            asyncio.get_running_loop(),
            writable=lambda: self.refuses,
            flush_metadata=lambda: self.metadata_taken,
            pending_bytes_max=8 * 1024 * 1024,
        )
        self.replication.attach(self.node)
        self.role.subscribe(self.replication.role_changed)

    def send(self, name: str, body: bytes | None = None, topic: str = "T") -> None:
        made = record(name.encode() if body is None else body, topic)
        self.replication.append(
            made, lambda result, code: self.answers.append((name, result.status.name, int(code))), wait=False
        )

    def batch(self, *names: str, topic: str = "T") -> None:
        def done(results: list[PutResult], code: int) -> None:
            self.answers.append(("+".join(names), results[0].status.name, int(code)))

        self.replication.append_batch([record(name.encode(), topic) for name in names], done)

    @property
    def codes(self) -> list[int]:
        return [code for _, _, code in self.answers]


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_what_arrives_in_one_turn_is_one_entry_and_answered_when_committed() -> None:
    setting = Setting()
    setting.send("a")
    setting.batch("b", "c")
    setting.send("d")
    await turn()
    assert setting.log.entries == [["a", "b", "c", "d"]]
    assert setting.answers == []
    assert setting.replication.pending_bytes > 0
    setting.node.fates[0](Fate.COMMITTED)
    assert setting.answers == [("a", "PUT_OK", 0), ("b+c", "PUT_OK", 0), ("d", "PUT_OK", 0)]
    assert setting.replication.pending_bytes == 0


async def test_an_entry_is_split_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raftgroup, "ENTRY_BYTES", 1000)
    setting = Setting()
    for name in ("a", "b", "c"):
        setting.send(name, body=name.encode() * 300)
    setting.send("large", body=b"l" * 5000)
    await turn()
    assert [len(entry) for entry in setting.log.entries] == [2, 1, 1]
    for fate in setting.node.fates:
        fate(Fate.COMMITTED)
    assert setting.codes == [0, 0, 0, 0]


@pytest.mark.parametrize(("count", "size"), [(raftgroup.GATHERED_MAX, 1), (2, raftgroup.ENTRY_BYTES // 2)])
async def test_who_sends_much_waits_while_an_entry_is_gathered_that_none_may_follow(count: int, size: int) -> None:
    setting = Setting()
    for _ in range(IN_FLIGHT_ENTRIES):
        setting.send("x")
        await turn()
    for _ in range(count):
        assert not setting.replication.congested
        setting.send("more", b"x" * size)
    assert setting.replication.congested
    setting.node.fates[0](Fate.COMMITTED)
    await turn()
    assert not setting.replication.congested


async def test_a_flood_that_never_rests_is_gathered_no_further_than_a_turn_can_propose() -> None:
    """As turns serve it: as long as there is room, before each turn's end, while entries are committed one by one."""
    setting = Setting()
    for _ in range(IN_FLIGHT_ENTRIES):
        setting.send("x")
        await turn()
    body = b"x" * (raftgroup.ENTRY_BYTES // 8)
    for number in range(40):
        setting.node.fates[number](Fate.COMMITTED)
        served = 0
        while not setting.replication.congested and served < 40:
            setting.send("more", body)
            served += 1
        await turn()
    assert setting.replication.pending_bytes < (IN_FLIGHT_ENTRIES + 3) * raftgroup.ENTRY_BYTES
    assert set(setting.codes) == {0}


async def test_under_load_arrivals_gather_until_an_entry_is_committed() -> None:
    setting = Setting()
    for number in range(IN_FLIGHT_ENTRIES + 3):
        setting.send(str(number))
        await turn()
    assert len(setting.log.entries) == IN_FLIGHT_ENTRIES
    setting.node.fates[0](Fate.COMMITTED)
    await turn()
    assert setting.log.entries[-1] == ["4", "5", "6"]


async def test_R8_what_was_overwritten_or_not_appended_may_go_elsewhere_and_nothing_else() -> None:
    setting = Setting()
    setting.send("lost")
    await turn()
    setting.send("unknown")
    await turn()
    setting.node.fates[0](Fate.OVERWRITTEN)
    setting.node.fates[1](Fate.UNKNOWN)
    assert setting.answers == [
        ("lost", "SERVICE_NOT_AVAILABLE", ResponseCode.NOT_LEADER_FOR_QUEUE),
        ("unknown", "UNKNOWN_ERROR", ResponseCode.SYSTEM_ERROR),
    ]
    setting.node.refusal = Refusal.NOT_LEADER
    setting.send("refused")
    await turn()
    assert setting.answers[-1] == ("refused", "SERVICE_NOT_AVAILABLE", ResponseCode.NOT_LEADER_FOR_QUEUE)


async def test_a_deposed_leader_sends_its_turn_elsewhere_and_waits_for_the_fate_of_its_entries() -> None:
    setting = Setting()
    setting.send("appended")
    await turn()
    setting.send("gathered")
    setting.role.set(2, "n0")
    assert setting.answers == [("gathered", "SERVICE_NOT_AVAILABLE", ResponseCode.NOT_LEADER_FOR_QUEUE)]
    setting.send("late")
    assert setting.codes == [ResponseCode.NOT_LEADER_FOR_QUEUE] * 2
    await turn()
    setting.node.fates[0](Fate.COMMITTED)
    assert setting.answers[-1] == ("appended", "PUT_OK", 0)


async def test_refusals_that_another_member_would_not_help_with() -> None:
    setting = Setting()
    setting.node.refusal = Refusal.BUSY
    setting.send("busy")
    await turn()
    setting.node.refusal = Refusal.LOG_REFUSES
    setting.send("full")
    await turn()
    setting.refuses = "the disk is full"
    setting.send("known full")
    assert setting.codes == [
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
    ]


async def test_records_are_refused_one_by_one_and_an_entry_of_none_is_none() -> None:
    setting = Setting()
    setting.send("fine")
    setting.send("not", topic="bad")
    await turn()
    setting.node.fates[0](Fate.COMMITTED)
    assert [status for _, status, _ in setting.answers] == ["PUT_OK", "MESSAGE_ILLEGAL"]
    setting.batch("x", "y", topic="bad")
    await turn()
    assert setting.answers[-1] == ("x+y", "MESSAGE_ILLEGAL", ResponseCode.MESSAGE_ILLEGAL)
    assert setting.replication.pending_bytes == 0


async def test_what_is_pending_is_bounded() -> None:
    setting = Setting()
    for number in range(9):
        setting.send(str(number), body=b"x" * 1024 * 1024)
        await turn()
    assert setting.answers == [("8", "OS_PAGE_CACHE_BUSY", ResponseCode.SYSTEM_BUSY)]


async def test_metadata_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raftgroup, "RETRY_SECONDS", 0.001)
    setting = Setting()
    setting.metadata_taken = False
    setting.send("a")
    await turn()
    assert setting.log.entries == []
    setting.metadata_taken = True
    while not setting.log.entries:
        await asyncio.sleep(0.001)
    assert setting.log.entries == [["a"]]


async def test_drain_waits_for_every_fate() -> None:
    setting = Setting()
    setting.send("a")
    await turn()
    assert not await setting.replication.drain(0.01)
    draining = asyncio.create_task(setting.replication.drain(5.0))
    await turn()
    setting.send("late")
    assert setting.codes == [ResponseCode.SERVICE_NOT_AVAILABLE]
    setting.node.fates[0](Fate.COMMITTED)
    assert await draining


async def test_an_answer_that_fails_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting()

    def fails(_result: PutResult, _code: int) -> None:
        raise RuntimeError("gone")

    setting.replication.append(record(), fails)
    setting.send("b")
    await turn()
    setting.node.fates[0](Fate.COMMITTED)
    assert setting.codes == [0]
    assert "could not be delivered" in caplog.text


async def test_R8_what_was_gathered_past_its_deadline_is_not_appended() -> None:
    setting = Setting()
    loop = asyncio.get_running_loop()
    for number in range(IN_FLIGHT_ENTRIES):
        setting.send(f"first {number}")
        await turn()
    for name, left in (("late", -0.001), ("in time", 60.0), ("whenever", 0.0)):
        until = loop.time() + left if left else 0.0
        setting.replication.append(
            record(name.encode()),
            lambda result, code, name=name: setting.answers.append((name, result.status.name, int(code))),  # type: ignore[misc]  # a bound default
            until=until,
        )
    await turn()
    assert setting.answers == [], "gathered: too many are on their way"
    setting.node.fates[0](Fate.COMMITTED)
    await turn()
    assert setting.answers[1:] == [("late", "SERVICE_NOT_AVAILABLE", ResponseCode.SERVICE_NOT_AVAILABLE)]
    assert setting.log.entries[IN_FLIGHT_ENTRIES:] == [["in time", "whenever"]]
    for fate in setting.node.fates[1:]:
        fate(Fate.COMMITTED)
    assert setting.replication.pending_bytes == 0


async def test_what_waits_for_metadata_that_finds_no_room_is_refused() -> None:
    setting = Setting()
    setting.send("a")
    setting.metadata_taken, setting.refuses = False, "the disk is full"
    await turn()
    assert setting.codes == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert setting.replication.pending_bytes == 0
    setting.metadata_taken, setting.refuses = True, None
    setting.send("b")
    await turn()
    assert setting.log.entries == [["b"]]
