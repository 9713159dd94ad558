"""Idempotent sends: a send that is repeated with the same UNIQ_KEY is answered with the first one's result.

In front of the replication of sends that ask for it. Three places know a send: `_flying`, from the moment when it is
handed to the log until its fate is told; the table of recent keys, from the moment when its record has come into the
queues; and the log itself, where the record says topic, key, place and who stored it. What is in the log of a follower
or a slave comes into its table in the same way, and a new leader serves only when everything in its log has (R12): so
it knows what the one before it stored, whether that was answered or not.

A hash leads to positions only; an answer is given for a record that was read there, and whose topic and key are those
of the send. The record of a delayed or prepared message names its real topic and queue.

Each message of a batch is known by its own key, stored and on its way. A batch is a repetition when all of it is there.
When a part of it is, it is refused, but for one that the end of this broker tore: what stands of it is the end of what
the start found in the log, and the rest follows when it is repeated.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from broker.messages.recent_records import (
    IDEMPOTENT_FLAG,
    LogReads,
    RecordReads,
    begin_of,
    first_record,
    keys_in_piece,
    next_record,
)
from broker.replication import Confirming
from broker.settings.idempotent_keys import IdempotentKeys
from remoting.codes import ResponseCode
from remoting.message import MessageExt
from remoting.msgid import offset_msg_id
from remoting.properties import PROPERTY_UNIQ_KEY, find_property
from runtime.clock import Clock
from runtime.figures import Figure, counter, gauge
from store.derived.recentkeys import RecentKeys
from store.recordbatch import RecordBatch
from store.types import Dispatched, PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

# Repetitions that wait for a send that is on its way, of all sends together. A client has one at a time.
WAITING_MAX = 10_000
# Between two words about how far the start is.
PROGRESS_SECONDS = 2.0
_OK = PutStatus.PUT_OK
_UNIQ_KEY = f"{PROPERTY_UNIQ_KEY}\x01".encode()
_PARTLY = "some messages of this batch were stored before, and others were not: it is no repetition of one send"

Answer = Callable[[Any, int], None]
"""What a send's handler is told: a PutResult, a batch's list of them, a FirstResult or why not (text); and the code."""


class FirstResult(NamedTuple):
    """What the first of several equal sends was answered with."""

    queue_id: int
    queue_offset: int
    msg_id: str
    """The offset id; of a batch all of them, with commas."""


class KeptStore(RecordReads, LogReads, Protocol):
    """What is needed of the store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...


Name = tuple[str, bytes]
"""By what a message is known: topic and key."""
# Who waits for all of a flight, and who looks again when it has ended; others wait for one of its messages.
_WHOLE, _AGAIN = -1, -2


class _Flying:
    """What was handed to the log in one piece: a message, or a batch."""

    __slots__ = ("names", "queue_id", "waiting")

    def __init__(self, queue_id: int, names: Sequence[Name]) -> None:
        self.queue_id = queue_id
        # Of all its messages, those without a key included.
        self.names = names
        self.waiting: list[tuple[Answer, int]] = []


class IdempotentSends:
    """For the broker's loop."""

    def __init__(
        self, replication: Confirming, store: KeptStore, store_host: bytes, clock: Clock, keys: IdempotentKeys
    ) -> None:
        """`store_host` as records hold it; `keys`: of the bounds those count that hold at the start."""
        self._replication = replication
        self._store = store
        self._clock = clock
        self._store_host = store_host
        self._window_ms = 1000 * keys.idempotentWindowSeconds
        self.keys_max = keys.idempotentKeysMax
        self.keys = RecentKeys(self.keys_max, self._window_ms)
        self._flying: dict[Name, _Flying] = {}
        self._waiting = 0
        # Where the log ended at the start: only there can a batch be torn.
        self._began_at = -1
        self.repeated = 0
        """How many sends were answered with an earlier one's result."""

    def dispatched(self, batch: Sequence[Dispatched]) -> None:
        """Remember what has come into the queues, of the sends that were promised it."""
        add = self.keys.add
        for entry in batch:
            if entry[9] & IDEMPOTENT_FLAG and entry[7]:
                add(entry[7], entry[3], entry[6])

    def measures(self) -> Iterator[Figure]:
        """Yield its metrics."""
        yield counter("raftmq_sends_repeated_total", "Sends answered with an earlier one's result", self.repeated)
        yield gauge("raftmq_idempotent_keys", "Sends that are remembered, to tell repeated ones", len(self.keys))
        yield gauge("raftmq_idempotent_keys_limit", "How many are remembered at most", self.keys_max)

    def figures(self) -> dict[str, str]:
        """Return its figures of code 28."""
        return {
            "idempotentKeys": str(len(self.keys)),
            "idempotentKeysMax": str(self.keys_max),
            "idempotentSendsRepeated": str(self.repeated),
        }

    async def read_tail(self, end: int, threads: Executor) -> None:
        """Fill the table from the log, whose records up to `end` are in the queues; before anything else comes there.

        Takes a second for half a million of them.
        """
        loop, store = asyncio.get_running_loop(), self._store
        began, self._began_at = time.monotonic(), end
        since = self._clock.now_ms() - self._window_ms
        position = start = await loop.run_in_executor(threads, begin_of, store, end, since)
        told = began
        while position < end:
            found, position = await loop.run_in_executor(threads, keys_in_piece, store, position, end)
            self.keys.add_many(found.keys, found.positions, found.timestamps_ms)
            if (now := time.monotonic()) - told > PROGRESS_SECONDS:
                told = now
                _log.info("idempotent sends: read the log from %d to %d of %d", start, position, end)
        if self.keys:
            took = time.monotonic() - began
            _log.info("idempotent sends: %d keys of the last %d bytes, in %.1f s", len(self.keys), end - start, took)

    def append(
        self,
        topic: str,
        uniq_key: str,
        queue_id: int,
        record: PendingRecord,
        done: Answer,
        *,
        wait: bool,
        until: float,
        append: Callable[..., None] | None = None,
    ) -> None:
        """Store a record, unless one of this topic and key is stored already or on its way: then `done` is told of it.

        `topic` and `queue_id`: where it goes in the end, and what the answer says. `append`: who stores it, in place of
        the replication.
        """
        append = self._replication.append if append is None else append
        if not uniq_key:
            append(record, done, wait=wait, until=until)
            return
        key = uniq_key.encode("utf-8", "replace")
        name = (topic, key)
        if (flying := self._flying.get(name)) is not None:
            self._park(flying, done, flying.names.index(name))
            return
        positions = self.keys.find(key)
        first = first_record(self._store, positions, topic, uniq_key, self._stands) if positions else None
        if first is not None:
            self._confirm(first, first, _result(first), done, wait)
            return
        self._flying[name] = flying = _Flying(queue_id, (name,))
        append(record, partial(self._ended, flying, done), wait=wait, until=until)

    def append_batch(
        self, topic: str, queue_id: int, records: Sequence[PendingRecord], done: Answer, *, wait: bool, until: float
    ) -> None:
        """Store the records of one batch, unless they are; as append(). Refused (a text) when some of them are."""
        texts = records.properties if type(records) is RecordBatch else [record.properties for record in records]
        keys = [find_property(text, _UNIQ_KEY) for text in texts]
        names = [(topic, key) for key in keys]
        flying = next(filter(None, map(self._flying.get, names)), None) if self._flying else None
        if flying is not None:
            if flying.names == names:
                self._park(flying, done, _WHOLE)
            else:
                # Whether this is a repetition, and of what, is known when that one's fate is.
                again = partial(self.append_batch, topic, queue_id, records, done, wait=wait, until=until)
                self._park(flying, done, _AGAIN, lambda _result, _code: again())
            return
        found = self._stored(topic, keys)
        if not found:
            self._fly(queue_id, names, records, done, wait=wait, until=until)
            return
        first, last = found.get(0), found[max(found)]
        if first is not None and (whole := self._rest(first, topic, keys)) is not None:
            ids, last = whole
            self._confirm(first, last, _result(first)._replace(msg_id=ids), done, wait)
        elif first is not None and len(found) == len(keys):
            newest = max(found.values(), key=lambda one: one.physical_offset)
            ids = ",".join([found[number].offset_msg_id for number in range(len(keys))])
            self._confirm(first, newest, _result(first)._replace(msg_id=ids), done, wait)
        elif first is not None and len(found) == max(found) + 1 and self._is_torn(last):
            _log.warning("a batch for %s was cut off by this broker's end: what lacks of it is stored now", topic)
            rest = [msgspec.structs.replace(one, queue_id=first.queue_id) for one in records[len(found) :]]
            told = partial(self._completed, [found[number] for number in range(len(found))], done)
            self._fly(first.queue_id, names[len(found) :], rest, told, wait=wait, until=until)
        else:
            done(_PARTLY, ResponseCode.MESSAGE_ILLEGAL)

    def _fly(
        self,
        queue_id: int,
        names: Sequence[Name],
        records: Sequence[PendingRecord],
        done: Answer,
        *,
        wait: bool,
        until: float,
    ) -> None:
        """Hand records to the log, all or none of them."""
        flying = _Flying(queue_id, names)
        self._flying.update([(name, flying) for name in names if name[1]])
        self._replication.append_batch(records, partial(self._ended, flying, done), wait=wait, until=until)

    def _park(self, flying: _Flying, done: Answer, at: int, told: Answer | None = None) -> None:
        """Have a send wait for one that is on its way, or refuse it (SYSTEM_BUSY); `told`: who is called for `done`."""
        if self._waiting >= WAITING_MAX:
            done(PutResult(PutStatus.OS_PAGE_CACHE_BUSY), ResponseCode.SYSTEM_BUSY)
        else:
            self._waiting += 1
            flying.waiting.append((done if told is None else told, at))

    def _stored(self, topic: str, keys: Sequence[bytes]) -> dict[int, MessageExt]:
        """Return the records of a batch's messages that were stored before, by their number."""
        found = {}
        for number, positions in self.keys.find_many(keys):
            text = keys[number].decode("utf-8", "replace")
            record = first_record(self._store, positions, topic, text, self._stands) if text else None
            if record is not None:
                found[number] = record
        return found

    def _is_torn(self, last: MessageExt) -> bool:
        """Whether what stands of a batch, up to its `last` record, is the end of what the start found in the log."""
        return last.physical_offset + last.size == self._began_at

    def _completed(self, before: Sequence[MessageExt], done: Answer, result: Any, code: int) -> None:
        """Answer a batch whose rest was stored behind what stood of it."""
        if result[0].status is not _OK or code == ResponseCode.NOT_LEADER_FOR_QUEUE:
            self._told(done, result, code)
            return
        ids = [*[one.offset_msg_id for one in before], *self._ids(result)]
        self._repeated(done, _result(before[0])._replace(msg_id=",".join(ids)), code)

    def _ids(self, results: Sequence[PutResult]) -> list[str]:
        return [offset_msg_id(self._store_host, one.physical_offset) for one in results]

    def _stands(self, record: MessageExt) -> bool:
        """Whether a record is young enough, and its topic was not deleted since."""
        if self._clock.now_ms() - record.store_timestamp > self._window_ms:
            return False
        return record.queue_offset < self._store.max_offset(record.topic, record.queue_id)

    def _confirm(self, first: MessageExt, last: MessageExt, result: FirstResult, done: Answer, wait: bool) -> None:
        """Answer a repetition once what it repeats is as safe as this mode has it: nobody may have waited for that."""
        end = last.physical_offset + last.size
        stored = PutResult(_OK, first.physical_offset, first.queue_offset, first.size, first.store_timestamp, end)
        self._replication.confirm(stored, partial(self._confirmed, result, done), wait=wait)

    def _confirmed(self, result: FirstResult, done: Answer, stored: PutResult, code: int) -> None:
        if stored.status is _OK:
            self._repeated(done, result, code)
        else:
            self._told(done, stored, code)

    def _rest(self, first: MessageExt, topic: str, keys: Sequence[bytes]) -> tuple[str, MessageExt] | None:
        """Return the ids of the batch that begins with a record, and its last one; None when it is another batch."""
        ids, last = [first.offset_msg_id], first
        for key in keys[1:]:
            found = next_record(self._store, last)
            if found is None or found.topic != topic or found.properties.get(PROPERTY_UNIQ_KEY, "").encode() != key:
                return None
            ids.append(found.offset_msg_id)
            last = found
        return ",".join(ids), last

    def _ended(self, flying: _Flying, done: Answer, result: Any, code: int) -> None:
        """Tell a send of its fate, and who waits for it of the same.

        Stored: all get the one result. Not stored, or nobody knows: each is told so, and may go on to another leader.
        """
        for name in flying.names:
            # A message that stands twice in its batch has one name.
            self._flying.pop(name, None)
        self._waiting -= len(flying.waiting)
        results: list[PutResult] = result if isinstance(result, list) else [result]
        first = results[0]
        stored = first.status is _OK and code != ResponseCode.NOT_LEADER_FOR_QUEUE
        try:
            done(result, code)
        finally:
            for waiting, at in flying.waiting:
                if at == _AGAIN or not stored:
                    self._told(waiting, result, code)
                else:
                    some = results if at == _WHOLE else results[at : at + 1]
                    ids = ",".join(self._ids(some))
                    self._repeated(waiting, FirstResult(flying.queue_id, some[0].queue_offset, ids), code)

    def _repeated(self, done: Answer, first: FirstResult, code: int) -> None:
        self.repeated += 1
        self._told(done, first, code)

    def _told(self, done: Answer, result: Any, code: int) -> None:
        """Answer; a failure must not cost the others their answers."""
        try:
            done(result, code)
        except Exception:
            _log.exception("a repeated send could not be answered")


def _result(record: MessageExt) -> FirstResult:
    """Return what the send of a record was answered with: the queue where it is, or will be."""
    return FirstResult(record.queue_id, record.queue_offset, record.offset_msg_id)
