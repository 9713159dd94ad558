"""One machine of the simulated world: clock, disk, and the process on it, life after life.

The process is the product's own code: MessageStore with its EntryLog, VoteFile, RaftNode. What a broker does around
them is done here in the smallest way: dispatch what is committed, answer producers by the fate of their entries.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from raft.core.node import RaftNode
from raft.core.votefile import VoteFile
from raft.protocol.config import GroupConfig
from raft.protocol.hello import Hello, judge
from raft.protocol.settings import RaftSettings
from raft.protocol.types import Role
from runtime.clock import SteadyClock
from store.config import SYNC_FLUSH, StoreConfig
from store.controlrecord import decode_control
from store.errors import StoreError
from store.events import Payloads
from store.files.floorfile import FLOOR_NAME, LAG_SECONDS, read_floor
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from tests.parts.told import Told, nobody
from tests.simulation.midstart import KilledInStart, killed_after
from tests.simulation.seams import Surroundings
from tests.simulation.simclock import SimClock
from tests.simulation.simdisk import SimDisk

FILE_BYTES = 16 * 1024
HOST = b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
STORE = StoreConfig(
    mappedFileSizeCommitLog=FILE_BYTES,
    mappedFileSizeConsumeQueue=4000,
    maxHashSlotNum=50,
    maxIndexNum=400,
    messageIndexEnable=False,
    maxMessageSize=4096,
    flushDiskType=SYNC_FLUSH,
    flushIntervalCommitLog=3_600_000,
)


class Parts:
    """Makes the parts of a process: the product's own. Planted bugs put another one in a place."""

    node_class: type[RaftNode] = RaftNode

    def make_clock(self, member: "Member") -> SteadyClock:
        return SteadyClock(member.clock)

    def open_store(self, config: StoreConfig, member: "Member") -> MessageStore:
        return MessageStore.open(
            config,
            store_host=HOST,
            clock=member.steady,
            disk=member.disk,
            group=True,
            stepped=True,
            payloads=Payloads(ends_group=lambda payload: GroupConfig.decode(payload).classic),
            events=member.told.events,
        )

    def open_votes(self, member: "Member") -> VoteFile:
        return VoteFile.open(
            member.disk.root / "raft" / "vote",
            has_log=member.log.last.index > 0,
            new_id=lambda: member.rng.randbytes(16),
            replace=member.disk.replace,
        )

    def judge(self, own: Hello, other: Hello, config: GroupConfig | None) -> str | None:
        return judge(own, other, config)

    def make_node(self, member: "Member") -> RaftNode:
        return self.node_class(
            member.settings,
            member.log,
            member.votes,
            hello=member.hello,
            clock=member.steady,
            rng=member.rng,
            send=lambda peer, message: member.world.carry(member.name, peer, message),
            events=member,
        )


class Member:
    """A machine and its process. `raft`, `store`, `log`, `votes` and `steady` are those of the present life."""

    steady: SteadyClock
    raft: RaftNode
    store: MessageStore
    log: EntryLog
    votes: VoteFile

    def __init__(
        self, world: Surroundings, parts: Parts, settings: RaftSettings, folder: Path, rng: random.Random
    ) -> None:
        self.world = world
        self.parts = parts
        self.name = settings.self_id
        self.settings = settings
        self.rng = rng
        self.disk = SimDisk(folder, rng)
        self.clock = SimClock(lambda: world.now)
        self.alive = False
        self.paused = False
        self.life = 0
        # What waited while the process was stopped.
        self.inbox: list[Callable[[], object]] = []
        self.fsync_s = 0.002
        self.fatal: BaseException | None = None
        # The power went in the middle of the last start.
        self.power_cut = False
        # The power goes after so many operations of the next start.
        self.boot_fuse: int | None = None
        # The next start is killed when it has put so many batches into its queues.
        self.boot_kill: int | None = None
        self.killed_in_start = False
        self.reset_from: str | None = None
        self._tick_token = 0
        self._tick_at = float("inf")
        self._flushing = False
        self._lingering = False
        self._working = False

    # -- life

    def boot(self) -> None:
        """Start the process on what the disk holds."""
        assert not self.alive
        self.disk.revive()
        self.disk.fuse, self.boot_fuse = self.boot_fuse, None
        self.life += 1
        self.paused = False
        self.inbox = []
        self.fatal = None
        self._tick_at = float("inf")
        self._flushing = self._lingering = self._working = False
        parts = self.parts
        self.steady = parts.make_clock(self)
        try:
            config = replace(STORE, storePathRootDir=str(self.disk.root))
            batches, self.boot_kill = self.boot_kill, None
            self.told = Told()
            with killed_after(batches, self.disk):
                self.store = parts.open_store(config, self)
            self.alive = True
            assert self.store.entries is not None, "a member's store has entries"
            self.log = self.store.entries
            self.votes = parts.open_votes(self)
            self.raft = parts.make_node(self)
        except Exception as error:
            self.killed_in_start = _has_cause(error, KilledInStart)
            self.power_cut = self.disk.dead and not self.killed_in_start
            self._abandon()
            raise
        self.told.flushed, self.told.fatal = self._on_durable, self.on_fatal
        self._watch_cuts()
        self.world.watch.booted(self)
        self.raft.start()
        self.wake()

    def _watch_cuts(self) -> None:
        cut = self.log.cut

        def watched(last: int) -> None:
            self.world.say(lambda: f"{self.name} cuts its log behind entry {last}")
            self.world.watch.cut(self, last)
            cut(last)

        self.log.cut = watched  # type: ignore[method-assign]  # looked at, and done

    def stop(self) -> None:
        """End the process in good order, as far as its disk lets it."""
        self.told.flushed = self.told.fatal = nobody
        with suppress(OSError, StoreError):
            self.store.close()
        power = self.disk.dead
        self._abandon()
        if power:
            self.disk.lose_power()

    def end(self, *, power: bool) -> None:
        """End the process at this very moment; with `power` the machine too."""
        self._abandon()
        if power:
            self.disk.lose_power()

    def _abandon(self) -> None:
        self.alive = False
        self.life += 1
        self.disk.die()
        store = getattr(self, "store", None)
        if store is not None:
            self.told.fatal = nobody
            # The entries of the queues that were not written yet are memory, and go with it.
            store._queues._dirty.clear()
            with suppress(OSError, StoreError):
                store.close()
            del self.store

    @property
    def filed_floor(self) -> int:
        """The entry up to which the floor's file says that all is synced: what goes bad below it must be missed."""
        mark = read_floor(self.disk.root)
        return 0 if mark is None else mark.index

    def spoil(self, position: int) -> None:
        """Let the byte at a position of the log go bad on the disk, of an entry up to `filed_floor`.

        The floor is durable by then: what the last group commit synced, the floor file says from the next one on.
        """
        self.disk.write_back(self.disk.root / FLOOR_NAME)
        start = position - position % FILE_BYTES
        self.disk.rot(self.disk.root / "commitlog" / f"{start:020d}", position - start, 1)

    def lose_file(self, number: int) -> None:
        """Let a file of the log be gone, with entries up to `filed_floor`; see spoil()."""
        self.disk.write_back(self.disk.root / FLOOR_NAME)
        self.disk.lose(self.disk.root / "commitlog" / f"{number * FILE_BYTES:020d}")
        self.world.say(lambda: f"{self.name} loses file {number} of its log")

    @property
    def leads(self) -> bool:
        """Whether the process runs and thinks that it leads."""
        return self.alive and self.raft.role == Role.LEADER

    # -- the transport's part

    def hello(self) -> Hello:
        """Say who this is and what it has, as the broker does."""
        log = self.log
        at = log.last_config()
        config = GroupConfig.decode(log.payload(at)) if at else None
        last = log.last
        return Hello(
            group=self.settings.group,
            self_id=self.name,
            store_id=self.votes.store_id,
            group_id=config.group_id if config is not None else b"",
            last_index=last.index,
            last_term=last.term,
            base_index=config.base_index if config is not None else log.base.index,
            base_position=config.base_position if config is not None else log.base.end,
            empty=self.store.written == 0,
            has_log=last.index > 0,
            log_file_bytes=FILE_BYTES,
            flush_sync=True,
            clock_ms=self.steady.wall_ms(),
            base_digest=config.base_digest if config is not None else 0,
            config_index=at,
            peer_ids=tuple(peer.id for peer in self.settings.peers),
        )

    def hello_bytes(self) -> bytes:
        """Return the hello as it goes over the wire."""
        return self.hello().encode()

    @staticmethod
    def decode_hello(data: bytes) -> Hello:
        """Return a peer's hello."""
        return Hello.decode(data)

    def judge(self, data: bytes) -> str | None:
        """Return why this member does not talk to a peer with such a hello."""
        return self.parts.judge(self.hello(), Hello.decode(data), self.raft.config)

    # -- the driver's part

    def wake(self) -> None:
        """Tick soon."""
        self._tick_by(self.world.now)

    def push_in(self, seconds: float) -> None:
        """Have the node push after so long by its own clock."""
        node = self.raft
        self.world.after(self.clock.true_seconds(seconds), node.push, on=self)

    def _tick_by(self, moment: float) -> None:
        if moment >= self._tick_at:
            return
        self._tick_at = moment
        self._tick_token += 1
        token = self._tick_token
        self.world.after(max(0.0, moment - self.world.now), lambda: self._tick(token), on=self)

    def _tick(self, token: int) -> None:
        if token != self._tick_token:
            return
        self._tick_at = float("inf")
        wait = self.raft.tick()
        assert wait >= 0, "a node never wants a tick in the past"
        self._tick_by(self.world.now + max(0.0005, self.clock.true_seconds(wait)))

    def settle(self) -> None:
        """Run after every event of this member: have what was written synced in a while."""
        if not self._flushing and self.store.written > self.store.flushed:
            self._flushing = True
            pause = self.fsync_s * (0.5 + self.rng.random())
            self.world.after(pause, self._flush, on=self)
        if self.log.mending.busy and not self._working:
            self._working = True
            self.world.after(self.fsync_s * (0.5 + self.rng.random()), self._work, on=self)

    def _work(self) -> None:
        """Do what the store's worker does, and let the node know."""
        self._working = False
        self._run_helper()
        self.wake()

    def _flush(self) -> None:
        self._flushing = False
        self.store.step_flush()
        self._run_helper()
        if not self._lingering:
            self._lingering = True
            self.world.after(LAG_SECONDS, self._linger, on=self)

    def _linger(self) -> None:
        """Let the floor's file follow what was synced, as the flusher does between syncs."""
        self._lingering = False
        self.store.flusher._lingered()

    def _run_helper(self) -> None:
        while self.store.step_helper():
            pass

    def expires(self, age_ms: int) -> int:
        """Return how many entries of its log it would have deleted as leader, were messages kept for so long."""
        if not self.raft.serving or not self.raft.clocks.agreed(self.raft.config):
            return 0
        before = self.steady.now_ms() - age_ms
        oldest = self.log.read(self.log.base.index + 1, 1)
        if not oldest or decode_control(bytes(oldest[0].data)).timestamp >= before:
            return 0
        return sum(
            decode_control(bytes(self.log.read(at, 1)[0].data)).timestamp < before
            for at in range(self.log.base.index + 1, self.log.released + 1)
        )

    def idle(self) -> None:
        """Do the store's upkeep."""
        self.store.idle()
        self._run_helper()

    def _on_durable(self, position: int) -> None:
        """Carry it into the loop, as the driver does: what happens in between happens."""
        self.world.after(self.rng.random() * 0.001, lambda: self._durable(position), on=self)

    def _durable(self, position: int) -> None:
        self.raft.durable(self.log.settle(position))

    # -- NodeEvents

    def on_commit(self, index: int) -> None:
        self.world.watch.committed(self, index)
        self.log.release(index)

    def on_role(self, role: Role, term: int) -> None:
        self.world.say(lambda: f"{self.name} is {role.name} in term {term}")
        self.world.watch.role(self, role, term)

    def on_leader(self, member_id: str | None) -> None:
        self.world.say(lambda: f"{self.name} follows {member_id}")

    def on_config(self, config: GroupConfig) -> None:
        self.world.say(
            lambda: f"{self.name} config " + " ".join(m.id + ("" if m.voter else "?") for m in config.members)
        )

    def on_fatal(self, error: BaseException) -> None:
        self.world.say(lambda: f"{self.name} cannot go on: {error!r}")
        self.fatal = error

    def reset_wanted(self, member_id: str) -> None:
        self.reset_from = member_id


def _has_cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
