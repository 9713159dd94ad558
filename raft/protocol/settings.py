"""What a member is told before it starts: who it is, whom it may meet, and how long it waits. One frozen value."""

from dataclasses import dataclass
from typing import NamedTuple

from raft.protocol.config import ConfigRefused, check_address, member_number
from runtime.config import ConfigError

KIB = 1024
MIB = 1024 * KIB

# Members that may be named to begin with; more are added to a living group.
PEERS_MAX = 9
GROUP_CHARS_MAX = 127
# Of the shortest election timeout: what is left covers clocks that do not run alike (R7).
LEASE_SHARE = 0.8
# Of the longest election timeout: how long a leader leads that hears no majority.
QUORUM_SHARE = 1.5
# A leader beats at least so often in the shortest election timeout, or one lost message makes an election.
BEATS_PER_ELECTION_MIN = 3


class Peer(NamedTuple):
    """A member as the configuration file names it; used to begin a group, and to find one."""

    id: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port in one, as a CONFIG entry has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Read RocketMQ's dLegerPeers, "n0-host:port;n1-host:port"; ConfigError says what cannot be read."""
    peers = []
    for part in text.replace(" ", "").split(";"):
        if not part:
            continue
        member_id, dash, address = part.partition("-")
        host, _, port = address.rpartition(":")
        try:
            member_number(member_id)
            check_address(address)
        except ConfigRefused as error:
            raise ConfigError(f'dLegerPeers: {error}; it takes "n0-host:port;n1-host:port"') from error
        assert dash
        peers.append(Peer(member_id, host.strip("[]"), int(port)))
    return tuple(peers)


@dataclass(frozen=True)
class RaftSettings:
    """All that a RaftNode is told. Times in milliseconds, sizes in bytes."""

    self_id: str
    group: str
    peers: tuple[Peer, ...]
    """All members to begin with, this one too; what counts later stands in the log (R9)."""
    heartbeat_ms: int = 100
    election_ms_min: int = 500
    election_ms_max: int = 1000
    transfer_ms: int = 1000
    """How long a leader that hands over waits for the other to stand."""
    window_bytes: int = 16 * MIB
    """Sent to one follower and not yet answered."""
    ae_bytes_max: int = MIB
    """Entries in one append; one larger entry travels alone."""
    proposals_max: int = 4096
    """Own entries whose fate is open; beyond it a proposal is refused as BUSY."""
    catch_up_entries: int = 64
    """A learner this close to the leader's end may be promoted."""
    preferred_leader: str = ""
    """The member that is handed the lead whenever it has the whole log; "" for none."""
    preferred_check_ms: int = 2000
    dial_from: str = ""
    """Address of this machine that the other members are dialled from; "": the system's choice."""
    founds: bool = False
    """A person said that the group begins with this member's log, whatever the others hold (R16)."""
    joins: bytes = b""
    """Id of the group that this member, which holds messages and no entry of it, comes to by a person's word (R16)."""

    @property
    def lease_s(self) -> float:
        """Seconds that a lease lasts from the sending of the round that a majority answered (R7)."""
        return self.election_ms_min * LEASE_SHARE / 1000

    @property
    def quorum_s(self) -> float:
        """Seconds after which a leader that no majority answers leads no more."""
        return self.election_ms_max * QUORUM_SHARE / 1000

    @property
    def own(self) -> Peer:
        """The peer that this member itself is."""
        return next(peer for peer in self.peers if peer.id == self.self_id)

    def validate(self) -> None:
        """Raise ConfigError unless a member can live by this."""
        if not self.group or len(self.group) > GROUP_CHARS_MAX or not self.group.isprintable() or " " in self.group:
            raise ConfigError(f"dLegerGroup is {self.group[:80]!r}: name the group, up to {GROUP_CHARS_MAX} characters")
        self._validate_peers()
        for key, value, low, high in (
            ("raftHeartbeatMs", self.heartbeat_ms, 1, 60_000),
            ("raftElectionMsMin", self.election_ms_min, 3, 600_000),
            ("raftElectionMsMax", self.election_ms_max, 4, 600_000),
            ("transfer_ms", self.transfer_ms, 1, 600_000),
            ("preferred_check_ms", self.preferred_check_ms, 1, 3_600_000),
            ("ae_bytes_max", self.ae_bytes_max, KIB, 8 * MIB),
            ("window_bytes", self.window_bytes, KIB, 1024 * MIB),
            ("proposals_max", self.proposals_max, 1, 1_000_000),
            ("catch_up_entries", self.catch_up_entries, 0, 1_000_000),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{key} is {value}: it takes {low} to {high}")
        if self.election_ms_max <= self.election_ms_min:
            raise ConfigError(
                f"raftElectionMsMax is {self.election_ms_max}: it must be above raftElectionMsMin"
                f" ({self.election_ms_min}), or members stand at the same moment again and again"
            )
        if self.heartbeat_ms * BEATS_PER_ELECTION_MIN > self.election_ms_min:
            raise ConfigError(
                f"raftHeartbeatMs is {self.heartbeat_ms}: raftElectionMsMin ({self.election_ms_min}) must be at least"
                f" {BEATS_PER_ELECTION_MIN} times as long, or one lost heartbeat starts an election"
            )
        if self.window_bytes < self.ae_bytes_max:
            raise ConfigError(f"window_bytes is {self.window_bytes}: less than one append of {self.ae_bytes_max} bytes")

    def _validate_peers(self) -> None:
        try:
            numbers = [member_number(peer.id) for peer in self.peers]
            member_number(self.self_id)
            for peer in self.peers:
                check_address(peer.address)
        except ConfigRefused as error:
            raise ConfigError(f"dLegerPeers, dLegerSelfId: {error}") from error
        if not 1 <= len(numbers) <= PEERS_MAX:
            raise ConfigError(f"dLegerPeers names {len(numbers)} members: name 1 to {PEERS_MAX}, best 3 or 5")
        if len(set(numbers)) != len(numbers):
            raise ConfigError("dLegerPeers names a member twice")
        if len({peer.address for peer in self.peers}) != len(self.peers):
            raise ConfigError("dLegerPeers gives one address to two members")
        if self.self_id not in {peer.id for peer in self.peers}:
            names = ", ".join(peer.id for peer in self.peers)
            raise ConfigError(f"dLegerSelfId is {self.self_id!r}: dLegerPeers names only {names}")
        if self.preferred_leader:
            try:
                member_number(self.preferred_leader)
            except ConfigRefused as error:
                raise ConfigError(f"preferredLeaderId: {error}") from error
