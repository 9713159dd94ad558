"""agreed_locks.py: a lock is told when it is in the log (or on the disk), and outlives whoever granted it."""

import asyncio
from pathlib import Path

import pytest

import broker.metadata.agreed_locks
from broker.metadata.agreed_locks import AgreedLocks
from broker.metadata.meta_entry import decode, encode
from broker.metadata.operations import LOST, LocalMeta
from broker.metadata.table_file import MetadataError
from broker.queue_locks import LOCK_SECONDS, TRUSTED_SECONDS
from raft.protocol.types import Fate
from remoting.bodies.registry import MessageQueue
from remoting.errors import CommandError
from runtime.clock import ManualClock
from tests.parts.meta_parts import GROUP, Member, leader

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
NAME = "queueLocks.json"


def granted(member: Member, client: str, *queues: MessageQueue) -> list[MessageQueue]:
    """Lock queues and have that agreed upon."""
    held, _unsaved = member.locks.lock("G", client, queues)
    member.settle()
    return held


def follower(folder: Path, entries: list[bytes], clock: ManualClock) -> Member:
    member = Member(folder, clock)
    for payload in entries:
        member.meta.apply(member.meta.index + 1, payload)
    return member


def test_a_grant_is_an_entry_and_a_renewal_is_none(tmp_path: Path) -> None:
    member = leader(tmp_path)
    assert member.locks.lock("G", "a", [Q0, Q1, Q0]) == ([Q0, Q1], True)
    member.turn()
    assert len(member.proposed) == 1
    assert member.locks.lock("G", "a", [Q0]) == ([Q0], True), "it waits as long as the first is on its way"
    member.settle()
    assert member.locks.lock("G", "a", [Q0, Q1]) == ([Q0, Q1], False)
    assert member.locks.lock("G", "b", [Q0]) == ([], False)
    member.turn()
    assert member.proposed == []


def test_all_grants_of_a_turn_are_one_entry(tmp_path: Path) -> None:
    member = leader(tmp_path)
    for number in range(50):
        member.locks.lock("G", f"c{number}", [MessageQueue("T", "b", number)])
    member.turn()
    assert len(member.proposed) == 1


def test_R14_a_new_leader_knows_the_holders_and_lets_others_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    old = Member(tmp_path / "old", clock)
    old.role.become(2)
    entries = old.settle()
    old.locks.lock("G", "a", [Q0])
    entries += old.settle()
    new = follower(tmp_path / "new", entries, clock)
    clock.advance(300)
    new.role.become(7)
    new.settle()
    assert new.locks.lock("G", "b", [Q0, Q1]) == ([Q1], True)
    assert new.locks.lock("G", "a", [Q0]) == ([Q0], False), "the holder is renewed at once, without an entry"
    clock.advance(LOCK_SECONDS - 1)
    assert new.locks.lock("G", "b", [Q0])[0] == []


def test_R14_a_holder_that_does_not_come_to_the_new_leader_loses_its_queue_when_it_trusts_it_no_more(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    member = leader(tmp_path, clock)
    granted(member, "a", Q0)
    member.role.become(None)
    member.role.become(9)
    member.settle()
    clock.advance(TRUSTED_SECONDS - 0.1)
    assert granted(member, "b", Q0) == []
    clock.advance(0.1)
    assert granted(member, "b", Q0) == [Q0]
    assert member.state()[NAME]["lockTable"] == {"G": {"b": [["T", "b", 0]]}}


def test_what_is_given_back_is_free_everywhere(tmp_path: Path) -> None:
    member = leader(tmp_path)
    granted(member, "a", Q0, Q1)
    granted(member, "c", MessageQueue("T", "b", 2))
    assert member.locks.unlock("G", "b", [Q0]) is False, "another one's"
    assert member.locks.unlock("G", "a", [Q0]) is True
    # In the order of the log: whoever learns of this grant learns of the unlock before it.
    assert member.locks.lock("G", "b", [Q0]) == ([Q0], True)
    member.settle()
    member.locks.release("G", "a")
    member.settle()
    assert member.state()[NAME]["lockTable"] == {"G": {"b": [["T", "b", 0]], "c": [["T", "b", 2]]}}
    assert len(member.locks) == 2


def test_a_queue_that_was_given_back_and_taken_again_is_not_told_before_it_is_agreed_upon(tmp_path: Path) -> None:
    member = leader(tmp_path)
    granted(member, "a", Q0)
    member.locks.unlock("G", "a", [Q0])
    # What is applied says still that it has it: a crash now would keep the unlock and lose the lock.
    assert member.locks.lock("G", "a", [Q0]) == ([Q0], True)


def test_locks_that_ran_out_leave_the_log(tmp_path: Path) -> None:
    clock = ManualClock()
    member = leader(tmp_path, clock)
    granted(member, "a", Q0, Q1)
    clock.advance(LOCK_SECONDS / 2)
    member.locks.lock("G", "a", [Q1])
    clock.advance(LOCK_SECONDS / 2)
    member.locks.sweep()
    member.settle()
    assert member.state()[NAME]["lockTable"] == {"G": {"a": [["T", "b", 1]]}}
    member.role.become(None)
    clock.advance(LOCK_SECONDS)
    member.locks.sweep()
    assert member.proposed == [], "only a leader decides that"


async def test_R14_what_the_lost_lead_leaves_in_doubt_is_told_to_nobody(tmp_path: Path) -> None:
    member = leader(tmp_path)
    assert member.locks.lock("G", "a", [Q0]) == ([Q0], True)
    saving = asyncio.ensure_future(member.locks.save())
    await asyncio.sleep(0)
    member.turn()
    payload, fate = member.proposed.pop()
    fate(Fate.UNKNOWN)
    with pytest.raises(CommandError, match=LOST[:40]):
        await saving
    member.role.become(None)
    member.meta.apply(member.meta.index + 1, payload)
    member.role.become(9)
    assert member.locks.lock("G", "b", [Q0]) == ([], False), "the group kept it after all"


def test_a_follower_that_sees_a_client_leave_changes_nothing(tmp_path: Path) -> None:
    member = leader(tmp_path)
    granted(member, "a", Q0)
    member.role.become(None)
    member.locks.release("G", "a")
    assert member.proposed == []
    member.role.become(5)
    member.settle()
    assert granted(member, "b", Q0) == []


def test_a_broker_that_stops_gives_nothing_back_for_its_clients(tmp_path: Path) -> None:
    member = leader(tmp_path)
    granted(member, "a", Q0)
    member.locks.keep()
    member.locks.release("G", "a")
    assert granted(member, "b", Q0) == []


def test_long_lists_are_several_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.metadata.agreed_locks, "ROW_QUEUES_MAX", 2)
    member = leader(tmp_path)
    member.locks.lock("G", "a", [MessageQueue("T", "b", number) for number in range(5)])
    member.turn()
    ((payload, _fate),) = member.proposed
    ((_verb, _table, _version, rows),) = decode(payload)
    assert [len(row[2]) for row in rows] == [2, 2, 1]


def test_what_is_refused_was_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = leader(tmp_path)
    monkeypatch.setattr("broker.metadata.replicated.PENDING_BYTES_MAX", 10)
    with pytest.raises(CommandError, match="not yet agreed upon"):
        member.locks.lock("G", "a", [Q0])
    assert len(member.locks) == 0
    monkeypatch.undo()
    assert granted(member, "b", Q0) == [Q0]
    monkeypatch.setattr("broker.metadata.replicated.PENDING_BYTES_MAX", 10)
    # A client that left: its locks run out by themselves.
    member.locks.release("G", "b")
    assert member.proposed == []


def test_an_operation_of_a_later_version_stops_a_member(tmp_path: Path) -> None:
    member = leader(tmp_path)
    with pytest.raises(MetadataError, match="upgrade this member"):
        member.locks.apply([99, 7, [1, 1, 1]], own=False)


def test_an_entry_that_was_not_applied_is_in_no_file(tmp_path: Path) -> None:
    """The member ends, and writes its files on the way out: upgraded, it has the entry still to apply."""
    member = leader(tmp_path)
    before = member.meta.index
    with pytest.raises(MetadataError, match="upgrade this member"):
        member.meta.apply(before + 1, encode([[99, 7, [1, 1, 1]]]))
    assert member.meta.index == before


class TestMembersOfAnOlderVersion:
    def test_the_log_holds_no_locks_as_long_as_somebody_cannot_take_them(self, tmp_path: Path) -> None:
        clock = ManualClock()
        member = Member(tmp_path, clock)
        member.able = False
        member.role.become(2)
        member.settle()
        assert member.locks.lock("G", "a", [Q0]) == ([Q0], False)
        assert member.locks.unlock("G", "a", [Q0]) is False
        member.turn()
        assert member.proposed == []
        assert member.state()[NAME]["complete"] is False

    def test_R14_without_the_log_a_new_leader_grants_nothing_for_a_while(self, tmp_path: Path) -> None:
        clock = ManualClock()
        member = Member(tmp_path, clock)
        member.able = False
        member.role.become(2)
        member.settle()
        member.role.become(None)
        member.role.become(5)
        member.settle()
        assert member.locks.lock("G", "a", [Q0]) == ([], False)
        assert member.locks.unknown("G", [Q0])
        clock.advance(TRUSTED_SECONDS)
        assert not member.locks.unknown("G", [Q0])
        assert member.locks.lock("G", "a", [Q0]) == ([Q0], False)

    def test_it_begins_with_all_that_was_granted_when_everybody_can(self, tmp_path: Path) -> None:
        clock = ManualClock()
        member = Member(tmp_path / "a", clock)
        member.able = False
        member.role.become(2)
        entries = member.settle()
        member.locks.lock("G", "a", [Q0])
        member.able = True
        assert member.locks.lock("G", "b", [Q0, Q1]) == ([Q1], True)
        entries += member.settle()
        other = follower(tmp_path / "b", entries, clock)
        assert other.state()[NAME]["lockTable"] == {"G": {"a": [["T", "b", 0]], "b": [["T", "b", 1]]}}
        assert other.state()[NAME]["complete"] is True
        other.role.become(9)
        other.able = False
        assert granted(other, "b", Q0) == [], "it never goes back"

    def test_R14_a_begin_that_was_given_up_and_agreed_upon_all_the_same_makes_the_leader_wait(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock()
        member = Member(tmp_path, clock)
        member.role.become(2)
        member.turn()
        (payload, fate), *_ = member.proposed
        member.able = False
        fate(Fate.OVERWRITTEN)
        assert member.locks.lock("G", "a", [Q0]) == ([Q0], False)
        member.meta.apply(member.meta.index + 1, payload)
        assert member.locks.lock("G", "b", [Q0]) == ([], False)
        assert member.locks.unknown("G", [Q0])

    def test_R3_a_member_without_the_file_starts_and_knows_that_it_does_not_know(self, tmp_path: Path) -> None:
        clock = ManualClock()
        member = leader(tmp_path, clock)
        granted(member, "a", Q0)
        member.write()
        for name in (NAME, NAME + ".bak"):
            (tmp_path / name).unlink(missing_ok=True)
        again = Member(tmp_path, clock)
        assert again.meta.group == GROUP.hex()
        assert again.meta.oldest_stamp() == 0, "nothing of the log is deleted before it is written"
        again.role.become(9)
        again.settle()
        assert again.locks.lock("G", "b", [Q0]) == ([], False)
        clock.advance(TRUSTED_SECONDS)
        assert granted(again, "b", Q0) == [Q0]
        assert again.state()[NAME]["complete"] is True


class TestABrokerWithoutAGroup:
    async def test_a_lock_is_on_the_disk_before_it_is_told(self, tmp_path: Path) -> None:
        clock = ManualClock()
        locks = AgreedLocks(tmp_path / NAME, clock, LocalMeta())
        assert locks.lock("G", "a", [Q0]) == ([Q0], True)
        await locks.save()
        assert locks.lock("G", "a", [Q0]) == ([Q0], False)
        # Killed: nothing is closed.
        again = AgreedLocks(tmp_path / NAME, clock, LocalMeta(), fresh=False)
        assert again.lock("G", "b", [Q0, Q1]) == ([Q1], True)
        assert again.lock("G", "a", [Q0])[0] == [Q0]
        await again.close()
        await locks.close()

    async def test_R14_a_broker_that_does_not_know_what_it_granted_waits(self, tmp_path: Path) -> None:
        clock = ManualClock()
        locks = AgreedLocks(tmp_path / NAME, clock, LocalMeta(), fresh=False)
        assert locks.unknown("G", [Q0])
        assert locks.lock("G", "a", [Q0])[0] == []
        await locks.close()
        # Nor does the next life know, that begins before the time is over.
        locks = AgreedLocks(tmp_path / NAME, clock, LocalMeta(), fresh=False)
        assert locks.unknown("G", [Q0])
        clock.advance(TRUSTED_SECONDS)
        assert not locks.unknown("G", [Q0])
        locks.sweep()
        await locks.close()
        locks = AgreedLocks(tmp_path / NAME, clock, LocalMeta(), fresh=False)
        assert not locks.unknown("G", [Q0])
        await locks.close()

    async def test_R14_what_a_slave_knows_is_not_believed_when_it_is_promoted(self, tmp_path: Path) -> None:
        clock = ManualClock()
        locks = AgreedLocks(tmp_path / NAME, clock, LocalMeta())
        locks.lock("G", "a", [Q0])
        await locks.close()
        slave = AgreedLocks(tmp_path / NAME, clock, LocalMeta(leads=False), fresh=False)
        assert not slave.unknown("G", [Q1]), "it grants while it acts for its master, long after that one died"
        slave.sweep()
        await slave.close()
        promoted = AgreedLocks(tmp_path / NAME, clock, LocalMeta(), fresh=False)
        assert promoted.unknown("G", [Q1])
        await promoted.close()

    async def test_R14_a_master_that_was_fenced_waits(self, tmp_path: Path) -> None:
        locks = AgreedLocks(tmp_path / NAME, ManualClock(), LocalMeta())
        locks.lock("G", "a", [Q0])
        locks.regained()
        assert locks.lock("G", "b", [Q0, Q1])[0] == []
        assert locks.lock("G", "a", [Q0, Q1])[0] == [Q0]
        assert locks.unknown("G", [Q0, Q1])
        await locks.close()

    async def test_a_group_begins_with_the_locks_of_the_broker_that_it_was(self, tmp_path: Path) -> None:
        clock = ManualClock()
        locks = AgreedLocks(tmp_path / NAME, clock, LocalMeta())
        locks.lock("G", "a", [Q0])
        await locks.close()
        member = leader(tmp_path, clock, term=5)
        assert member.locks.lock("G", "b", [Q0, Q1]) == ([Q1], True)
        assert member.state()[NAME]["complete"] is True

    async def test_a_damaged_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / NAME).write_bytes(b'{"lockTable":{"G":{"a":[["T","b"]]}}}')
        with pytest.raises(MetadataError, match="not a table of queue locks"):
            AgreedLocks(tmp_path / NAME, ManualClock(), LocalMeta())


def classic(folder: Path, clock: ManualClock, *, leads: bool) -> AgreedLocks:
    return AgreedLocks(folder / NAME, clock, LocalMeta(leads=leads), fresh=False)


async def test_R14_a_promoted_slave_begins_with_the_locks_of_the_master_that_lived(tmp_path: Path) -> None:
    clock = ManualClock()
    master = AgreedLocks(tmp_path / "master.json", clock, LocalMeta(), fresh=True)
    assert master.lock("G", "a", [Q0])[0] == [Q0]
    slave = classic(tmp_path, clock, leads=False)
    assert await slave.take_over(master.handed_over())
    promoted = classic(tmp_path, clock, leads=True)
    assert promoted.lock("G", "b", [Q0, Q1])[0] == [Q1]
    assert promoted.lock("G", "a", [Q0])[0] == [Q0], "who holds it goes on at once"


@pytest.mark.parametrize("handed", [b"", b"{", b'{"complete":false,"lockTable":{"G":{"a":[["T","b",0]]}}}'])
async def test_R14_one_that_was_not_handed_all_locks_grants_none_for_a_while(tmp_path: Path, handed: bytes) -> None:
    """Also a master that was deposed: its own table is of a time before somebody else granted."""
    clock = ManualClock()
    before = AgreedLocks(tmp_path / NAME, clock, LocalMeta(), fresh=True)
    assert before.lock("G", "a", [Q0])[0] == [Q0]
    assert not await before.take_over(handed)
    promoted = classic(tmp_path, clock, leads=True)
    assert promoted.lock("G", "b", [Q1])[0] == []
    clock.advance(TRUSTED_SECONDS)
    assert promoted.lock("G", "b", [Q0, Q1])[0] == [Q0, Q1]


async def test_R14_a_master_that_does_not_know_all_locks_hands_over_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    master = classic(tmp_path, clock, leads=True)
    slave = AgreedLocks(tmp_path / "slave.json", clock, LocalMeta(leads=False), fresh=False)
    assert not await slave.take_over(master.handed_over())
    clock.advance(TRUSTED_SECONDS)
    assert await slave.take_over(master.handed_over())
    monkeypatch.setattr(broker.metadata.agreed_locks, "HANDED_BYTES_MAX", 10)
    assert master.handed_over() == b""
