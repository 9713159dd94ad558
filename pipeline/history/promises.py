"""What a scenario promises: which checks are judged, which are only counted, and the bounds that are judged by."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

MODES = ("raft", "raft-async", "sync", "async", "single")
# What may stand in the log more than once.
DUPLICATES_NEVER, DUPLICATES_RETRIES, DUPLICATES_ANY = "never", "retries", "any"
DUPLICATES = (DUPLICATES_NEVER, DUPLICATES_RETRIES, DUPLICATES_ANY)


class BadPromises(ValueError):
    """A promise has a value that means nothing."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What may be relied on in a run. The defaults are those of a Raft group that flushes before it acknowledges."""

    mode: str = "raft"
    """One of MODES."""
    replicas: int = 3
    """Of each broker group; with one, every answer counts as the leader's."""
    group_members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Broker group → its members, as looks and faults name them."""

    may_lose_acknowledged: bool = False
    """Acknowledged messages may be lost by any fault; then offsets may go back, too."""
    may_lose_after_power_loss: bool = False
    """… only if the run has a fault of POWER_FAULTS, or one that a member's power was cut in."""
    duplicates: str = DUPLICATES_RETRIES
    """never: one copy of a message (idempotent producers); retries: one of each attempt; any: nothing is judged."""
    linearizable_reads: bool = True
    """What the leader answers holds all that was acknowledged before the question (A14, A15)."""
    stable_reads: bool = True
    """What was ever read at an offset stays there (A8, A9). Not so where a master may be replaced: what it stored and
    no slave had was read by some, and nobody was told that it is safe."""
    dense_offsets: bool = True
    real_time_order: bool = True
    """What was sent after an acknowledgement stands behind it (A10, A11)."""
    offsets_kept: bool = True
    """Acknowledged consumer offsets, topics and groups survive every fault of the run (A16)."""
    fencing: bool = True
    """No acknowledgement of an older term after one of a newer term (A22)."""
    sessions_judged: bool = False
    """Whether jumps between two polls of one consumer are judged, and not only those inside of an answer (A12)."""
    isolated_transactions: bool = False
    """Whether cycles between transactions are judged (A21)."""
    retention: bool = False
    """Old messages may be removed during the run. Otherwise each queue begins at offset 0."""
    consumer_groups: tuple[str, ...] = ()
    """Consumer groups that begin at the first offset and commit only behind what they were given (A17). Their queues
    move on while somebody consumes (A26)."""
    orderly_groups: tuple[str, ...] = ()
    """Consumer groups whose members lock a queue while they consume it (A19)."""

    clock_bound_s: float = 0.05
    """How far clocks of brokers and clients differ, and how coarse delays are (A20)."""
    delay_bound_s: float = 10.0
    """How late a delayed message may become visible (A1)."""
    timer_late_s: float = 5.0
    """How late a timer message may be outside of faults, its precision included (W-timers)."""
    lock_ttl_s: float = 60.0
    """How long a queue's lock lives unless it is renewed (A19)."""
    rto_bound_s: float = 15.0
    """How long after a fault has begun (if in `survives`) or ended sends may go unacknowledged (A25)."""
    progress_bound_s: float = 30.0
    """After the last fault has ended, sends must be acknowledged within this time (A25)."""
    hiccup_bound_s: float = 5.0
    """How long sends may go unacknowledged while there is no fault (A25)."""
    survives: tuple[str, ...] = ()
    """Names of faults under which sends must go on within rto_bound_s, although the fault lasts (A25)."""
    group_bound_s: float = 10.0
    """How long nothing that is new may come of a queue to a consumer group while something is due and the group has a
    consumer (A26): clients share queues anew every 20 s at the latest, of which a fault and what follows it excuse
    rto_bound_s, and then there may be a hiccup."""
    orderly_bound_s: float = 40.0
    """The same of groups that lock their queues, also counted from a new leader on: a lock whose holder is gone is
    another's 30 s after one has begun, and there may be a hiccup before it and one after."""
    lock_left_s: float = 35.0
    """For how long after a new leader, or a fault's end, such a lock may be what they wait for, hiccup included."""
    orderly_calm_s: float = 10.0
    """How long nothing that is new may come to groups that lock their queues when no such lock can be in the way."""

    acknowledged_min: int = 1
    """Fewer acknowledged sends make the run's verdict unknown (V1)."""
    faults_min: int = 0
    """Fewer faults that took effect make the run's verdict unknown (V2)."""
    leader_change_on: tuple[str, ...] = ()
    """Names of faults that must bring another leader, each time (V3)."""
    info_share_max: float = 0.5
    """If more of the sends than this have an unknown end, the run's verdict is unknown (V5)."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise BadPromises(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.duplicates not in DUPLICATES:
            raise BadPromises(f"duplicates must be one of {', '.join(DUPLICATES)}, not {self.duplicates!r}")
        if self.replicas < 1:
            raise BadPromises(f"replicas must be at least 1, not {self.replicas}")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for run.json."""
        return {**asdict(self), "group_members": {group: list(names) for group, names in self.group_members.items()}}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "Promises":
        """Read what as_dict gave, from JSON too. Raises BadPromises for a field that is not known."""
        known = {one.name for one in fields(cls)}
        strange = sorted(set(raw) - known)
        if strange:
            raise BadPromises(f"not a promise: {', '.join(strange)}; known are {', '.join(sorted(known))}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()
        }
        if "group_members" in values:
            values["group_members"] = {group: tuple(names) for group, names in values["group_members"].items()}
        return cls(**values)


def promises_of(mode: str, group_members: Mapping[str, tuple[str, ...]], **changes: Any) -> Promises:
    """Return what a mode promises by itself, with some changes.

    raft: nothing acknowledged is lost. raft-async: nothing unless power fails. sync: a slave has it, so nothing is lost
    while master and log survive; without flushing, power loss may. async, single: what was not flushed is lost. In the
    classic modes consumer offsets are written every few seconds and may go back, and no term fences an old master.
    """
    raft = mode in {"raft", "raft-async"}
    values: dict[str, Any] = {
        "mode": mode,
        "group_members": group_members,
        "replicas": max((len(names) for names in group_members.values()), default=1),
        "may_lose_acknowledged": mode in {"async", "single"},
        "may_lose_after_power_loss": mode in {"raft-async", "sync"},
        "offsets_kept": raft,
        "fencing": raft,
    }
    return Promises(**{**values, **changes})
