"""Reading with a filter that must see the messages themselves: some are looked at, and those it takes are given.

Candidates are read like an answer, so that none is looked at that is not what was written (R18) or not in memory, and
then those that are not wanted are cut out. One read looks at no more than RocketMQ does of tags (maxFilterMessageSize),
and at no more than a mebibyte: beyond that it ends with what it has, and next_offset is where it ended.
"""

from dataclasses import replace

from remoting.record import RecordError, peek
from store.config import QUEUE_ENTRY_BYTES, StoreConfig
from store.derived.consumequeue import ConsumeQueues
from store.integrity.verifier import Verifier
from store.log.commitlog import CommitLog
from store.reads.reads import Reader
from store.types import GetResult, GetStatus, Wants

# Candidates that are read at once, and the bytes of all that one read looks at (the first candidates in any case).
PASS_ENTRIES = 64
PASS_BYTES = 256 * 1024
SIFTED_BYTES_MAX = 1024 * 1024


class Sifter:
    """The reads of a store that look at properties."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, config: StoreConfig, verifier: Verifier) -> None:
        self._reader = Reader(log, queues, None, _as_candidates(config), verifier)
        self._entries_max = config.maxFilterMessageSize // QUEUE_ENTRY_BYTES
        # What is given was read already, so the limits of what comes from memory hold for all.
        self._count_max = config.maxTransferCountOnMessageInMemory
        self._bytes_max = config.maxTransferBytesOnMessageInMemory

    def get(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, wants: Wants) -> GetResult:
        """See MessageStore.sift."""
        most = min(max_count, self._count_max), min(max_bytes, self._bytes_max)
        found = self._candidates(topic, queue_id, offset)
        if found.cold:
            found.sift_by = (wants, *most)
            return found
        if found.status is not GetStatus.FOUND:
            return found
        answer = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, found.min_offset, found.max_offset)
        sieve = _Sieve(wants, *most)
        seen = 0
        while True:
            seen += found.size
            sieve.sift(found, answer)
            entries = answer.next_offset - offset
            if sieve.full or found.damaged >= 0 or entries >= self._entries_max or seen >= SIFTED_BYTES_MAX:
                break
            found = self._candidates(topic, queue_id, answer.next_offset)
            if found.cold or found.status is not GetStatus.FOUND:
                break
        return answer

    def _candidates(self, topic: str, queue_id: int, offset: int) -> GetResult:
        return self._reader.get(topic, queue_id, offset, PASS_ENTRIES, PASS_BYTES, None)

    def sift_cold(self, result: GetResult) -> None:
        """Cut out of a result that was cold what is not wanted."""
        by, result.sift_by = result.sift_by, None
        if by is None or result.status is not GetStatus.FOUND:
            return
        offset = result.asked[2]
        answer = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, result.min_offset, result.max_offset)
        _Sieve(*by).sift(result, answer)
        result.status, result.next_offset, result.damaged = answer.status, answer.next_offset, answer.damaged
        result.count, result.size, result.runs, result.buffers = answer.count, answer.size, answer.runs, answer.buffers


class _Sieve:
    """What one read wants, and whether its answer is full."""

    def __init__(self, wants: Wants, max_count: int, max_bytes: int) -> None:
        self._wants = wants
        self._max_count = max_count
        self._max_bytes = max_bytes
        self.full = False

    def sift(self, found: GetResult, answer: GetResult) -> None:
        """Add to an answer what is wanted of candidates, and move it past those that were looked at.

        What is behind a damaged candidate is the next read's, which begins at it.
        """
        for buffer, (position, _) in zip(found.buffers, found.runs, strict=True):
            self._cut(memoryview(buffer), position, answer)
            if self.full:
                break
        else:
            answer.next_offset = found.next_offset
        answer.behind_bytes = found.behind_bytes
        if answer.count:
            answer.status = GetStatus.FOUND

    def _cut(self, view: memoryview, position: int, answer: GetResult) -> None:
        """Add the wanted records of one buffer, neighbours as one."""
        at = begin = end = 0
        while at < len(view) and not self.full:
            try:
                size, offset, properties = peek(view, at)
            except RecordError as error:
                raise AssertionError(
                    f"what stands at {position + at} was checked, and is no record: {error}"
                ) from error
            if self._wants(properties):
                if answer.count and answer.size + size > self._max_bytes:
                    answer.next_offset = offset
                    self.full = True
                    break
                if at != end or begin == end:
                    _keep(view, position, begin, end, answer)
                    begin = at
                end = at + size
                answer.count += 1
                answer.size += size
                answer.next_offset = offset + 1
                self.full = answer.count >= self._max_count
            at += size
        _keep(view, position, begin, end, answer)


def _keep(view: memoryview, position: int, begin: int, end: int, answer: GetResult) -> None:
    if begin < end:
        answer.buffers.append(view[begin:end])
        answer.runs.append((position + begin, end - begin))


def _as_candidates(config: StoreConfig) -> StoreConfig:
    """Return the settings by which candidates are read: as many at once from the disk as from memory."""
    return replace(
        config,
        maxTransferCountOnMessageInMemory=PASS_ENTRIES,
        maxTransferCountOnMessageInDisk=PASS_ENTRIES,
        maxTransferBytesOnMessageInMemory=PASS_BYTES,
        maxTransferBytesOnMessageInDisk=PASS_BYTES,
    )
