"""Where one send's time goes in a Raft group of three: one in flight, told by the marks of the three brokers.

The clocks of all processes here are one, so a send can be followed from the client to the leader, to the follower whose
answer counted (the first that the leader got), and back. Each stage begins where the one before it ends: together they
are the whole time, and none is an estimate. The leader's own disk works meanwhile; only what is waited for it after the
follower's answer is a stage. A group without marks is loaded by turns beside it, which tells what the marks cost.
"""

import asyncio
import bisect
import signal
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from chaos.host.local import LocalCluster
from chaos.host.processes import ProcessError, ServerProcess
from raftmq.bench import traced_broker as traced
from raftmq.bench.frames import Answer
from raftmq.bench.group import NODES, SYNC_FLUSH
from raftmq.bench.load import WARM_UP_S, LoadedBroker, Sends, run_load

TOPIC = "bench_explain"
# By turns with and without marks.
TURNS = 3
# Until a member has written its marks.
MARKS_S = 30.0
POLL_S = 0.02
# The part of the sends that must be followed from end to end: others met a heartbeat or another sync.
FOLLOWED_MIN = 0.9

WAY = "way"
"""Through the kernel, and until the other process's event loop turns to it."""
WORK, DISK = "work", "disk"


class SendStage(NamedTuple):
    """A part of a send's way; `kind` is WAY, WORK or DISK."""

    name: str
    kind: str


STAGES = (
    SendStage("client to the leader's socket", WAY),
    SendStage("leader: socket to proposal", WORK),
    SendStage("leader: proposal to its log", WORK),
    SendStage("leader: log to the follower's link", WORK),
    SendStage("leader to the follower's socket", WAY),
    SendStage("follower: socket to its log", WORK),
    SendStage("follower: its disk", DISK),
    SendStage("follower: disk to answer", WORK),
    SendStage("follower to the leader's socket", WAY),
    SendStage("leader: more of its own disk", DISK),
    SendStage("leader: answer to commit", WORK),
    SendStage("leader: commit to the client's answer", WORK),
    SendStage("leader: answer to the client's link", WORK),
    SendStage("leader to the client", WAY),
)
KINDS: Mapping[str, str] = {
    WORK: "what three processes do",
    DISK: "the disks",
    WAY: "the way, and the turns of the event loops",
}


class SendNote(NamedTuple):
    """One send as the client saw it: when it left, when its answer came (nanoseconds), and its opaque."""

    left: int
    came: int
    opaque: int


class NotedSends(Sends):
    """Sends that are noted, for one in flight."""

    def __init__(self, topic: str, size: int) -> None:
        super().__init__(topic, size)
        self.noted: list[SendNote] = []
        self._left = 0

    def frames(self, opaques: range) -> list[bytes]:
        """Return them, and note when."""
        made = super().frames(opaques)
        self._left = time.monotonic_ns()
        return made

    def messages(self, answers: Sequence[Answer]) -> int:
        """Count them, and note those that were stored."""
        came = time.monotonic_ns()
        self.noted.extend([SendNote(self._left, came, opaque) for opaque, code, _ in answers if not code])
        return super().messages(answers)


@dataclass(frozen=True, slots=True)
class StageTime:
    """One row: microseconds, and the share of the whole."""

    stage: str
    kind: str
    p50_us: float
    p99_us: float
    share: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was found: the stages in their order, sums by kind, the whole, and what stands beside it."""

    stages: tuple[StageTime, ...]
    kinds: tuple[StageTime, ...]
    whole: StageTime
    leader_disk: StageTime
    """The leader's own disk, from its proposal in the log to the news of it; beside the way to the follower."""
    waited_for_leader: float
    """The share of sends for which the leader's disk was the last."""
    sends: int
    followed: int
    unmarked_p50_us: float
    """The median of a group without marks, by turns with this one."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


class MemberMarks:
    """The marks of one member, to be asked for the next or last of a kind."""

    def __init__(self, marks: Iterable[traced.TracedMark]) -> None:
        self._times: dict[tuple[str, str], list[int]] = {}
        self._numbers: dict[tuple[str, str], list[int]] = {}
        for at, kind, whose, number in sorted(marks):
            self._times.setdefault((kind, whose), []).append(at)
            self._numbers.setdefault((kind, whose), []).append(number)

    def after(self, at: int, kind: str, whose: str = "", *, least: int = 0) -> tuple[int, int]:
        """Return time and number of the first such mark from then on whose number is no less. Raises LookupError."""
        times, numbers = self._times.get((kind, whose), []), self._numbers.get((kind, whose), [])
        for place in range(bisect.bisect_left(times, at), len(times)):
            if numbers[place] >= least:
                return times[place], numbers[place]
        raise LookupError(kind)

    def before(self, at: int, kind: str, whose: str = "") -> int:
        """Return the time of the last such mark up to then. Raises LookupError."""
        times = self._times.get((kind, whose), [])
        place = bisect.bisect_right(times, at)
        if not place:
            raise LookupError(kind)
        return times[place - 1]

    def synced(self, durable_at: int) -> tuple[int, int]:
        """Return begin and end of the sync of which the member was told then. Raises LookupError."""
        end = self.before(durable_at, traced.SYNCED)
        return self.before(end, traced.SYNC_BEGUN), end


def follow(sent: SendNote, leader: str, members: Mapping[str, MemberMarks]) -> tuple[list[int], int] | None:
    """Return the nanoseconds of a send's stages, and of the leader's own disk beside them.

    None for one that cannot be followed, for something came in between. Raises LookupError, with the kind of mark that
    is missing.
    """
    own = members[leader]
    read, _ = own.after(sent.left, traced.READ, traced.CLIENT)
    proposed, _ = own.after(read, traced.PROPOSED)
    appended, index = own.after(proposed, traced.APPENDED)
    ways = [_there_and_back(leader, peer, members, appended, index) for peer in members if peer != leader]
    to_link, came, begun, synced, answer, back = min(ways, key=lambda way: way[-1])
    durable, _ = own.after(appended, traced.DURABLE, least=index)
    disk_done = max(back, durable)
    committed, _ = own.after(disk_done, traced.COMMITTED, least=index)
    answered, opaque = own.after(committed, traced.ANSWERED)
    written, _ = own.after(answered, traced.WRITTEN, traced.CLIENT)
    points = [
        sent.left, read, proposed, appended, to_link, came, begun, synced, answer, back, disk_done, committed, answered,
        written, sent.came,
    ]  # fmt: skip
    stages = [end - begin for begin, end in pairwise(points)]
    if opaque != sent.opaque or min(stages) < 0:
        return None
    return stages, durable - appended


def _there_and_back(
    leader: str, peer: str, members: Mapping[str, MemberMarks], appended: int, index: int
) -> tuple[int, int, int, int, int, int]:
    """Return when an entry was on a follower's link, there, its sync begun and over, its answer sent, and back."""
    own, other = members[leader], members[peer]
    to_link, _ = own.after(appended, traced.WRITTEN, peer)
    came, _ = other.after(to_link, traced.READ, leader)
    durable, _ = other.after(came, traced.DURABLE, least=index)
    begun, synced = other.synced(durable)
    answer, _ = other.after(durable, traced.WRITTEN, leader)
    back, _ = own.after(answer, traced.READ, peer)
    return to_link, came, begun, synced, answer, back


def explained(
    sends: Sequence[SendNote], leader: str, members: Mapping[str, MemberMarks], unmarked_p50_us: float
) -> Explanation:
    """Follow the sends and sum up. Raises ProcessError when too few can be followed."""
    rows: list[list[int]] = []
    disks: list[int] = []
    lacking: dict[str, int] = {}
    for sent in sends:
        try:
            found = follow(sent, leader, members)
        except LookupError as error:
            lacking[str(error)] = lacking.get(str(error), 0) + 1
            continue
        if found is not None:
            rows.append(found[0])
            disks.append(found[1])
    if len(rows) < max(1, FOLLOWED_MIN * len(sends)):
        most = max(lacking, key=lambda kind: lacking[kind], default="")
        what = f'there is no mark "{most}"' if most else "marks are not in the order of the way"
        raise ProcessError(
            f"only {len(rows)} of {len(sends)} sends could be followed ({what}): has the way changed that"
            " raftmq/bench/explain.py knows?"
        )
    whole = sum(map(sum, rows))
    columns = list(zip(*rows, strict=True))
    of_kind = {
        kind: [sum(row[at] for at, stage in enumerate(STAGES) if stage.kind == kind) for row in rows] for kind in KINDS
    }
    waited = STAGES.index(SendStage("leader: more of its own disk", DISK))
    return Explanation(
        stages=tuple(
            _time(stage.name, stage.kind, column, whole) for stage, column in zip(STAGES, columns, strict=True)
        ),
        kinds=tuple(_time(KINDS[kind], kind, of_kind[kind], whole) for kind in KINDS),
        whole=_time("the whole send", "", [sum(row) for row in rows], whole),
        leader_disk=_time("beside it: the leader's own disk", DISK, disks, whole),
        waited_for_leader=round(sum(row[waited] > 0 for row in rows) / len(rows), 3),
        sends=len(sends),
        followed=len(rows),
        unmarked_p50_us=unmarked_p50_us,
    )


def _time(stage: str, kind: str, nanoseconds: Sequence[int], whole: int) -> StageTime:
    ordered = sorted(nanoseconds)
    p50, p99 = statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return StageTime(stage, kind, round(p50 / 1000, 1), round(p99 / 1000, 1), round(sum(ordered) / whole, 4))


async def explain(
    seconds: float, size: int, settings: Mapping[str, object] | None = None, parent: Path | None = None
) -> Explanation:
    """Measure `seconds` with marks, and as long without; `settings` are keys of broker.conf. Raises ProcessError."""
    try:
        for seam in traced.SEAMS:
            traced.found(seam)
    except traced.SeamMissing as error:
        raise ProcessError(str(error)) from error
    with ExitStack() as stack:
        groups = []
        for marked in (True, False):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent)))
            cluster = LocalCluster(
                folder, nodes=NODES, mode="raft", broker_settings={"flushDiskType": SYNC_FLUSH, **(settings or {})}
            )
            if marked:
                for broker in cluster.brokers:
                    broker.run_by(["raftmq.bench.traced_broker", "--marks", str(_marks_file(broker))])
            stack.callback(cluster.kill)
            cluster.start()
            groups.append(cluster)
        cluster, plain = groups
        work, unmarked = NotedSends(TOPIC, size), NotedSends(TOPIC, size)
        leader = cluster.wait_for_leader()
        for _ in range(TURNS):
            await _load(cluster, work, seconds / TURNS)
            await _load(plain, unmarked, seconds / TURNS)
        if cluster.wait_for_leader() is not leader:
            raise ProcessError("another member leads than in the beginning: there is no one way to be told; try again")
        members = {_id(broker): MemberMarks(await _marks(broker)) for broker in cluster.brokers}
    p50_us = statistics.median([one.came - one.left for one in unmarked.noted]) / 1000
    return explained(work.noted, _id(leader), members, round(p50_us, 1))


async def _load(cluster: LocalCluster, work: NotedSends, seconds: float) -> None:
    """Load a group; what was sent while it warmed up is forgotten."""
    before, began = len(work.noted), time.monotonic_ns()
    broker = LoadedBroker(cluster.wait_for_leader().address)
    await run_load("send", broker, lambda: work, in_flight=1, seconds=seconds)
    warm = began + int(WARM_UP_S * 1e9)
    work.noted[before:] = [one for one in work.noted[before:] if one.left >= warm]
    if not work.noted[before:]:
        raise ProcessError("no send was acknowledged: there is nothing to be told")


async def _marks(broker: ServerProcess) -> list[traced.TracedMark]:
    """Return what a member has noted. Raises ProcessError."""
    path, until = _marks_file(broker), time.monotonic() + MARKS_S
    broker.signal(signal.SIGUSR1)
    while not path.exists():
        if time.monotonic() > until or not broker.running:
            raise ProcessError(f"{broker.name} did not write what it noted:\n{broker.last_words()}")
        await asyncio.sleep(POLL_S)
    found: list[traced.TracedMark] = orjson.loads(path.read_bytes())
    return found


def _marks_file(broker: ServerProcess) -> Path:
    return broker.log.with_name("marks.json")


def _id(broker: ServerProcess) -> str:
    """Return the id by which the others know a member; its process is named after it."""
    return broker.name.rpartition(" ")[2]
