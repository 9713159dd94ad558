"""A slave's way behind its master: find it, compare logs (R16), take over what it sends, begin again when it is lost.

The order on each connection: connect to the HA port, ask the master at its broker address who it is, compare, write
down what must not be forgotten (ha_pair.py), report. The connection stands before the master is asked: if another
process answers by then, the connection is that process's or dead, so that a verdict never serves for a log that it was
not made about. A connection that breaks after the verdict takes the verdict with it; what was found to be the same with
one incarnation of the master is remembered, so that only a master that was started again is compared with anew.
Nothing that comes is taken before the master tells that the report reached it, and what came is compared with its
digests from time to time: a haMasterAddress that leads to another broker does no harm (ha_check.py).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

from broker.master_slave.ha_check import FollowedCheck
from broker.master_slave.ha_compare import LogVerdict, MasterLog, OwnLog, VerdictKind, compare, why_no_slaves
from broker.master_slave.ha_receive import SLICE_BYTES, LateDispatch, OnDisk, ReceivedLog, Receiver
from broker.master_slave.ha_source import FactsMissing, HaSource
from broker.master_slave.ha_standing import Standing
from broker.master_slave.ha_state import Followed, HaEvents, Held, NotWaiting, SlaveStore, State, Watch, held_back
from broker.peers import Invoker
from broker.settings.pair_keys import SYNC_MASTER, ClassicKeys
from broker.settings.pair_memory import PairMemory, copying_anew, cutting, load_memory, save_memory
from remoting.address import parse_address
from runtime.busypoll import BusyPoll
from runtime.clock import Clock, SystemClock
from runtime.tls import Contexts, current, tls_words
from store.errors import StoreError

__all__ = ["HaClient", "HaEvents", "NotWaiting", "State"]

_log = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0
PROXY_SECONDS = 0.1  # In which a proxy that finds no master behind it ends what it took.
# Seconds between two attempts: the first, doubled each time, at most.
BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 5.0


class _Gone(Exception):
    """An attempt is over; the text says why."""


class HaClient:
    """See the module. set_master() tells where, start() begins."""

    def __init__(
        self,
        store: SlaveStore,
        keys: Callable[[], ClassicKeys],
        client: Invoker,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        *,
        sync_flush: bool,
        events: HaEvents,
        root: Path,
        epoch: Callable[[], int] = lambda: 0,
        clock: Clock | None = None,
        polling: BusyPoll | None = None,
    ) -> None:
        """`root`: of the store, for pair.json; `epoch`: the highest known; `sync_flush`: report what is on disk."""
        assert store.slave is not None, "the store was opened as a slave's"
        self._store = store
        self._log: ReceivedLog = store.slave
        self._keys = keys
        self._loop = loop
        self._threads = threads
        self._sync_flush = sync_flush
        self._events = events
        self._root = root
        self._epoch = epoch
        self._source = HaSource(client, store, loop, threads)
        self._check = FollowedCheck(self._source, self._look, self._log, store.file_bytes)
        self._watch = Watch(loop, SystemClock() if clock is None else clock, events.master_changed)
        self._dispatch = LateDispatch(self._log, loop, self._resume)
        self._disk = OnDisk(self._log, loop, self._flushed)
        self._made = partial(Receiver, self._log, self._dispatch, loop, sync_flush=sync_flush, polling=polling)
        # For the store's flusher thread: StoreEvents.flushed.
        self.flushed_in_thread = self._disk.flushed_in_thread if sync_flush else lambda _position: None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._memory = PairMemory()
        self._state, self._why, self._said = State.NO_MASTER, "no NameServer has told of one yet", ""
        self._master: tuple[str, str] | None = None  # Broker address and HA address.
        # Which incarnation all of the own log is known to agree with.
        self._agreed = ""
        self._standing = Standing(loop)
        self._held: Held | None = None
        self._backoff = BACKOFF_FIRST_SECONDS

    # -- what the broker does

    async def start(self, secrets: tuple[bytes, ...] = (), tls: Contexts | None = None) -> None:
        """Begin to look for the master, who must know one of the `secrets`, if any. OSError without a pair.json."""
        self._tls = tls
        self._made = partial(self._made, secrets=secrets)
        self._memory = await self._loop.run_in_executor(self._threads, load_memory, self._root)
        self._task = self._loop.create_task(self._run(), name="ha-client")
        self._tick()

    async def close(self) -> None:
        """Follow no more; may be called twice, or without start()."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._dispatch.close()

    def set_master(self, broker_address: str | None, ha_address: str | None) -> None:
        """Take over what a NameServer says of the master, "host:port" each; haMasterAddress overrides the second.

        None for the first one, nobody knows of a master now, changes nothing: the last one that was known is followed
        as long as it answers.
        """
        if not broker_address:
            return
        master = (broker_address, self._keys().haMasterAddress or ha_address or "")
        if master != self._master:
            self._master = master
            self._backoff = BACKOFF_FIRST_SECONDS
            self._changed.set()
            if self._watch.link is not None:
                self._watch.link.drop("the NameServer names another master")

    def accept_master(self) -> LogVerdict:
        """Do what waits for a person's consent, which this is; returns what that is. Raises NotWaiting.

        What leaves the log is kept in the store's folder `cut`.
        """
        if self._held is None:
            raise NotWaiting(f"this slave waits for no decision, its state is '{self._state.value}': {self._why}")
        verdict = self._held.verdict
        _log.warning("a person has accepted the master's log: %s", verdict.why)
        self._act(verdict)
        self._changed.set()
        return verdict

    @property
    def master_alive(self) -> bool:
        """Whether the master is there: connected, or heard of lately (haHousekeepingInterval) and not known as gone."""
        return self._watch.alive(self._idle)

    @property
    def waits_for(self) -> str | None:
        """Why a person must decide before this slave follows; None when nobody must."""
        return self._held.words if self._held is not None else None

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._state

    @property
    def followed(self) -> Followed | None:
        """The master whose log comes here now, None when none does or that is not certain."""
        return self._standing.followed

    @property
    def log_id(self) -> str | None:
        """The log's name, None while it has none."""
        return self._memory.log_id or None

    @property
    def why_stale(self) -> str | None:
        """Why this log may lack what the master has, or be nobody's; None when it follows, or the master is away."""
        has_followed = bool(self._memory.master and self._log.written)
        if self._state is State.NO_MASTER and has_followed:
            return None
        return self._standing.why_stale(
            self._why,
            has_followed=has_followed,
            heard=self._watch.link is not None and self._watch.link.accepted,
            alive=self.master_alive,
            grace=self._idle,
        )

    def status(self) -> dict[str, Any]:
        """Return all that is known, for people and tools; times in ms since the epoch, positions in bytes."""
        written = self._log.written
        return {
            "state": self._state.value,
            "why": self._why,
            "address": self._master[0] if self._master else None,
            "haAddress": self._master[1] if self._master else None,
            "alive": self.master_alive,
            **self._watch.status(written),
            "coveredUpTo": self._memory.covered_upto(written),
            "waitsFor": self._held.status() if self._held is not None else None,
        }

    # -- the way behind the master

    async def _run(self) -> None:
        while not self._ended:
            if self._master is None:
                await self._pause(None)
                continue
            try:
                await self._attempt(*self._master)
            except _Gone as error:
                self._say(str(error))
            except FactsMissing as error:
                self._say(f"the logs cannot be compared, so it does not follow: {error}")
            except (StoreError, OSError) as error:
                self._say(f"it cannot follow: {error}", level=logging.ERROR)
            except Exception:
                _log.exception("following the master failed; it is tried again")
            self._standing.tried = True
            if not self._ended:
                await self._pause(self._backoff)

    @property
    def _ended(self) -> bool:
        """Whether the broker is to be closed and started again: nothing is begun any more."""
        return self._state in {State.CUTTING, State.ANEW}

    async def _pause(self, seconds: float | None) -> None:
        """Wait until it is time for another attempt, or there is another master."""
        self._backoff = min(self._backoff * 2, BACKOFF_MAX_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _attempt(self, address: str, ha_address: str) -> None:
        if self._held is not None and await self._still_differs(address, self._held.master):
            return
        if not ha_address:
            raise _Gone(why_no_slaves(address, await self._look(address)))
        link = await self._connect(address, ha_address)
        if self._master != (address, ha_address):
            link.drop("the NameServer names another master")
            raise _Gone(f"{ha_address} is not the master any more")
        self._watch.connected(link)
        try:
            facts = await self._meet(address, link)
            self._move(State.COMPARING, self._said or f"with {address}")
            verdict = await compare(await self._own_log(), facts, self._source.logs(address, facts.incarnation))
            if self._ended:
                return
            self._events.judged(verdict)
            if verdict.kind is VerdictKind.GO_ON:
                self._agreed = facts.incarnation
                await self._follow(address, facts, verdict, link)
            else:
                self._decide(verdict, facts, address)
        finally:
            link.drop("this attempt is over")
            if link.distrusted:
                self._agreed = ""
            self._watch.connected(None)
            self._standing.follows_no_more()
            if self._state in {State.COMPARING, State.FOLLOWING}:
                self._state = State.CONNECTING

    async def _connect(self, address: str, ha_address: str) -> Receiver:
        if self._held is None:
            self._move(State.CONNECTING, self._said or f"to {ha_address}")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                where, tls = parse_address(ha_address), current(self._tls)
                _, link = await self._loop.create_connection(self._made, *where, ssl=tls)
                await link.proved()
        except (OSError, ValueError) as error:
            # Its HA port alone may be closed: then it lives. If not even that can be told, it is gone.
            with contextlib.suppress(FactsMissing):
                await self._meet(address, None)
            why = f"none within {CONNECT_SECONDS:g} s" if isinstance(error, TimeoutError) else tls_words(error)
            raise _Gone(f"no connection to the master's HA port {ha_address}: {why}") from None
        return link

    async def _meet(self, address: str, link: Receiver | None) -> MasterLog:
        """Ask the master what it is: a connection to its HA port alone may be a proxy's, and no sign of life."""
        try:
            return await self._look(address)
        except FactsMissing:
            if link is None or (await asyncio.wait({link.lost}, timeout=PROXY_SECONDS))[0]:
                self._watch.gone()
            raise
        finally:
            self._watch.tell(self._idle)

    async def _look(self, address: str) -> MasterLog:
        """Ask the master what it is."""
        facts = await self._source.master_log(address)
        self._watch.said(facts)
        return facts

    async def _own_log(self) -> OwnLog:
        more = True
        while more:
            await asyncio.sleep(0)
            more = self._log.dispatch(SLICE_BYTES)
        places = (*self._store.log_range(), self._log.dispatched)
        kept, file_bytes = self._memory, self._store.file_bytes
        return OwnLog.remembered(*places, file_bytes=file_bytes, memory=kept, epoch=self._epoch(), agreed=self._agreed)

    async def _follow(self, address: str, facts: MasterLog, verdict: LogVerdict, link: Receiver) -> None:
        """Report, take what comes, and return when the connection is over."""
        self._held = None
        if self._sync_flush:
            await self._disk.all()
        sync, end = facts.role == SYNC_MASTER, self._log.written
        memory = self._memory.following(facts.epoch, address, facts.log_id, sync=sync, end=end)
        if memory != self._memory:
            # Before the report: what is acknowledged because of it must be known after any crash.
            await self._loop.run_in_executor(self._threads, save_memory, self._root, memory)
            self._memory = memory
        if not link.lost.done():
            link.begin(verdict.position, hold=bool(facts.incarnation))
            await self._check.confirm(address, facts, link)
        if not link.lost.done():
            self._standing.followed = Followed(address, facts.incarnation, verdict.position)
            self._said = ""
            self._move(State.FOLLOWING, f"{address}, from {verdict.position} on: {verdict.why}")
            _log.info("follows the master %s from %d on: %s", address, verdict.position, verdict.why)
            self._events.follows()
            link.release()
        while not link.lost.done():
            await asyncio.wait({link.lost}, timeout=self._keys().haSendHeartbeatInterval / 1000)
            if not link.lost.done():
                end = await self._check.again(address, facts, link, end)
        if link.accepted:
            self._backoff = BACKOFF_FIRST_SECONDS
        raise self._dispatch.failure or _Gone(link.lost.result())

    # -- verdicts other than to go on

    def _decide(self, verdict: LogVerdict, facts: MasterLog, address: str) -> None:
        self._held = None
        if verdict.kind is VerdictKind.REFUSE:
            self._move(State.REFUSED, f"{address}: {verdict.why}")
            self._say(f"it does not follow the master {address}: {verdict.why}", level=logging.ERROR)
        elif not verdict.person:
            _log.warning("%s (%d bytes leave the log): %s", verdict.kind.value, verdict.lost, verdict.why)
            self._act(verdict)
        else:
            self._held = held_back(verdict, facts, address)
            self._move(State.WAITING, self._held.words)
            self._say(f"a person must decide: {self._held.words}", level=logging.ERROR)

    async def _still_differs(self, address: str, then: MasterLog) -> bool:
        """Tell whether the master is the one that was found to differ: then nothing else could be found."""
        now = await self._look(address)
        self._watch.tell(self._idle)
        same = (now.incarnation, now.role, now.fenced) == (then.incarnation, then.role, then.fenced)
        return self._ended or bool(now.incarnation and same)

    def _act(self, verdict: LogVerdict) -> None:
        """Have the broker started again on a folder that agrees with the master."""
        self._held = None
        if verdict.kind is VerdictKind.CUT:
            self._move(State.CUTTING, verdict.why)
            self._events.must_restart(cutting(verdict.position, verdict.why))
        else:
            self._move(State.ANEW, verdict.why)
            self._events.must_restart(copying_anew(verdict.why))

    def _move(self, state: State, why: str) -> None:
        self._state, self._why = state, why

    # -- what is told, and what goes by time

    def _say(self, why: str, *, level: int = logging.WARNING) -> None:
        """Log why it does not follow, once as long as that is the same."""
        if self._state not in {State.WAITING, State.REFUSED}:
            self._why = why
        if why != self._said:
            self._said = why
            _log.log(level, "slave: %s", why)

    @property
    def _idle(self) -> float:
        return self._keys().haHousekeepingInterval / 1000

    def _tick(self) -> None:
        """Do what goes by time: heartbeats, silence, whether the master lives."""
        heartbeat, idle = self._keys().haSendHeartbeatInterval / 1000, self._idle
        if self._watch.link is not None:
            self._watch.link.tick(heartbeat, idle)
        self._watch.tell(idle)
        self._timer = self._loop.call_later(min(heartbeat, idle) / 2, self._tick)

    def _resume(self) -> None:
        if self._watch.link is not None:
            self._watch.link.resume()

    def _flushed(self) -> None:
        if self._watch.link is not None:
            self._watch.link.flushed()
