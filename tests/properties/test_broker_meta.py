"""Metadata of a group: whatever happens in whatever order, tables are a function of the log, and offsets hold.

A few members over one log. The test is the log: it decides what is committed, what is lost with a leader, who leads
next, who writes its files and who starts again from them.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raft.protocol.types import Fate
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from runtime.clock import ManualClock
from tests.parts.meta_parts import Member

MEMBERS = 3
NAMES = st.sampled_from(["A", "B", "C"])
GROUPS = st.sampled_from(["g", "h"])
QUEUES = st.integers(0, 1)
OFFSETS = st.integers(0, 40)
END = 30


class Someone:
    def __init__(self) -> None:
        self.closed = False


class Group(RuleBasedStateMachine):
    """`log` are the committed entries from index 2 on; each member has applied as many as its `meta.index` says."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.log: list[bytes] = []
        self.members = [self.member(number) for number in range(MEMBERS)]
        self.clients = [Someone(), Someone()]
        self.term = 1
        self.leader = self.members[0]
        # The last answer about each offset, until a reset, a seek or a removal makes it meaningless.
        self.told: dict[tuple[str, str, int], int] = {}
        self.elect(0, 0)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def member(self, number: int) -> Member:
        return Member(self.folder / str(number), self.clock)

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
        leader = self.leader
        for payload, fate in leader.proposed[:entries]:
            self.log.append(payload)
            leader.meta.apply(self.last, payload)
            fate(Fate.COMMITTED)
        del leader.proposed[:entries]

    @rule()
    def turn(self) -> None:
        self.leader.turn()

    @rule()
    def wait(self) -> None:
        self.clock.advance(1)
        self.leader.wait()

    @rule(number=st.integers(0, MEMBERS - 1), tables=st.sets(st.integers(0, 4)))
    def write(self, number: int, tables: set[int]) -> None:
        member = self.members[number]
        for table in tables:
            member.tables[table].file.write_now()

    @rule(number=st.integers(0, MEMBERS - 1), more=st.integers(0, 9))
    def restart(self, number: int, more: int) -> None:
        """Start a member again from its files; the log is replayed some way only, the rest follows."""
        if self.members[number] is self.leader:
            self.elect((number + 1) % MEMBERS, 2)
        self.members[number] = new = self.member(number)
        self.catch_up(new, min(self.last, new.meta.index + more))

    @rule(name=NAMES, queues=st.integers(1, 8))
    def create(self, name: str, queues: int) -> None:
        self.leader.topics.create_for_send(name, "TBW102", queues)

    @rule(name=NAMES, queues=st.integers(1, 8))
    def change(self, name: str, queues: int) -> None:
        self.leader.topics.update(TopicConfig(name, queues, queues), TopicConfig("with-" + name))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.leader.offsets.remove_topic(name)
        self.leader.groups.forget_topic(name)
        self.leader.topics.delete(name)
        self.forget(topic=name)

    @rule(group=GROUPS, name=NAMES, readable=st.booleans())
    def group(self, group: str, name: str, readable: bool) -> None:
        self.leader.groups.find(group)
        self.leader.groups.set_readable(group, name, readable)

    @rule(group=GROUPS, tries=st.integers(0, 3))
    def change_group(self, group: str, tries: int) -> None:
        self.leader.groups.update(SubscriptionGroupConfig(group, retryMaxTimes=tries))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.leader.offsets.remove_group(group)
        self.leader.groups.delete(group)
        self.forget(group=group)

    @rule(group=GROUPS, name=NAMES, queue=QUEUES, offset=OFFSETS, client=st.integers(0, 1))
    def consume(self, group: str, name: str, queue: int, offset: int, client: int) -> None:
        """Commit, but never a seek: nobody goes back by intention."""
        leader = self.leader.offsets
        newest = leader._cycle.newest((f"{name}@{group}", queue)) if leader._cycle is not None else -1
        if offset >= max(newest, leader.query(group, name, queue)) and not leader.pending(group, name, queue):
            leader.commit(group, name, queue, offset, END, self.clients[client])

    @rule(group=GROUPS, name=NAMES, queue=QUEUES, offset=st.integers(0, END))
    def seek(self, group: str, name: str, queue: int, offset: int) -> None:
        self.leader.offsets.commit(group, name, queue, offset, END, None)
        self.told.pop((name, group, queue), None)

    @rule(group=GROUPS, name=NAMES, queue=QUEUES, offset=st.integers(0, END), told=st.booleans())
    def reset(self, group: str, name: str, queue: int, offset: int, told: bool) -> None:
        if told:
            self.leader.offsets.reset(group, name, queue, offset)
        else:
            self.leader.offsets.assign(group, name, queue, offset)
        self.told.pop((name, group, queue), None)

    @rule(group=GROUPS, name=NAMES, queue=QUEUES)
    def pull(self, group: str, name: str, queue: int) -> None:
        self.leader.offsets.take_reset(group, name, queue)

    @rule(source=GROUPS, copy=GROUPS, name=NAMES)
    def clone(self, source: str, copy: str, name: str) -> None:
        self.leader.offsets.clone(source, copy, name)
        self.forget(group=copy)

    @rule(group=GROUPS, name=NAMES, queue=QUEUES)
    def ask(self, group: str, name: str, queue: int) -> None:
        """Query: the answer must not be lower than the last one."""
        offsets, place = self.leader.offsets, (name, group, queue)

        def answer(_code: int = 0) -> None:
            offset = offsets.query(group, name, queue)
            assert offset >= self.told.get(place, -1), f"{place} went back to {offset}"
            self.told[place] = offset

        if not offsets.pending(group, name, queue):
            answer()

    @rule(level=st.integers(1, 3), offset=OFFSETS)
    def deliver(self, level: int, offset: int) -> None:
        self.leader.reached[level] = max(offset, self.leader.reached.get(level, 0))
        self.leader.delay.note()

    @rule(name=NAMES, queue=QUEUES, offset=OFFSETS, start=st.integers(0, 10_000))
    def expire(self, name: str, queue: int, offset: int, start: int) -> None:
        self.leader.starts.move(start, {(name, queue): offset})

    def forget(self, topic: str = "", group: str = "") -> None:
        self.told = {place: at for place, at in self.told.items() if topic != place[0] and group != place[1]}

    @invariant()
    def offsets_lie_within_the_queues(self) -> None:
        for member in getattr(self, "members", []):
            assert all(offset <= END for queues in member.offsets._table.values() for offset in queues.values())

    @invariant()
    def the_leader_shows_what_will_be_applied(self) -> None:
        leader = getattr(self, "leader", None)
        if leader is not None and not leader.meta._flying and not leader.meta._gathered:
            state = leader.state()
            for name, shown in leader.shown().items():
                assert shown == state[name]

    @invariant()
    def members_at_the_same_entry_are_equal(self) -> None:
        at: dict[int, dict[str, object]] = {}
        for member in getattr(self, "members", []):
            # A member in the middle of a replay has tables that are ahead of their entry.
            if member.meta.index > max(1, *[table.file.covers for table in member.tables]):
                state = member.state()
                assert at.setdefault(member.meta.index, state) == state

    @rule()
    def replay(self) -> None:
        """A new member that reads the whole log is equal to one that lived through it."""
        folder = Path(tempfile.mkdtemp())
        try:
            fresh = Member(folder, self.clock)
            self.catch_up(fresh, self.leader.meta.index)
            if fresh.meta.index > 1:
                assert fresh.state() == self.leader.state()
        finally:
            shutil.rmtree(folder)


Group.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestR3TablesAreAFunctionOfTheLog = Group.TestCase
