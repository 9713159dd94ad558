"""Delay levels: messages that wait in SCHEDULE_TOPIC_XXXX are stored as what they are when their time has come.

Each level has a queue of its own there (level 1: queue 0), and all of one queue wait equally long, so that only its
head is watched: one timer per level that is not empty, none for the others; an arrival wakes them. A level's progress
moves behind a message when its delivery is acknowledged, and is on disk some seconds later (delayOffset.json, in
RocketMQ's form). What was delivered since is found in the end of the log (broker/messages/delay_tail.py).

In a Raft group only the leader delivers, from the progress on that the group agreed upon
(broker/metadata/delay_progress.py). A slave delivers nothing: it takes over its master's progress.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from broker.messages.delay_queue import DelayedDelivery, DelayLevel, DelayLoop, wait_ms
from broker.messages.delay_tail import DeliveredTail, TailStore, origin
from broker.messages.delayed_record import real_at
from broker.metadata.delay_progress import DelayProgress
from broker.metadata.operations import LocalMeta, MetaLog
from broker.replication import Replication
from broker.reply import LOG_END
from remoting.bodies.registry import DelayOffsetTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.server import Connection, Handler
from remoting.topics import SCHEDULE_TOPIC
from runtime.clock import Clock
from store.errors import RecordDamaged
from store.types import Dispatched, PutResult, PutStatus, QueueEntry

_log = logging.getLogger(__name__)

# Deliveries of one level that may be unacknowledged; more wait for the first of them.
IN_FLIGHT_MAX = 128
# Messages of one level that are delivered in one turn of the loop, before others get theirs.
PER_TURN = 32
# Seconds before a delivery that the store refused (disk full, too much pending) is tried again.
RETRY_SECONDS = 1.0
# Seconds after which a waiting level looks at the clock again, whatever it waits for: somebody may have set it.
TIMER_SECONDS_MAX = 60.0
# How long writing the progress waits for the log. Progress that is durable before the deliveries that it counts would
# lose messages in a power cut that were safe while they waited; without it they are delivered twice.
FLUSH_SECONDS_MAX = 5.0
FLUSH_POLL_SECONDS = 0.01
# Refusals that will not change: the message stays where it is and the level goes on.
_HOPELESS = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})


class ScheduleStore(TailStore, Protocol):
    """What is needed of the store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest offset of a queue."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...

    def topics(self) -> dict[str, list[int]]:
        """Return the queue ids of each topic."""
        ...

    @property
    def flushed(self) -> int:
        """Everything before this position is on disk."""
        ...

    def flush_soon(self, position: int) -> None:
        """Ask for fdatasync up to a position."""
        ...


class ScheduleService:
    """Delivers the delayed messages of one broker. Everything happens in the event loop."""

    def __init__(
        self,
        path: Path,
        store: ScheduleStore,
        replication: Replication,
        clock: Clock,
        loop: DelayLoop,
        levels_ms: Sequence[int],
        meta: MetaLog | None = None,
        comes_to: Callable[[str, int, int], None] = lambda _topic, _queue_id, _stored_ms: None,
    ) -> None:
        """Read delayOffset.json at `path`. Raises MetadataError, OSError.

        `comes_to` is told of each message's topic and queue, and when it was stored, before it is delivered there.
        """
        self._comes_to = comes_to
        self._store = store
        self._append = replication.append
        self._clock = clock
        self._later = loop.later
        self._tail = DeliveredTail(store, loop.aside)
        self._levels_ms = levels_ms
        self._levels: list[DelayLevel] = []
        self._agreed = DelayProgress(path, clock, LocalMeta() if meta is None else meta, self._reached)
        self._stopped = True
        # Nothing is delivered before it is known what was.
        self._looks = False
        # The progress is the master's: levels are only made of it when this broker begins to deliver.
        self._copied = False
        self._dirty = False
        self._writing: asyncio.Task[None] | None = None
        self._make_levels()
        if not self._agreed.shared and any(
            level.progress < self._agreed.offsets.get(level.queue_id + 1, 0) for level in self._levels
        ):
            # The log lost its end. What will stand there next must not be passed over after another crash.
            self._agreed.correct(self.progress())

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.all_offsets}

    def start(self) -> None:
        """Begin to deliver; in a Raft group, as the new leader, from where the group agrees that the last one was.

        A broker whose store was a group's goes on from what was last agreed upon, if that is further.
        """
        copied, self._copied = self._copied, False
        if self._agreed.shared or copied or any(self._place(each.queue_id) > each.progress for each in self._levels):
            self._make_levels()
        self._stopped = False
        levels = self._levels
        self._looks = self._tail.look(levels, self._clock.now_ms(), IN_FLIGHT_MAX, partial(self._looked, levels))
        for level in [] if self._looks else levels:
            self._wake(level)

    def _looked(self, levels: list[DelayLevel]) -> None:
        if levels is self._levels:
            self._looks = False
            for level in levels:
                self._wake(level)

    def stop(self) -> None:
        """Deliver nothing more; what is in flight is still acknowledged."""
        self._stopped = True
        for level in self._levels:
            if level.timer is not None:
                level.timer.cancel()
                level.timer = None

    def take_over(self, copied: DelayOffsetTable) -> None:
        """Have the master's progress, on a slave: it counts from there when it delivers one day."""
        assert self._stopped, "who delivers has progress of its own"
        self._agreed.take_over(copied)
        self._copied = True

    def arrived(self, batch: Sequence[Dispatched]) -> None:
        """Look again at levels that have nothing to wait for: some of `batch` has come into SCHEDULE_TOPIC_XXXX."""
        if self._stopped:
            return
        for queue_id in {message.queue_id for message in batch if message.topic == SCHEDULE_TOPIC}:
            level = self._levels[queue_id]
            if level.timer is None and not level.flight:
                self._wake(level)

    def progress(self) -> dict[int, int]:
        """Return by level the offset up to which everything has been delivered, in a Raft group as it is agreed."""
        if self._agreed.shared or self._copied:
            return dict(self._agreed.offsets)
        return {level: offset for level, offset in self._reached().items() if offset or level in self._agreed.offsets}

    def figures(self) -> dict[str, str]:
        """Return progress and end of each level that is or was in use, under RocketMQ's names."""
        reached, levels = self.progress(), range(1, len(self._levels) + 1)
        ends = {level: self._store.max_offset(SCHEDULE_TOPIC, level - 1) for level in {*levels, *reached}}
        return {
            f"scheduleMessageOffset_{level}": f"{reached.get(level, 0)},{end}"
            for level, end in sorted(ends.items())
            if end or level in reached
        }

    def all_offsets(self, _connection: Connection, _request: Command) -> Command:
        """45: the progress of all levels, as delayOffset.json has it; what is delivered stands before LOG_END."""
        return Command.response(ResponseCode.SUCCESS, body=self.encode(), ext={LOG_END: str(self._store.written)})

    def encode(self) -> bytes:
        """Return the table in RocketMQ's JSON form."""
        return self._agreed.encode(self.progress())

    async def persist(self) -> None:
        """Replace the file when progress was made; in a Raft group, propose the progress now.

        OSError leaves the old file in place. Raises CommandError when the group takes no more.
        """
        if self._agreed.shared:
            self._agreed.propose()
            return
        if self._copied:
            await self._agreed.file.flush()
            return
        while self._writing is not None:
            await asyncio.shield(self._writing)
        if not self._dirty:
            return
        self._dirty = False
        self._agreed.prepare(self.progress())
        work = self._write(self._store.written)
        self._writing = asyncio.get_running_loop().create_task(work, name="write delay offsets")
        # Shielded: a caller that gives up must not leave two threads writing one file.
        await asyncio.shield(self._writing)

    async def _write(self, delivered: int) -> None:
        """Write the file, but not before the log has what the progress says is delivered: see FLUSH_SECONDS_MAX."""
        try:
            if await self._flushed(delivered):
                await self._agreed.file.flush()
            else:
                self._dirty = True
        except OSError:
            self._dirty = True
            raise
        finally:
            self._writing = None

    async def _flushed(self, position: int) -> bool:
        self._store.flush_soon(position)
        for _ in range(round(FLUSH_SECONDS_MAX / FLUSH_POLL_SECONDS)):
            if self._store.flushed >= position:
                return True
            await asyncio.sleep(FLUSH_POLL_SECONDS)
        return self._store.flushed >= position

    def _place(self, queue_id: int) -> int:
        """Return where a level goes on: what the file says, within what the queue still has."""
        low = self._store.min_offset(SCHEDULE_TOPIC, queue_id)
        end = self._store.max_offset(SCHEDULE_TOPIC, queue_id)
        return max(low, min(self._agreed.offsets.get(queue_id + 1, 0), end))

    def _make_levels(self) -> None:
        """Make the levels, each where it goes on; queues that the configuration no longer has are emptied too."""
        levels_ms = self._levels_ms
        queues = max([len(levels_ms), *[queue_id + 1 for queue_id in self._store.topics().get(SCHEDULE_TOPIC, [])]])
        longest = max(levels_ms, default=0)
        self._levels = [
            DelayLevel(n, levels_ms[n] if n < len(levels_ms) else longest, self._place(n)) for n in range(queues)
        ]

    def _reached(self) -> dict[int, int]:
        return {level.queue_id + 1: level.progress for level in self._levels}

    def _is_past(self, level: DelayLevel) -> bool:
        """Tell whether a level belongs to an earlier time as leader: what is still told of it counts no more."""
        return self._levels[level.queue_id] is not level

    def _wake(self, level: DelayLevel) -> None:
        """Have a level looked at soon; never at once, for this may be called from within an append."""
        if not (self._stopped or self._looks or level.woken):
            level.woken = True
            self._later(0, partial(self._look, level))

    def _look(self, level: DelayLevel) -> None:
        level.woken = False
        self._advance(level)

    def _ring(self, level: DelayLevel) -> None:
        level.timer = None
        if self._is_past(level):
            return
        refused, level.refused = level.refused, []
        for delivery in refused:
            self._store_real(level, delivery)
        self._advance(level)

    def _set_timer(self, level: DelayLevel, seconds: float) -> None:
        if not self._stopped and not self._is_past(level):
            level.timer = self._later(seconds, partial(self._ring, level))

    def _advance(self, level: DelayLevel) -> None:
        """Deliver what is due, and set the timer for what is not."""
        if self._stopped or level.timer is not None or self._is_past(level):
            return
        low = self._store.min_offset(SCHEDULE_TOPIC, level.queue_id)
        if level.next < low:
            _log.warning("delay level %d: messages %d to %d are gone", level.queue_id + 1, level.next, low - 1)
            level.next = low
            self._settle(level)
        room = min(PER_TURN, IN_FLIGHT_MAX - len(level.flight))
        entries = self._store.queue_entries(SCHEDULE_TOPIC, level.queue_id, level.next, room) if room > 0 else []
        now_ms = self._clock.now_ms()
        for entry in entries:
            waits = wait_ms(entry.tags_code, now_ms, level.delay_ms)
            if waits > 0:
                self._set_timer(level, min(waits / 1000, TIMER_SECONDS_MAX))
                return
            self._deliver(level, entry)
            if level.timer is not None:
                # The store refuses: nothing more until it is asked again.
                return
        if entries:
            self._wake(level)

    def _deliver(self, level: DelayLevel, entry: QueueEntry) -> None:
        offset = level.next
        if offset in level.delivered:
            level.delivered.discard(offset)
            self._fly(level, DelayedDelivery(offset, None))
            return
        try:
            record, reason = real_at(self._store.record_at, entry.physical_offset, mends=self._agreed.shared)
        except RecordDamaged:
            # It is being fetched from another member, and must not be passed over (R18).
            self._set_timer(level, RETRY_SECONDS)
            return
        if record is None:
            _log.error("delay level %d: message %d cannot be delivered: %s", level.queue_id + 1, offset, reason)
        else:
            self._comes_to(record.topic, record.queue_id, entry.tags_code - level.delay_ms)
            record.prepared_transaction_offset = origin(record, entry.physical_offset)
        self._fly(level, DelayedDelivery(offset, record))

    def _fly(self, level: DelayLevel, delivery: DelayedDelivery) -> None:
        level.next = delivery.offset + 1
        level.flight.append(delivery)
        self._store_real(level, delivery)

    def _store_real(self, level: DelayLevel, delivery: DelayedDelivery) -> None:
        if delivery.record is None:
            self._settle(level)
        else:
            self._append(delivery.record, partial(self._stored, level, delivery))

    def _stored(self, level: DelayLevel, delivery: DelayedDelivery, result: PutResult, _code: int) -> None:
        """Take the acknowledgement; may come from within the append, when that is refused."""
        if result.status is not PutStatus.PUT_OK and result.status not in _HOPELESS:
            level.refused.append(delivery)
            if len(level.refused) == 1:
                if level.timer is not None:
                    level.timer.cancel()
                self._set_timer(level, RETRY_SECONDS)
            return
        if result.status in _HOPELESS:
            _log.error(
                "delay level %d: message %d is not delivered, it stays where it is: %s",
                level.queue_id + 1,
                delivery.offset,
                result.status.name,
            )
        delivery.done, delivery.record = True, None
        self._settle(level)
        self._wake(level)

    def _settle(self, level: DelayLevel) -> None:
        if level.settle() and not self._is_past(level):
            self._dirty = True
            self._agreed.note()
