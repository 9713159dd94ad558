"""SYNC_MASTER: a message is acknowledged when enough slaves have it too (inSyncReplicas counts this broker in).

What one turn of the loop wrote waits together, for fdatasync (SYNC_FLUSH) and for slaves at the same time, and turns
wait behind one another without holding each other up: W sends in flight share one round trip. When too few slaves are
in sync at the moment of writing, nothing waits for them: it is stored, and the code says so.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from broker.master_slave.local_replication import LocalReplication, LogStore, Turn, sends_in
from broker.replication import Done
from broker.settings.config import LiveConfig
from broker.settings.pair_keys import SYNC_MASTER, ClassicKeys
from remoting.codes import ResponseCode
from store.config import SYNC_FLUSH
from store.types import PutResult, PutStatus

_log = logging.getLogger(__name__)

_SUCCESS = int(ResponseCode.SUCCESS)
_FLUSH_DISK_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_FLUSH_SLAVE_TIMEOUT = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
_SLAVE_NOT_AVAILABLE = int(ResponseCode.SLAVE_NOT_AVAILABLE)
_OK = PutStatus.PUT_OK


class Slaves(Protocol):
    """What SyncReplication needs of the HA port, which calls advance()."""

    def acked_by(self, slaves: int) -> int:
        """Return the position up to which at least so many slaves hold the log."""
        ...

    def in_sync(self) -> int:
        """Return how many slaves are connected and close behind."""
        ...


class _Written(NamedTuple):
    """What one turn wrote and somebody waits for; positions and times of the loop's clock."""

    begin: int
    end: int
    flush_by: float
    slaves_by: float
    # What is answered however well it goes: SUCCESS, or SLAVE_NOT_AVAILABLE.
    code: int
    began: float
    """When the first of them came."""
    entries: list[Turn]
    results: list[Any]

    def next_deadline(self, now: float) -> float:
        """Return when to look again at the latest."""
        return min([deadline for deadline in (self.flush_by, self.slaves_by) if deadline > now], default=now)

    def verdict(self, flushed: int, held: int, now: float) -> int | None:
        """Return the answer's code, None while it is open. A slave's failure outweighs the disk's, as in RocketMQ."""
        on_disk = self.end <= flushed
        if not on_disk and now < self.flush_by:
            return None
        if self.end > held:
            return _FLUSH_SLAVE_TIMEOUT if now >= self.slaves_by else None
        return self.code or (_SUCCESS if on_disk else _FLUSH_DISK_TIMEOUT)


class SyncReplication(LocalReplication):
    """The master that waits for slaves; with inSyncReplicas=1 it waits for none.

    `on_written` must push to the slaves (HaServer.advanced).
    """

    def __init__(
        self,
        store: LogStore,
        loop: asyncio.AbstractEventLoop,
        slaves: Slaves,
        keys: Callable[[], ClassicKeys],
        *,
        sync_flush: bool,
        flush_timeout: float,
        pending_bytes_max: int,
        on_written: Callable[[], None],
    ) -> None:
        """`keys` gives the configuration that holds now; the rest as of LocalReplication."""
        super().__init__(
            store,
            loop,
            sync_flush=sync_flush,
            flush_timeout=flush_timeout,
            pending_bytes_max=pending_bytes_max,
            on_written=on_written,
        )
        self._slaves = slaves
        self._keys = keys
        # By how many slaves are waited for; among those the first written is the first answered.
        self._waiting: dict[int, deque[_Written]] = {}
        self._flushed_end = store.written
        # What the turn that is being written waits for: how many slaves, and the code if that works out.
        self._needed = 0
        self._code = _SUCCESS
        # Behind the turn before.
        self._begin = store.written
        self.acknowledged_by_slaves = 0
        """A position: something that ends there was acknowledged because slaves had it; everything before is there too.

        Of this start of the process; 0 when nothing was.
        """

    @property
    def in_sync_replicas(self) -> int:
        """How many brokers a send needs at the moment, this one included: enableAutoInSyncReplicas may lower it."""
        return self._required(self._slaves.in_sync()) + 1

    def _required(self, in_sync: int) -> int:
        """Return how many slaves a send needs."""
        keys = self._keys()
        required = keys.inSyncReplicas - 1
        if in_sync < required and keys.enableAutoInSyncReplicas:
            required = max(in_sync, keys.minInSyncReplicas - 1)
        return required

    def confirm(self, stored: PutResult, done: Done, *, wait: bool = True) -> None:
        """Tell when a record that is in the queues is where it must be: on the disk, and on slaves."""
        self._await_again(stored, done, wait=wait)
        # They may have it already, and then nothing more comes from them.
        self._loop.call_soon(self.advance)

    def _put(self, turn: list[Turn]) -> list[Any]:
        # Before the write: what is being written must not count as what a slave is behind by.
        in_sync = self._slaves.in_sync()
        required = self._required(in_sync)
        self._needed, self._code = (required, _SUCCESS) if in_sync >= required else (0, _SLAVE_NOT_AVAILABLE)
        return super()._put(turn)

    def _settle(self, turn: list[Turn], results: list[Any]) -> None:
        needed, code, begin = self._needed, self._code, self._begin
        self._begin = self._put_end
        if not needed and not code and not self._sync:
            self._complete(turn, results)
            self._answered(self._began, self._sends)
            self.advance()
            return
        entries: list[Turn] = []
        waiting: list[Any] = []
        at_once: list[Turn] = []
        unsafe: list[Any] = []
        for entry, result in zip(turn, results, strict=True):
            last = result[-1] if type(result) is list else result
            if entry.wait and last.status is _OK:
                entries.append(entry)
                waiting.append(result)
            else:
                at_once.append(entry)
                unsafe.append(result)
        if at_once:
            self._complete(at_once, unsafe)
        if entries:
            now = self._loop.time()
            slaves_by = now + self._keys().slaveTimeout / 1000
            # Up to the end of the turn: it is written, flushed and sent as one.
            flush_by = now + self._flush_timeout
            written = _Written(begin, self._put_end, flush_by, slaves_by, code, self._began, entries, waiting)
            self._waiting.setdefault(needed, deque()).append(written)
        if self._sync and self._put_end > self._flushed_end:
            self._store.flush_soon(self._put_end)
        if needed and entries and self._timer is not None:
            # The usual turn: no slave can have it yet, and somebody looks when that takes too long.
            return
        self.advance()

    def flushed(self, position: int) -> None:
        """Answer whoever waited for what is on the disk now, as far as the slaves have it."""
        self._flushed_end = max(self._flushed_end, position)
        self.advance()

    def advance(self) -> None:
        """Answer what has become safe, or has waited too long."""
        now = self._loop.time()
        safe = self._put_end
        flushed = self._flushed_end if self._sync else safe
        deadline = math.inf
        for needed, waiting in self._waiting.items():
            if not waiting:
                continue
            held = self._slaves.acked_by(needed) if needed else self._put_end
            while waiting and (code := waiting[0].verdict(flushed, held, now)) is not None:
                written = waiting.popleft()
                if needed and code == _SUCCESS:
                    self.acknowledged_by_slaves = max(self.acknowledged_by_slaves, written.end)
                self._answer(written, code)
            if waiting:
                safe = min(safe, waiting[0].begin)
                deadline = min(deadline, waiting[0].next_deadline(now))
        self._safe_end = min(safe, flushed)
        if self._timer is None and deadline < math.inf:
            # It is not moved when the first that waits is answered: then it finds the next one, and is set again.
            self._timer = self._loop.call_at(deadline, self._expire)
        self._check_empty()

    def _expire(self) -> None:
        self._timer = None
        self.advance()

    def _answer(self, written: _Written, code: int) -> None:
        for entry, result in zip(written.entries, written.results, strict=True):
            try:
                entry.done(result, code)
            except Exception:
                _log.exception("an acknowledgement could not be delivered")
        self._answered(written.began, sends_in(written.entries))

    def _idle(self) -> bool:
        return not self._turn and not any(self._waiting.values())


def master_replication(
    live: LiveConfig, store: LogStore, loop: asyncio.AbstractEventLoop, slaves: Slaves, on_written: Callable[[], None]
) -> LocalReplication:
    """Return what keeps a master's messages safe: a SyncReplication where it waits for slaves."""
    flush_timeout, pending = live.store.syncFlushTimeout / 1000, live.broker.pendingBytesMax
    sync_flush = live.store.flushDiskType == SYNC_FLUSH
    if live.broker.brokerRole == SYNC_MASTER:
        return SyncReplication(
            store,
            loop,
            slaves,
            lambda: live.broker,
            sync_flush=sync_flush,
            flush_timeout=flush_timeout,
            pending_bytes_max=pending,
            on_written=on_written,
        )
    return LocalReplication(
        store,
        loop,
        sync_flush=sync_flush,
        flush_timeout=flush_timeout,
        pending_bytes_max=pending,
        on_written=on_written,
    )
