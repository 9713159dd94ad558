"""Planted bugs: each the product's own part with one decision taken wrongly. They live here and nowhere else."""

from collections.abc import Callable, Mapping
from typing import Any

from raft.core.bootstrap import BootstrapDecision, Move, decide
from raft.core.clocks import Clocks
from raft.core.core import Core
from raft.core.follower import Follower
from raft.core.lease import Lease
from raft.core.node import RaftNode
from raft.core.prevote import PreVote
from raft.core.votefile import VoteFile
from raft.protocol.config import GroupConfig
from raft.protocol.hello import Hello
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import Entry, Fate
from runtime.clock import SteadyClock
from store.config import StoreConfig
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from store.recovery.raft_recovery import GroupRecovery
from store.types import PendingRecord
from tests.simulation.member import Member, Parts


def with_core(core: type[Core]) -> type[Parts]:
    """Return parts whose nodes have another core."""

    class PlantedNode(RaftNode):
        core_class = core

    class PlantedParts(Parts):
        node_class = PlantedNode

    return PlantedParts


# -- acknowledging


class _EagerFollower(Follower):
    def on_disk(self) -> int:
        return self._log.last.index


class _EagerCore(Core):
    follower_class = _EagerFollower


ack_before_fsync = with_core(_EagerCore)


class _AloneCore(Core):
    def _count(self) -> None:
        assert self.config is not None
        for voter in self.config.voters:
            if voter in self.replication.peers:
                self.election.counted(voter, self.countable(), self.now())


ack_before_quorum = with_core(_AloneCore)


# -- batches


class _SplitLog:
    """A batch is made two entries."""

    def __init__(self, log: EntryLog) -> None:
        self._append = log.append_records

    def __call__(self, records: Any, term: int, commit: int) -> tuple[int, list[Any]]:
        if len(records) == 1 and not isinstance(records[0], PendingRecord):
            (batch,) = records
            index, first = self._append(batch[:1], term, commit)
            if index >= 0:
                index, second = self._append([batch[1:]], term, commit)
                return index, [[*first, *second[0]]]
        return self._append(records, term, commit)


class split_batches(Parts):  # noqa: N801  # named like the other bugs
    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        store = super().open_store(config, member)
        assert store.entries is not None
        store.entries.append_records = _SplitLog(store.entries)  # type: ignore[method-assign] # the bug
        return store


# -- clocks


class _LinkClocks(Clocks):
    """Clocks are judged when a link is made, and never again."""

    def look(self, config: GroupConfig | None, *, now: bool = False) -> None:
        if self._looked_at == float("-inf"):
            super().look(config, now=now)


class _LinkCore(Core):
    clocks_class = _LinkClocks


class compare_clocks_at_the_link_only(with_core(_LinkCore)):  # type: ignore[misc]  # noqa: N801  # made by a function
    def make_clock(self, member: Member) -> SteadyClock:
        return SteadyClock(member.clock, jump_ms_max=1 << 60, step_ms_max=1 << 60)


# -- votes


class _ForgetfulVotes(VoteFile):
    def save(self, term: int, voted_for: str) -> None:
        self._term, self._voted_for = term, voted_for


class forget_the_vote(Parts):  # noqa: N801  # named like the other bugs
    def open_votes(self, member: Member) -> VoteFile:
        honest = super().open_votes(member)
        return _ForgetfulVotes(honest._path, honest.store_id, honest.term, honest.voted_for)


class _CountingPreVote(PreVote):
    """Every answer counts, whoever gave it."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = 1

    def begin(self, term: int) -> int:
        self._answers = 1
        return super().begin(term)

    def granted(self, peer: str, round_: int) -> bool:
        self._answers += 1
        return super().granted(peer, round_)

    def won(self, config: GroupConfig, _self_id: str) -> bool:
        return self._running and self._answers >= config.majority_size


class _GullibleCore(Core):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prevote = _CountingPreVote()

    def vote_counts(self, _peer: str) -> bool:
        return True


count_every_vote = with_core(_GullibleCore)


class _TrustingCore(Core):
    def judge_sender(self, _peer: str) -> bool:
        return True

    def _other_disk(self) -> bool:
        return False


class link_everybody(Parts):  # noqa: N801  # named like the other bugs
    """The handshake asks nobody who he is."""

    def judge(self, _own: Hello, _other: Hello, _config: GroupConfig | None) -> str | None:
        return None


class _TrustingNode(RaftNode):
    core_class = _TrustingCore


class trust_a_wiped_disk(link_everybody):  # noqa: N801  # named like the other bugs
    node_class = _TrustingNode


# -- the log


class _CuttingFollower(Follower):
    def matches(self, _entry: Entry) -> bool:
        return False

    def _cut(self, last: int, _commit: int) -> None:
        self._log.cut(last)


class _CuttingCore(Core):
    follower_class = _CuttingFollower


truncate_what_matches = with_core(_CuttingCore)


class _CountingCore(Core):
    """Commits whatever a majority has, of any term."""

    def tick(self) -> None:
        if self.leads:
            self._count()
            assert self.config is not None
            have = sorted(
                self.countable() if voter == self.self_id else self.replication.peers[voter].match
                for voter in self.config.voters
            )
            counted = min(have[len(have) - self.config.majority_size], self.countable())
            self.election.commit = max(self.election.commit, counted)
        super().tick()


commit_old_terms_by_count = with_core(_CountingCore)


class believe_the_cache(Parts):  # noqa: N801  # named like the other bugs
    """What was read back counts as on the disk: nothing is synced at a start."""

    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        member.disk.deaf = True
        try:
            return super().open_store(config, member)
        finally:
            member.disk.deaf = False


# -- leases and reads


class _ReceiptLease(Lease):
    def acked(self, peer: str, seq: int) -> None:
        if any(sent == seq for sent, _ in self._rounds):
            self._answered[peer] = self._clock()


class _ReceiptCore(Core):
    lease_class = _ReceiptLease


lease_from_receipt = with_core(_ReceiptCore)


class _HastyNode(RaftNode):
    @property
    def serving(self) -> bool:
        return self._core.leads


class serve_before_dispatch(Parts):  # noqa: N801  # named like the other bugs
    node_class = _HastyNode


def _tells_when_deposed(fate: Fate) -> type[Parts]:
    class TellingNode(RaftNode):
        """Has an answer for everything that is open when it leads no more."""

        def settle(self) -> None:
            super().settle()
            if not self._core.leads:
                open_, self._open.open = self._open.open, {}
                for proposal in open_.values():
                    proposal.on_fate(fate)

    class TellingParts(Parts):
        node_class = TellingNode

    return TellingParts


acknowledge_when_deposed = _tells_when_deposed(Fate.COMMITTED)
overwritten_when_deposed = _tells_when_deposed(Fate.OVERWRITTEN)


Taking = Callable[[str, str, RaftMessage], bool]


def appends_above(index: int, source: str, target: str) -> Taking:
    """Return what chooses appends on one link that carry entries above an index."""

    def wanted(one: str, other: str, message: RaftMessage) -> bool:
        return (
            (one, other) == (source, target)
            and message.kind is MessageKind.APPEND
            and any(row[0] > index for row in message.fields["entries"])
        )

    return wanted


class cut_below_the_floor(Parts):  # noqa: N801  # named like the other bugs
    """At a start the log ends at the first damage, as if nobody had ever acknowledged what stands behind it."""

    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        honest = GroupRecovery._behind_damage
        GroupRecovery._behind_damage = lambda _, last, end, _damage: (None, last, end)  # type: ignore[method-assign,assignment]  # for this start only
        try:
            return super().open_store(config, member)
        finally:
            GroupRecovery._behind_damage = honest  # type: ignore[method-assign]  # given back


def begin_without_those_who_have_the_data(
    own: Hello, others: Mapping[str, Hello | None], self_id: str
) -> BootstrapDecision:
    """Stand in for raft.core.bootstrap.decide: a majority of empty stores begins a group."""
    empty = {name for name, hello in others.items() if hello is not None and hello.empty} | {self_id}
    if own.empty and None not in others.values() and len(empty) > len(others) // 2 and min(empty) == self_id:
        return BootstrapDecision(Move.FORM, "most stores are empty")
    return decide(own, others, self_id)
