"""Bugs of the store: disks that lie, queues and index that are not what the log makes of them, bytes that differ."""

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raft.protocol.types import EntryType
from remoting.record import HEADS
from remoting.topics import RAFT_TOPIC
from store.controlrecord import Control, decode_control
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.files.checkpoint import Checkpoint
from store.files.disk import Disk
from store.log.assembler import Assembler
from store.log.checkpointer import Keeper
from store.log.logscan import Found
from store.raftlog import entrylog, entryscan
from store.raftlog.entrycheck import Checked
from store.raftlog.entryscan import EntryScan
from store.recovery.opening import _Mending
from store.types import Dispatched, PendingRecord, PutResult, PutStatus
from tests.chaos.planted.grafts import graft, once_in

# How long a sync that was reported as done still takes.
LIE_S = 0.4
POLL_S = 0.02
# How long each batch of a slow rebuild takes.
SLOW_S = 0.1


def lie_about_syncs() -> None:
    """Report each fdatasync as done at once, and do it a little later, as a disk with a volatile cache does."""
    due: deque[tuple[float, int]] = deque()

    def make(honest: Any) -> Any:
        def fdatasync(self: Disk, fd: int) -> None:
            # A descriptor of its own: the broker may have closed that one by then.
            due.append((time.monotonic() + LIE_S, os.dup(fd)))

        def sync_late() -> None:
            disk = Disk()
            while True:
                time.sleep(POLL_S)
                late: dict[str, list[int]] = {}
                while due and due[0][0] <= time.monotonic():
                    fd = due.popleft()[1]
                    late.setdefault(str(Path(f"/proc/self/fd/{fd}").readlink()), []).append(fd)
                for fds in late.values():
                    honest(disk, fds[-1])
                    for fd in fds:
                        os.close(fd)

        threading.Thread(target=sync_late, name="late-syncs", daemon=True).start()
        return fdatasync

    graft(Disk, "fdatasync", make)


def mislead_queues() -> None:
    """Let an entry of a ConsumeQueue now and then point to the message before its own, which is in no queue then."""
    now = once_in(150)

    def make(honest: Any) -> Any:
        def append_many(self: ConsumeQueues, batch: Sequence[Dispatched], *, rebuilding: bool = False) -> None:
            honest(self, batch, rebuilding=rebuilding)
            for entry in batch:
                queue = self._queues.get((entry.topic, entry.queue_id))
                if queue is None or entry.topic == RAFT_TOPIC or not now():
                    continue
                at = entry.queue_offset - queue.persisted
                if 0 < at < len(queue.tail):
                    queue.tail[at] = queue.tail[at - 1]

        return append_many

    graft(ConsumeQueues, "append_many", make)


def assign_offsets_twice() -> None:
    """Give a message now and then the queue offset that the one before it has: the queue then knows the later one."""
    now = once_in(60)

    def make(honest: Any) -> Any:
        def put_many(self: Assembler, records: Sequence[PendingRecord]) -> list[PutResult]:
            results: list[PutResult] = honest(self, records)
            queue = (records[-1].topic, records[-1].queue_id)
            if results[-1].status is PutStatus.PUT_OK and self._next.get(queue, 0) > 1 and now():
                self._next[queue] -= 1
            return results

        return put_many

    graft(Assembler, "put_many", make)


def write_other_bytes() -> None:
    """Change a byte of a leader's entry now and then between checking and writing it: the follower's log differs."""
    now = once_in(40)

    def make(honest: Any) -> Any:
        def check_entries(*arguments: Any) -> list[Checked]:
            return [
                _spoilt(one) if one.control.kind is EntryType.MESSAGES and now() else one for one in honest(*arguments)
            ]

        return check_entries

    graft(entrylog, "check_entries", make)


def _spoilt(one: Checked) -> Checked:
    """Change the last byte of the body of an entry's first record."""
    data = bytearray(one.data)
    body_bytes: int = HEADS[0].unpack_from(data, one.control.size)[-1]
    data[one.control.size + HEADS[0].size + body_bytes - 1] ^= 0x20
    return Checked(one.control, bytes(data))


def trust_what_is_read() -> None:
    """Take whatever bytes recovery finds in the log for those that were written: no CRC of a body or entry counts."""

    def make_check(honest: Any) -> Any:
        def check_record(view: memoryview, at: int, position: int, *, check_crc: bool) -> Any:
            return honest(view, at, position, check_crc=False)

        return check_record

    def make_item(honest: Any) -> Any:
        def item(self: EntryScan, span: Any, size: int, timestamp: int) -> Found | Control | str:
            found: Found | Control | str = honest(self, span, size, timestamp)
            if isinstance(found, str) and "do not match their CRC" in found:
                return decode_control(self._view, self.end - self._base)
            return found

        return item

    graft(entryscan, "check_record", make_check)
    graft(EntryScan, "_item", make_item)


def leave_messages_out_of_the_index() -> None:
    """Keep a message out of the key index now and then."""
    now = once_in(100)

    def make(honest: Any) -> Any:
        def append_many(self: MessageIndex, batch: Sequence[Dispatched]) -> None:
            honest(self, [entry for entry in batch if not now()])

        return append_many

    graft(MessageIndex, "append_many", make)


def forget_holes() -> None:
    """Lower no checkpoint for a hole: what a start found missing, the next one after a kill knows nothing of."""
    graft(_Mending, "_lower", _nothing)
    graft(_Mending, "_holds", _trusting)
    graft(Keeper, "hold", _nothing)


def take_rebuilds_for_complete() -> None:
    """Build queues anew without lowering the checkpoint first, and ask at a start only whether there are any.

    It is as slow as that of a larger log, so that who is killed in the middle is killed in the middle.
    """

    def make_slow(honest: Any) -> Any:
        def append_many(self: ConsumeQueues, batch: Sequence[Dispatched], *, rebuilding: bool = False) -> None:
            honest(self, batch, rebuilding=rebuilding)
            if rebuilding:
                self.persist()
                time.sleep(SLOW_S)

        return append_many

    graft(_Mending, "_lower", _nothing)
    graft(_Mending, "_holds", _trusting)
    graft(ConsumeQueues, "append_many", make_slow)


def _nothing(_honest: Any) -> Any:
    """Return what is told a position and does nothing about it."""

    def ignore(_self: Any, _position: int | None, _totals: Any = None) -> None:
        return None

    return ignore


def _trusting(honest: Any) -> Any:
    """Return a look at the queues that is content with any."""

    def holds(self: _Mending, known: Checkpoint) -> bool:
        return self._queues.totals()[1] > 0 or bool(honest(self, known))

    return holds
