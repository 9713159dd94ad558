"""Queue locks of a group (R14): whoever leads next, never do two clients trust that they hold one queue."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.metadata.agreed_locks import AgreedLocks
from broker.queue_locks import TRUSTED_SECONDS, Holders, LockTable
from raft.protocol.types import Fate
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from runtime.clock import ManualClock
from tests.parts.meta_parts import Member

MEMBERS = 3
CLIENTS = st.sampled_from("abc")
QUEUES = st.lists(st.builds(MessageQueue, st.just("T"), st.just("b"), st.integers(0, 1)), min_size=1, max_size=2)


class LockedGroup(RuleBasedStateMachine):
    """`log` are the committed entries from index 2 on. A client trusts a lock for 30 s from when it asked for it.

    A leader is asked only while it has its lease, so no two are asked in one step; what it proposed may still be
    agreed upon when another one leads.
    """

    @initialize(able=st.booleans())
    def begin(self, able: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.log: list[bytes] = []
        self.able = able
        self.members = [self.member(number) for number in range(MEMBERS)]
        self.term = 1
        self.leader = self.members[0]
        # Counts what makes answers on their way to a client worth nothing.
        self.stays = dict.fromkeys("abc", 0)
        # Until when a client trusts that it holds a queue.
        self.trusts: dict[tuple[str, MessageQueue], float] = {}
        self.elect(0, 0)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def member(self, number: int) -> Member:
        member = Member(self.folder / str(number), self.clock)
        member.able = self.able
        return member

    def catch_up(self, member: Member, upto: int) -> None:
        for index in range(member.meta.index + 1, upto + 1):
            member.meta.apply(index, self.log[index - 2])

    @property
    def last(self) -> int:
        return len(self.log) + 1

    @rule(number=st.integers(0, MEMBERS - 1), survive=st.integers(0, 5))
    def elect(self, number: int, survive: int) -> None:
        """Another leader; of what the old one had appended, the first `survive` entries are kept."""
        old, self.leader = self.leader, self.members[number]
        if old.role.leads:
            old.meta.flush()
        appended, old.proposed = old.proposed, []
        old.role.become(None)
        for position, (payload, fate) in enumerate(appended):
            if position < survive:
                self.log.append(payload)
            fate(Fate.UNKNOWN)
        self.term += 1
        self.catch_up(self.leader, self.last)
        self.leader.timers.clear()
        self.leader.role.become(self.term)

    @rule(number=st.integers(0, MEMBERS - 1), upto=st.integers(1, 5))
    def follow(self, number: int, upto: int) -> None:
        self.catch_up(self.members[number], min(self.last, self.members[number].meta.index + upto))

    @rule(entries=st.integers(1, 5))
    def commit(self, entries: int) -> None:
        self.leader.turn()
        for payload, fate in self.leader.proposed[:entries]:
            self.log.append(payload)
            self.leader.meta.apply(self.last, payload)
            fate(Fate.COMMITTED)
        del self.leader.proposed[:entries]

    @rule(seconds=st.sampled_from([1, 10, TRUSTED_SECONDS - 1, TRUSTED_SECONDS + 1, 61]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.leader.locks.sweep()

    @rule()
    def upgraded(self) -> None:
        """Every member knows the operations of locks from here on."""
        self.able = True
        for member in self.members:
            member.able = True

    @rule(client=CLIENTS, queues=QUEUES)
    def lock(self, client: str, queues: list[MessageQueue]) -> None:
        asked = self.clock.monotonic()
        held, unsaved = self.leader.locks.lock("G", client, queues)
        if not unsaved:
            self.trust(client, held, asked)
            return
        stay, meta = self.stays[client], self.leader.meta

        def told(code: int) -> None:
            if code == ResponseCode.SUCCESS and stay == self.stays[client]:
                self.trust(client, held, asked)

        # As save() waits.
        [*meta._flying, *meta._gathered][-1].dones.append(told)

    def trust(self, client: str, held: list[MessageQueue], asked: float) -> None:
        for queue in held:
            self.trusts[client, queue] = asked + TRUSTED_SECONDS

    @rule(client=CLIENTS, queues=QUEUES)
    def unlock(self, client: str, queues: list[MessageQueue]) -> None:
        """A client gives queues back, and believes no answer any more that is on its way."""
        self.distrust(client, queues)
        self.leader.locks.unlock("G", client, queues)

    @rule(client=CLIENTS)
    def leave(self, client: str) -> None:
        self.distrust(client, [MessageQueue("T", "b", number) for number in range(2)])
        for member in self.members:
            member.locks.release("G", client)

    def distrust(self, client: str, queues: list[MessageQueue]) -> None:
        self.stays[client] += 1
        for queue in queues:
            self.trusts.pop((client, queue), None)

    @rule(number=st.integers(0, MEMBERS - 1))
    def write(self, number: int) -> None:
        self.members[number].write()

    @rule(number=st.integers(0, MEMBERS - 1), more=st.integers(0, 9))
    def restart(self, number: int, more: int) -> None:
        """Start a member again from its files; the log is replayed some way only, the rest follows."""
        if self.members[number] is self.leader:
            self.elect((number + 1) % MEMBERS, 2)
        self.members[number] = new = self.member(number)
        self.catch_up(new, min(self.last, new.meta.index + more))

    @invariant()
    def nobody_trusts_what_another_one_trusts(self) -> None:
        now = self.clock.monotonic() if hasattr(self, "clock") else 0.0
        holders: dict[MessageQueue, str] = {}
        for (client, queue), until in getattr(self, "trusts", {}).items():
            if now < until:
                assert holders.setdefault(queue, client) == client, f"{queue} has two holders"


LockedGroup.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestR14NoQueueHasTwoHolders = LockedGroup.TestCase


Q0 = MessageQueue("T", "b", 0)


def _schedule() -> None:
    """A leader grants and is replaced, once with and once without what it had proposed, before and after BEGIN."""
    for able, survive in ((True, 5), (True, 0), (False, 0)):
        group = LockedGroup()
        try:
            group.begin(able)
            group.commit(5)
            group.lock("a", [Q0])
            group.upgraded()
            if survive:
                group.commit(5)
            group.elect(1, survive)
            group.lock("b", [Q0])
            group.commit(5)
            group.nobody_trusts_what_another_one_trusts()
            group.wait(TRUSTED_SECONDS - 1)
            group.lock("b", [Q0])
            group.commit(5)
            group.nobody_trusts_what_another_one_trusts()
        finally:
            group.teardown()


def test_the_schedule_that_catches_planted_bugs_is_survived() -> None:
    _schedule()


def _caught() -> None:
    with pytest.raises(AssertionError, match="has two holders"):
        _schedule()


def test_R14_planted_a_new_leader_that_lets_nobody_be_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LockTable.inherit

    def inherit(self: LockTable, holders: Holders) -> None:
        del holders
        honest(self, {})

    monkeypatch.setattr(LockTable, "inherit", inherit)
    _caught()


def test_R14_planted_a_grant_that_is_told_before_it_is_agreed_upon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = AgreedLocks.lock
    monkeypatch.setattr(AgreedLocks, "lock", lambda *given: (honest(*given)[0], False))
    _caught()


def test_R14_planted_a_leader_that_knows_nothing_and_grants_at_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockTable, "may_grant", lambda _self: True)
    _caught()
