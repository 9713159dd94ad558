"""The part of the store's face that reads messages."""

from store.config import StoreConfig
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.integrity.pushed import PushedPiece, read_checked
from store.integrity.verifier import Verifier
from store.log.commitlog import CommitLog
from store.reads.gathering import Gathering
from store.reads.queuereads import QueueReads
from store.reads.reads import Accepts, Reader
from store.reads.sifting import Sifter
from store.types import GetResult, Wants

# RocketMQ's limit of one answer, whatever the requester says.
READ_BYTES_MAX = 128 * 1024 * 1024


class StoreReads(QueueReads):
    """A part of MessageStore, for the same thread unless a method says otherwise."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, index: MessageIndex | None, config: StoreConfig, verifier: Verifier
    ) -> None:
        super().__init__(log, queues, Reader(log, queues, index, config, verifier, joins=True))
        self._verifier = verifier
        self._sifter = Sifter(log, queues, config, verifier)
        self.times = log.times

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = READ_BYTES_MAX,
        accepts: Accepts = None,
    ) -> GetResult:
        """Read messages of a queue from `offset` on; never waits for the disk but for queue entries.

        `accepts`: tags codes that are wanted, or a function of the code; None for all. Messages it does not accept
        are passed over, next_offset included. With `cold` in the result, call read_cold() in a thread, then
        verify_cold(). With `damaged` in it, it ends before a record that is not what was written (R18).
        """
        return self._reader.get(topic, queue_id, offset, max_count, min(max_bytes, READ_BYTES_MAX), accepts)

    def gathering(self) -> Gathering | None:
        """Return what gathers answers in one step, each in the frame that it leaves in; None where get() does it all.

        Its framed() gives what get() would where that is usual: messages that are in memory, and right; else None.
        """
        return self._reader.gathering

    def sift(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, wants: Wants) -> GetResult:
        """Read like get() those messages whose encoded properties `wants` takes; some hundreds are looked at."""
        return self._sifter.get(topic, queue_id, offset, max_count, min(max_bytes, READ_BYTES_MAX), wants)

    def read_cold(self, result: GetResult) -> GetResult:
        """Fetch from disk what a cold result lacks; for any thread. Raises OSError when the disk fails."""
        return self._reader.read_cold(result)

    def verify_cold(self, result: GetResult) -> None:
        """Check what read_cold() fetched, and sift it: what must not go is taken out of it."""
        self._reader.verify_cold(result)
        if result.sift_by is not None:
            self._sifter.sift_cold(result)

    def fresh_piece(self, position: int, size_max: int) -> memoryview | bytes | None:
        """Return what read_piece() does, of what this process wrote lately; None: ask checked_piece() in a thread."""
        return self.read_piece(position, size_max) if position >= self._verifier.fresh_from else None

    def checked_piece(self, position: int, size_max: int, border: int = -1) -> PushedPiece:
        """Return written bytes of one file from `position` on whose records are all right (R18). For any thread.

        `border`: that of the piece before. Raises OSError, EOFError; FileNotFoundError: not kept.
        """
        return read_checked(self._log, position, size_max, border, self._verifier.knows)

    def note_damaged(self, position: int, reason: str) -> None:
        """Count a place that checked_piece() found, and log it, once."""
        self._verifier.note(position, reason)
