"""The one door to PySyncObj 0.3.17: every private name of it that is used stands here, and is looked for at import.

The library gives the election (timer, candidate, votes), the no-op at the start of a term, the commit rule (beside
ours, Core.move_commit), stepping down without a majority, the table of callbacks by (index, term) with the loop that
answers them, and TimeoutNow. It is not given: files (JournalView shows it our log), sockets (LibraryTransport),
threads, a poller, its append and acknowledge path, membership, dumps, pickles.

Two of its module globals are replaced (MODULE_GLOBALS): several nodes, each with its own clock, may share a process.
"""

# ruff: noqa: SLF001  # the private names of the library have their one place here

import _socket
import socket
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

import pysyncobj.syncobj as stock
from pysyncobj.config import FAIL_REASON, SyncObjConf
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from raft.core.hooks import Hooks, Votes
from raft.core.journal_view import JournalView
from raft.core.library_clock import clock
from raft.protocol.types import EntryRefused, Log, Role
from runtime.crc import crc32

socket.inet_ntop = _socket.inet_ntop  # at import the library replaces it by one for Windows

VERSION_WANTED = "0.3.17"
APPLY_ENTRIES_MAX = 1024  # answered in one tick: microseconds each, and nobody else runs meanwhile
APPLY_FEW = 4  # more at once are counted in bytes too

_ROLES, _LEADER = tuple(sorted(Role)), int(Role.LEADER)
_SEAT = attrgetter("_SyncObj__raftState", "_SyncObj__raftCurrentTerm", "_SyncObj__raftLeader")

# Methods of SyncObj that are overridden (o) or called (c), state that is read or set, globals that are replaced.
PRIVATE_METHODS = {
    "_SyncObj__generateRaftTimeout": "o: our range, our random numbers",
    "_SyncObj__sendAppendEntries": "o: the append path is ours",
    "_SyncObj__getEntries": "o: nothing above what is durable is committed; bounded batches",
    "_SyncObj__applyLogEntries": "o, c: the whole batch is applied before its callbacks are called",
    "_SyncObj__doApplyCommand": "o: applying is the broker's",
    "_SyncObj__tryLogCompaction": "o: no dumps",
    "_SyncObj__onBecomeLeader": "o, c: progress of the peers begins anew before the no-op",
    "_SyncObj__onMessageReceived": "c: votes and TimeoutNow, when our gates have let them pass",
    "_SyncObj__onNodeConnected": "c, by the transport, as __onNodeDisconnected is",
    "_SyncObj__setCurrentTerm": "c: term and vote go to the vote file before anything is sent",
    "_SyncObj__setState": "c",
    "_checkCommandsToApply": "o: the queue of commands is not used",
}
PRIVATE_STATE = {
    "_SyncObj__raftState": "role",
    "_SyncObj__raftLeader": "whose appends are followed",
    "_SyncObj__raftCurrentTerm": "the term",
    "_SyncObj__raftElectionDeadline": "when the candidate code runs; gated by the pre-vote",
    "_SyncObj__raftCommitIndex": "commit",
    "_SyncObj__raftLastApplied": "applied; set at start, or the whole log would be applied again",
    "_SyncObj__raftMatchIndex": "what the commit rule counts: capped by our own durable index",
    "_SyncObj__lastResponseTime": "what stepping down looks at: the sending time of what was answered",
    "_SyncObj__otherNodes": "the voters but this one, from CONFIG entries",
    "_SyncObj__transferInProgress": "asked to stand by the leader",
    "_SyncObj__noopIDx": "the leader's no-op of its term",
    "_SyncObj__newAppendEntriesTime": "the next heartbeat",
    "_SyncObj__commandsWaitingCommit": "callbacks by index and term",
    "_poller": "replaced by one that waits for nothing",
}
MODULE_GLOBALS = {
    "createJournal": "replaced: conf.journalFile may be a Journal",
    "monotonicTime": "replaced: asks the entered node's clock",
}


def missing_names() -> list[str]:
    """Return what this module uses of the library and does not find in it."""
    return [
        *(name for name in PRIVATE_METHODS if not callable(getattr(stock.SyncObj, name, None))),
        *(name for name in PRIVATE_STATE if name not in stock.SyncObj.__init__.__code__.co_names),
        *(name for name in MODULE_GLOBALS if not hasattr(stock, name)),
    ]


if VERSION != VERSION_WANTED:
    raise ImportError(f"pysyncobj {VERSION} is installed, {VERSION_WANTED} is needed: its private names are used")
if missing_names():
    raise ImportError(f"pysyncobj {VERSION} lacks {', '.join(missing_names())}: install the original wheel")

_create_journal = stock.createJournal


def _journal_or_file(journal: Any) -> Any:
    return journal if isinstance(journal, Journal) else _create_journal(journal)


stock.monotonicTime = clock
stock.createJournal = _journal_or_file


class LibraryTransport(Transport):  # type: ignore[misc]  # the library carries no types
    """The library's way to its peers: whoever owns the node carries the messages."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__(None, None, [])
        self._hooks = hooks

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        """Hand a message on; whether it arrives is not known."""
        self._hooks.carry(node.id, message)
        return True

    def joined(self, node: Any, connected: bool) -> None:
        """Tell the library that a link came or went."""
        (self._onNodeConnected if connected else self._onNodeDisconnected)(node)


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """Wait for nothing: sockets and timers are the caller's."""


class _Peer(Node):  # type: ignore[misc]  # the library carries no types
    """A node that hashes alike in every process: the library sends in a set's order, and a seed has one story."""

    def __init__(self, member: str) -> None:
        super().__init__(member)
        self._hash = crc32(member.encode())  # asked for thirty times for each entry

    def __hash__(self) -> int:
        return self._hash


class _Sync(stock.SyncObj):  # type: ignore[misc]  # the library carries no types
    """SyncObj with the parts that are ours taken out of it."""

    def __init__(self, self_id: str, conf: Any, journal: JournalView, hooks: Hooks) -> None:
        self._hooks = hooks
        self._journal = journal
        # While entries are applied, the last of them.
        self._applies_until: int | None = None
        self.bridge = LibraryTransport(hooks)
        super().__init__(_Peer(self_id), [], conf, transport=self.bridge)
        self._poller = _NoPoller()

    def _SyncObj__generateRaftTimeout(self) -> float:
        return self._hooks.election_timeout()

    def _SyncObj__sendAppendEntries(self) -> None:
        self._SyncObj__newAppendEntriesTime = clock() + self.conf.appendEntriesPeriod
        self._hooks.beat()

    def _SyncObj__getEntries(
        self, fromIDx: int, count: int | None = None, maxSizeBytes: int | None = None
    ) -> list[tuple[bytes, int, int]]:
        upto = self._hooks.countable() if self._applies_until is None else self._applies_until
        assert maxSizeBytes is None, "the library may not read the log"
        return self._journal.between(fromIDx, min(upto, fromIDx + min(count or 1, APPLY_ENTRIES_MAX) - 1))

    def _SyncObj__applyLogEntries(self) -> bool:
        assert self._applies_until is None, "what is told of an entry may not bring the next one about"
        applied = self._SyncObj__raftLastApplied
        upto = min(self._SyncObj__raftCommitIndex, self._hooks.countable(), applied + APPLY_ENTRIES_MAX)
        if upto - applied > APPLY_FEW:
            upto = self._hooks.apply_until(applied, upto)
        if upto > applied:
            self._hooks.applying(upto)
        self._applies_until = upto
        try:
            return bool(super()._SyncObj__applyLogEntries())
        finally:
            self._applies_until = None

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        pass

    def _SyncObj__tryLogCompaction(self) -> None:
        pass

    def _SyncObj__onBecomeLeader(self) -> None:
        self._hooks.leading()
        super()._SyncObj__onBecomeLeader()

    def _checkCommandsToApply(self) -> None:
        pass


class Election:
    """The library behind plain names: ids of members are strings, roles are ours. Call it inside `entered`."""

    def __init__(
        self, self_id: str, log: Log, votes: Votes, hooks: Hooks, *, beat_s: float, timeouts_s: tuple[float, float],
        quorum_s: float,
    ) -> None:  # fmt: skip
        conf = SyncObjConf(
            autoTick=False,
            journalFile=JournalView(log, votes, hooks),
            appendEntriesPeriod=beat_s,
            raftMinTimeout=max(timeouts_s[0], beat_s * 3.001),
            raftMaxTimeout=max(timeouts_s[1], beat_s * 3.002),
            leaderFallbackTimeout=quorum_s,
            connectionTimeout=max(3600.0, timeouts_s[1]),
            appendEntriesUseBatch=True,
            dynamicMembershipChange=False,
            commandsWaitLeader=False,
            useFork=False,
            pollerType="poll",
        )
        self._self_id = self_id
        self._nodes: dict[str, Any] = {}
        self._timeout = timeouts_s[1]
        self._sync = _Sync(self_id, conf, conf.journalFile, hooks)
        self.seat: Callable[[], tuple[Any, ...]] = partial(_SEAT, self._sync)
        """Returns role, term and leader as one value, which is another one when any of them is."""
        # What lies below was applied before the stop; from the first damaged entry on all is, once that is mended.
        self._sync._SyncObj__raftLastApplied = min(self._sync._SyncObj__raftCommitIndex, hooks.countable())

    def _node(self, member: str) -> Any:
        return self._nodes.get(member) or self._nodes.setdefault(member, _Peer(member))

    @property
    def role(self) -> Role:
        """What this member is."""
        return _ROLES[self._sync._SyncObj__raftState]

    @property
    def leads(self) -> bool:
        """Whether this member leads, as far as it knows."""
        return self._sync._SyncObj__raftState == _LEADER  # type: ignore[no-any-return] # numbers, asked all the time

    @property
    def term(self) -> int:
        """The current term."""
        return self._sync._SyncObj__raftCurrentTerm  # type: ignore[no-any-return] # a number, asked all the time

    @property
    def leader(self) -> str | None:
        """Whose appends are followed in this term, this member itself when it leads."""
        node = self._sync._SyncObj__raftLeader
        return None if node is None else str(node.id)

    @property
    def deadline(self) -> float:
        """When the candidate code runs unless somebody leads; only Core lets it come to that."""
        return float(self._sync._SyncObj__raftElectionDeadline)

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._sync._SyncObj__raftElectionDeadline = at

    @property
    def commit(self) -> int:
        """The commit index as the library counts it."""
        return self._sync._SyncObj__raftCommitIndex  # type: ignore[no-any-return] # a number, as above

    @commit.setter
    def commit(self, index: int) -> None:
        sync = self._sync
        assert index >= sync._SyncObj__raftCommitIndex, f"the commit index would go back from {self.commit} to {index}"
        sync._SyncObj__raftCommitIndex = index

    @property
    def applied(self) -> int:
        """The index whose callbacks were called."""
        return int(self._sync._SyncObj__raftLastApplied)

    @property
    def noop(self) -> int:
        """The index of the no-op of the term led last; 0 when there is none."""
        return int(self._sync._SyncObj__noopIDx or 0)

    @property
    def next_beat(self) -> float:
        """When a leader beats again."""
        return float(self._sync._SyncObj__newAppendEntriesTime)

    @property
    def asked_to_stand(self) -> bool:
        """Whether the leader hands over to this member."""
        return bool(self._sync._SyncObj__transferInProgress)

    def decline_to_stand(self) -> None:
        """Forget that the leader asked."""
        self._sync._SyncObj__transferInProgress = False

    def set_voters(self, others: Iterable[str], now: float) -> None:
        """Let exactly these, and this member, vote; a new one counts as heard of now, and as having nothing."""
        nodes = {self._node(member) for member in others if member != self._self_id}
        heard, match = self._sync._SyncObj__lastResponseTime, self._sync._SyncObj__raftMatchIndex
        for node in nodes:
            heard.setdefault(node, now)
            match.setdefault(node, 0)
        for node in self._sync._SyncObj__otherNodes - nodes:
            heard.pop(node, None)
            match.pop(node, None)
        self._sync._SyncObj__otherNodes = nodes

    def counted(self, member: str, match: int, heard_at: float) -> None:
        """Note how far a voter holds our log, and the sending time of the newest append that it answered."""
        node = self._node(member)
        self._sync._SyncObj__raftMatchIndex[node] = match
        self._sync._SyncObj__lastResponseTime[node] = heard_at

    def follow(self, term: int, leader: str | None, *, wait: bool = True) -> None:
        """Follow a leader, or nobody yet; a higher term is made durable first. `wait` begins the timeout anew."""
        if term > self.term:
            self._sync._SyncObj__setCurrentTerm(term, None)
            self.decline_to_stand()
        if wait and not self.asked_to_stand:
            self._timeout = self._sync._SyncObj__generateRaftTimeout()
            self.deadline = clock() + self._timeout
        self._sync._SyncObj__raftLeader = None if leader is None else self._node(leader)
        self._sync._SyncObj__setState(int(Role.FOLLOWER))

    def follow_on(self) -> None:
        """Begin the timeout anew, as long as the last one, while the leader followed goes on."""
        if not self.asked_to_stand:
            self._sync._SyncObj__raftElectionDeadline = clock() + self._timeout

    def await_fate(self, index: int, term: int, answer: Callable[..., None]) -> None:
        """Call `answer` when an entry of that index is committed, with `committed`: whether it is this term's."""
        self._sync._SyncObj__commandsWaitingCommit[index].append(
            (term, lambda _result, reason: answer(committed=reason == FAIL_REASON.SUCCESS))
        )

    def apply(self) -> None:
        """Apply what is committed, as a tick does."""
        self._sync._SyncObj__applyLogEntries()

    def tick(self) -> None:
        """Stand if the deadline has passed; as leader commit, step down without a majority; apply; beat if due."""
        self._try_to_lead(self._sync.doTick, 0)

    def _try_to_lead(self, act: Callable[..., object], *arguments: Any) -> None:
        """Do what may win an election; who has no room for its no-op then has not led."""
        try:
            act(*arguments)
        except EntryRefused:
            self.follow(self.term, None)

    def receive(self, peer: str, message: dict[str, Any]) -> None:
        """Take request_vote, response_vote or timeout_now."""
        self._try_to_lead(self._sync._SyncObj__onMessageReceived, self._node(peer), message)

    def joined(self, peer: str, connected: bool) -> None:
        """Note that a peer can be reached, or cannot."""
        self._sync.bridge.joined(self._node(peer), connected)

    def hand_over(self, peer: str) -> bool:
        """Tell a voter that holds the whole log to stand; False when it does not."""
        outcome: list[int] = []
        self._sync.transferLeadership(self._node(peer), lambda _result, reason: outcome.append(reason))
        return outcome == [FAIL_REASON.SUCCESS]
