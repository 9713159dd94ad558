"""May a slave go on behind its master? Facts in, verdict out (rule R16).

RocketMQ's wire knows only one position: a slave reports its end, and the master sends what it has from there. After a
crash of the master the two logs may differ before that position, and nobody would notice. So before the first report on
a connection a slave compares: the SHA-256 digests of the last file that both logs have. Where they differ the last
common record border is looked for, and what stands behind it in the slave's log is either cut, all of it kept aside,
or waits for a person: never by itself is anything cut that a synchronous acknowledgement may have covered.

Where nothing is the same in both, the master may have lost its store, or be another broker of the name, and the slave
may hold the only copy. So that always waits for a person, but for one case: a slave that was away for longer than the
master keeps its log. What was in both is gone there, and bytes prove nothing; the log's own name does. A master draws
one for a log that is empty or has none, keeps it beside the log, and its slaves take it over with the log: a wiped disk
has another one, and so has a stranger.

The same bytes in the last common file are taken as proof for all files before: a record holds its position, its times
and its hosts, so that two logs do not come together again once they differed.

A RocketMQ master gives no digests: there only the ends are compared. A slave that is not longer goes on, as RocketMQ
has it; nothing proves what a longer one should be cut for, so that waits for a person.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, Self

from broker.settings.pair_keys import ASYNC_MASTER, RAFT, SYNC_MASTER
from broker.settings.pair_memory import PairMemory

# Parts that a range is split into while a difference is looked for: 8 rounds find a byte in a file of 1 GiB.
PARTS = 16
# Of the last common file at least so many bytes are compared, or as many of the file before.
COMPARED_BYTES_MIN = 1024 * 1024

# What a slave is told that was away while its master became something else.
GROUPED = "it is a member of a Raft group now; bring this slave into it: repeat the raftmq cluster to-raft that made it"

Range = tuple[int, int]
"""Begin and end of a stretch of the log, which lies in one file."""


@dataclass(frozen=True, slots=True)
class OwnLog:
    """The slave's log and what the slave remembers; positions and sizes in bytes."""

    begin: int
    end: int
    whole: int
    """The border behind the last whole record; between it and `end` stands a part of a record, or nothing."""
    file_bytes: int
    epoch: int = 0
    """The highest that this broker knows of."""
    agreed: str = ""
    """The incarnation that everything in the log was compared with, or came from, since this process began."""
    covered: int = 0
    """What stands before may have been acknowledged to a producer because this broker had it."""
    free_from: int | None = None
    """What stands from here on is known never to have been acknowledged (the tail of a member of a group)."""
    log_id: str = ""
    """The log's name, of the master that all of it came from; empty when none was told."""

    @classmethod
    def remembered(
        cls, begin: int, end: int, whole: int, *, file_bytes: int, memory: PairMemory, epoch: int, agreed: str
    ) -> Self:
        """Return a log with what is remembered of it; `epoch` is the highest known beside that."""
        return cls(
            begin=begin,
            end=end,
            whole=whole,
            file_bytes=file_bytes,
            epoch=max(memory.epoch, epoch),
            agreed=agreed,
            covered=memory.covered_upto(end),
            free_from=memory.free_from,
            log_id=memory.log_id,
        )

    @property
    def empty(self) -> bool:
        """Whether nothing is in it."""
        return self.end <= self.begin


@dataclass(frozen=True, slots=True)
class MasterLog:
    """What the master says of itself."""

    role: str
    begin: int
    end: int | None
    """None: a RocketMQ master that does not tell."""
    file_bytes: int | None
    incarnation: str = ""
    """Another one each time the master's store is opened; empty of a RocketMQ master, which gives no digests."""
    epoch: int = 0
    fenced: str = ""
    """Why it takes nothing more, when it does not."""
    log_id: str = ""
    """The log's name: another one when the store was begun anew."""
    slaves: tuple[int, ...] | None = None
    """What each of its slaves has reported; None: it does not tell."""


class VerdictKind(Enum):
    """What a slave does next."""

    GO_ON = "go on"
    CUT = "cut"
    ANEW = "begin anew"
    REFUSE = "do not follow"


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """The outcome of a comparison."""

    kind: VerdictKind
    position: int
    """GO_ON: what is to be reported. CUT: the last common record border."""
    why: str
    person: bool = False
    """Whether a person must agree before the log is touched."""
    lost: int = 0
    """Bytes of the own log that CUT or ANEW would take out of it."""


class BothLogs(Protocol):
    """Answers about the logs of both sides; an answer that cannot be had is raised, and then nothing is decided."""

    async def same(self, ranges: Sequence[Range]) -> list[bool]:
        """Tell for each range whether both logs have the same bytes there."""
        ...

    async def border(self, position: int) -> int:
        """Return the last record border at or before a position of the own log; a file's begin is one."""
        ...


async def compare(own: OwnLog, master: MasterLog, logs: BothLogs) -> LogVerdict:
    """Return what a slave with log `own` is to do about its master's."""
    known = precheck(own, master)
    if known is not None:
        return known
    assert master.end is not None, "without an end there is nothing to compare with: precheck() has decided"
    if master.incarnation:
        common = await last_common_border(own, master, logs)
    else:
        common = await logs.border(master.end)
        common = common if common > own.begin else None
    return judge(own, master, common)


def precheck(own: OwnLog, master: MasterLog) -> LogVerdict | None:
    """Return the verdict where the bytes need not be asked, None where they must be."""
    refusal = _refusal(own, master)
    if refusal:
        return LogVerdict(VerdictKind.REFUSE, 0, refusal)
    if own.end == 0:
        # To 0 a master of ours answers with all that it keeps, RocketMQ's with its last file only.
        return LogVerdict(VerdictKind.GO_ON, 0 if master.incarnation else master.begin, "this log is empty")
    if own.empty and master.begin <= own.end and (master.end is None or own.end <= master.end):
        return LogVerdict(VerdictKind.GO_ON, own.end, "nothing is left in this log that could differ")
    if not master.incarnation and (master.end is None or own.end <= master.end) and own.end > master.begin:
        return LogVerdict(VerdictKind.GO_ON, own.end, "a RocketMQ master, which gives no digests, has as much")
    if master.end is None or own.end <= master.begin or own.begin >= master.end:
        return judge(own, master, None)
    if master.incarnation and own.agreed == master.incarnation and own.end <= master.end:
        return LogVerdict(VerdictKind.GO_ON, own.end, "everything here is from this master")
    return None


def _refusal(own: OwnLog, master: MasterLog) -> str:
    """Return why this master is not to be followed at all, "" when it may be."""
    if master.role == RAFT:
        return GROUPED
    if master.role not in {ASYNC_MASTER, SYNC_MASTER}:
        return f"it is no master: its brokerRole is {master.role}"
    if master.fenced:
        return f"it takes nothing more: {master.fenced}"
    if master.epoch < own.epoch:
        return (
            f"it was deposed: its epoch is {master.epoch}, this slave knows of {own.epoch}; make it a slave of the "
            "promoted one (raftmq cluster follow)"
        )
    if master.file_bytes is not None and master.file_bytes != own.file_bytes:
        return (
            f"mappedFileSizeCommitLog is {master.file_bytes} there and {own.file_bytes} here: set it to the master's, "
            "and let this slave begin with an empty store folder"
        )
    return ""


def why_no_slaves(address: str, master: MasterLog) -> str:
    """Return why a master names no HA port."""
    if master.role == RAFT:
        return f"the master {address} is to be followed no more: {GROUPED}"
    return f"the master {address} takes no slaves: its log says at the start why (haListenPort, haSecretFile)"


async def last_common_border(own: OwnLog, master: MasterLog, logs: BothLogs) -> int | None:
    """Return up to where both logs are the same, at a record border or at the end of the own one; None: nowhere.

    Looked for from the end backwards, file by file, until one is found in which not even the first record differs.
    """
    assert master.end is not None, "a master that gives digests tells its end"
    low, high = max(own.begin, master.begin), min(own.end, master.end)
    assert low < high, "there is something to compare"
    begin = max(low, (high - 1) // own.file_bytes * own.file_bytes)
    if high - begin < COMPARED_BYTES_MIN and begin > low:
        before = max(low, begin - own.file_bytes, begin - COMPARED_BYTES_MIN)
        if not (await logs.same([(before, begin)]))[0]:
            high, begin = begin, max(low, begin - own.file_bytes)
    while True:
        differs = await first_difference(begin, high, logs)
        if differs is None:
            return high
        border = await logs.border(differs)
        assert begin <= border <= differs, "a file begins with a record"
        if border > begin:
            return border
        if begin == low:
            return None
        high, begin = begin, max(low, begin - own.file_bytes)


async def first_difference(begin: int, end: int, logs: BothLogs) -> int | None:
    """Return the position of the first byte that is not the same, None when all of them are."""
    while True:
        parts = _split(begin, end)
        same = await logs.same(parts)
        assert len(same) == len(parts), "an answer for each question"
        if all(same):
            # Of a part that differed another part must differ; if not, an answer was wrong.
            return None
        begin, end = parts[same.index(False)]
        if end - begin == 1:
            return begin


def _split(begin: int, end: int) -> list[Range]:
    step = -(-(end - begin) // PARTS)
    return [(at, min(at + step, end)) for at in range(begin, end, step)]


def judge(own: OwnLog, master: MasterLog, common: int | None) -> LogVerdict:
    """Return the verdict when both logs are the same up to `common`; None: nothing is known to be the same."""
    if common is not None and common >= own.end:
        return LogVerdict(VerdictKind.GO_ON, own.end, "the logs are the same")
    keep = own.begin if common is None else common
    lost = own.end - keep
    found = _difference(own, master, common)
    why_not = _held_back(own, master, common)
    kind = VerdictKind.ANEW if common is None else VerdictKind.CUT
    if why_not:
        return LogVerdict(kind, keep, f"{found}: {why_not}", person=True, lost=lost)
    return LogVerdict(kind, keep, found, lost=lost)


def _difference(own: OwnLog, master: MasterLog, common: int | None) -> str:
    here = f"this log holds {own.begin} to {own.end}"
    there = f"the master's {master.begin} to {master.end}"
    if common is None:
        return f"{here}, {there}, and nothing is known to be the same in both"
    return f"{here}, {there}, and they are the same up to {common} only"


def _held_back(own: OwnLog, master: MasterLog, common: int | None) -> str:
    """Return why a person must agree before what is not common leaves the log, "" when nobody must."""
    keep = own.begin if common is None else common
    if keep >= own.whole:
        # Part of a record: nobody was ever told that it is kept.
        return ""
    if master.end == master.begin:
        return "the master's store is empty; was it lost? This slave may hold the only copy"
    if not master.incarnation:
        return "it is a RocketMQ broker, which gives no digests: nothing proves that its log is the one that came here"
    if common is None and not behind_retention(own, master):
        return (
            "was the master's store lost, or is it another broker of this name? Nothing proves that its log was ever "
            "this one, and this slave may hold the only copy"
        )
    if common is not None and own.free_from is not None and keep >= own.free_from:
        return ""
    if master.role == SYNC_MASTER:
        return "a SYNC_MASTER may have acknowledged messages because they are here"
    if keep < own.covered:
        return f"up to {own.covered} a SYNC_MASTER may have acknowledged messages because they were here"
    return ""


def behind_retention(own: OwnLog, master: MasterLog) -> bool:
    """Tell whether this log is for certain the begin of the master's, which the master does not keep any more."""
    if own.end > master.begin or not master.incarnation:
        return False
    return own.agreed == master.incarnation or bool(own.log_id and own.log_id == master.log_id)
