"""The metrics of a member of a Raft group: what its status says, and how far each of the others is behind.

A leader tells of the others, with a series for each; a follower's families of those are there and empty.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from broker.replication import SendTimes
from raft.core.reasons import GAVE_WAY, STOOD
from raft.protocol.types import Role
from runtime.clock import Clock
from runtime.figures import Figure, by, counter, gauge, histogram
from runtime.timings import Timings


class _Written(Protocol):
    """What is needed of an entry's control record."""

    @property
    def timestamp(self) -> int:
        """When it was appended, in ms."""
        ...


class StampedLog(Protocol):
    """What is needed of the log of entries. Both raise LookupError for an entry that cannot be read."""

    def end_position(self, index: int) -> int:
        """Return the position behind an entry."""
        ...

    def control(self, index: int) -> _Written:
        """Return an entry's control record."""
        ...


class GroupMeasures:
    """Names them, each time that they are asked for."""

    def __init__(
        self,
        status: Callable[[], dict[str, Any]],
        entries: StampedLog,
        clock: Clock,
        *,
        sends: SendTimes,
        appends: Timings,
    ) -> None:
        """`status`: what RaftGroup.status returns; `clock` is that by which entries are stamped.

        `appends`: how long the others took for what they were sent.
        """
        self._status = status
        self._entries = entries
        self._clock = clock
        self._sends = sends
        self._appends = appends

    def figures(self) -> Iterator[Figure]:
        """Yield all of them."""
        known = self._status()
        yield gauge("raftmq_raft_term", "The term that this member is in", known["term"])
        roles = [(role.name.lower(), float(role.name == known["role"])) for role in Role]
        yield by("role", "gauge", "raftmq_raft_role", "1 for what this member is", roles)
        ids = [member["id"] for member in known["members"]]
        leads = [(member, float(member == known["leader"])) for member in ids]
        yield by("member", "gauge", "raftmq_raft_leader", "1 for the member that leads, as this one knows", leads)
        yield gauge("raftmq_raft_serving", "1 while this member leads and takes messages", known["leads"])
        text = "1 while a majority answers this leader, or this member follows one"
        yield gauge("raftmq_raft_quorum", text, known["has_quorum"])
        yield gauge("raftmq_raft_lease_seconds", "How long nobody else can lead; 0 without a lease", known["lease_s"])
        yield from self._indexes(known)
        linked = [(member["id"], float(member["linked"])) for member in known["members"]]
        yield by("member", "gauge", "raftmq_raft_linked", "1 for each member that can be reached", linked)
        yield from self._elections(known["elections"])
        yield from self._lag(known)
        text = "From the proposal of an entry of messages to its commit"
        yield histogram("raftmq_commit_seconds", text, self._sends.commit)
        text = "From an append that left to the answer that its entries are on the other's disk"
        yield histogram("raftmq_replicate_seconds", text, self._appends)
        text = "Connections to the Raft port that ended before they had proved whose they are, by reason"
        yield by("reason", "counter", "raftmq_raft_links_refused_total", text, known["links_refused_by"].items())

    @staticmethod
    def _indexes(known: dict[str, Any]) -> Iterator[Figure]:
        yield gauge("raftmq_raft_first_index", "The first entry that is kept", known["base"] + 1)
        yield gauge("raftmq_raft_last_index", "The last entry of the log", known["last"])
        yield gauge("raftmq_raft_durable_index", "All up to it is on this member's disk", known["durable"])
        yield gauge("raftmq_raft_commit_index", "All up to it is committed and readable here", known["commit"])
        yield gauge("raftmq_raft_applied_index", "All up to it is in queues and tables", known["applied"])
        yield gauge("raftmq_raft_open_proposals", "Entries whose fate is open", known["open_proposals"])

    @staticmethod
    def _elections(counts: dict[str, int]) -> Iterator[Figure]:
        stood = [(reason, counts[reason]) for reason in STOOD]
        yield by("reason", "counter", "raftmq_raft_elections_total", "Times that this member stood", stood)
        yield counter("raftmq_raft_elected_total", "Times that this member was elected", counts["elected"])
        gave_way = [(reason, counts[reason]) for reason in GAVE_WAY]
        text = "Times that this member ended its lead because it must not, or had better not, lead"
        yield by("reason", "counter", "raftmq_raft_gave_way_total", text, gave_way)

    def _lag(self, known: dict[str, Any]) -> Iterator[Figure]:
        peers: dict[str, dict[str, Any]] = known["peers"]
        lags = {member: self._behind(known, peer["match"]) for member, peer in peers.items()}
        text = "Entries that another member lacks on its disk"
        entries = [(member, peer["lag"]) for member, peer in peers.items()]
        yield by("member", "gauge", "raftmq_raft_follower_lag_entries", text, entries)
        text = "Bytes of the log that another member lacks on its disk"
        sizes = [(member, size) for member, (size, _) in lags.items()]
        yield by("member", "gauge", "raftmq_raft_follower_lag_bytes", text, sizes)
        text = "Age of the oldest entry that another member lacks on its disk; 0 when it has all"
        ages = [(member, age) for member, (_, age) in lags.items()]
        yield by("member", "gauge", "raftmq_raft_follower_lag_seconds", text, ages)
        heard = [(member, peer["last_ack_ms"] / 1000) for member, peer in peers.items()]
        text = "Age of the newest append that another member has answered"
        yield by("member", "gauge", "raftmq_raft_follower_heard_seconds", text, heard)

    def _behind(self, known: dict[str, Any], match: int) -> tuple[int, float]:
        """Return how many bytes a member lacks, and how old the first of them are in seconds."""
        at = max(match, known["base"])
        if at >= known["last"]:
            return 0, 0.0
        try:
            size = known["end"] - self._entries.end_position(at)
            return max(0, size), max(0, self._clock.now_ms() - self._entries.control(at + 1).timestamp) / 1000
        except LookupError:
            # It was deleted, or cannot be read, since the status was taken.
            return 0, 0.0
