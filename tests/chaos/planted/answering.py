"""Bugs of a Raft group's leader in what it stores for a send, and in what it tells clients."""

from collections.abc import Sequence
from typing import Any

from broker.raft_group.replication import RaftReplication
from broker.replication import CODES, BatchDone, Done
from store.reads.storereads import StoreReads
from store.types import GetResult, GetStatus, PendingRecord, PutResult, PutStatus
from tests.chaos.planted.grafts import graft, once_in


def append_retries_again() -> None:
    """Append a message now and then twice, as a resend within the broker does that does not look what became of it."""
    now = once_in(100)

    def make(honest: Any) -> Any:
        def append(self: RaftReplication, record: PendingRecord, done: Done, **options: Any) -> None:
            honest(self, record, done, **options)
            if now():
                honest(self, record, _tell_nobody, **options)

        return append

    graft(RaftReplication, "append", make)


def _tell_nobody(_result: PutResult, _code: int) -> None:
    """Take an answer that is nobody's."""


def refuse_what_is_stored() -> None:
    """Refuse a message now and then, as if the broker were busy, that is stored all the same."""
    now = once_in(100)
    busy = PutStatus.OS_PAGE_CACHE_BUSY

    def make(honest: Any) -> Any:
        def append(self: RaftReplication, record: PendingRecord, done: Done, **options: Any) -> None:
            def refuse(_result: PutResult, _code: int) -> None:
                done(PutResult(busy), CODES[busy])

            honest(self, record, refuse if now() else done, **options)

        return append

    graft(RaftReplication, "append", make)


def tell_a_wrong_offset() -> None:
    """Acknowledge a message now and then with the offset behind its own."""
    now = once_in(100)

    def make(honest: Any) -> Any:
        def append(self: RaftReplication, record: PendingRecord, done: Done, **options: Any) -> None:
            def shifted(result: PutResult, code: int) -> None:
                done(result._replace(queue_offset=result.queue_offset + 1), code)

            honest(self, record, shifted if now() else done, **options)

        return append

    graft(RaftReplication, "append", make)


def store_half_a_batch() -> None:
    """Store a batch now and then without its last message, and acknowledge all of it."""
    now = once_in(20)

    def make(honest: Any) -> Any:
        def append_batch(
            self: RaftReplication, records: Sequence[PendingRecord], done: BatchDone, **options: Any
        ) -> None:
            if len(records) < 2 or not now():
                honest(self, records, done, **options)
                return

            def told(results: list[PutResult], code: int) -> None:
                last = results[-1]
                done([*results, last._replace(physical_offset=last.end, queue_offset=last.queue_offset + 1)], code)

            honest(self, records[:-1], told, **options)

        return append_batch

    graft(RaftReplication, "append_batch", make)


def skip_a_message_in_answers() -> None:
    """Tell a reader now and then to go on one message too far."""
    now = once_in(8)

    def make(honest: Any) -> Any:
        def get(self: StoreReads, *arguments: Any, **options: Any) -> GetResult:
            result: GetResult = honest(self, *arguments, **options)
            # At the end of a queue too: few readers are ever behind it.
            if result.status is GetStatus.FOUND and now():
                result.next_offset += 1
            return result

        return get

    graft(StoreReads, "get", make)
