"""The last step of a record: into queues and index, and told of; and the way back, when its topic is deleted."""

from collections.abc import Callable, Sequence

from store.derived import consumequeue
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.errors import QueueShorter, StoreDamaged, StoreWriteError
from store.log.assembler import Assembler
from store.log.checkpointer import Keeper
from store.log.dispatch import Dispatcher
from store.log.health import Health
from store.types import Dispatched


class Delivery:
    """For the store's thread."""

    def __init__(
        self,
        queues: ConsumeQueues,
        index: MessageIndex | None,
        assembler: Assembler,
        keeper: Keeper,
        health: Health,
        *,
        rebuilding: bool,
        deletes: Callable[[bytes], Sequence[str]],
        dispatched: Callable[[Sequence[Dispatched]], None],
    ) -> None:
        """`rebuilding`: see ConsumeQueues.append_many. `deletes` tells which topics a META entry deletes.

        `dispatched` is called once per batch.
        """
        self._queues = queues
        self._index = index
        self._dispatcher = Dispatcher(queues, index)
        self._assembler = assembler
        self._keeper = keeper
        self._health = health
        self._rebuilding = rebuilding
        self._deletes = deletes
        self._dispatched = dispatched

    def deliver(self, batch: list[Dispatched]) -> None:
        """Bring records into queues and index, and tell of them.

        Raises StoreWriteError, and StoreDamaged when they would make a queue shorter; the store is over then.
        """
        try:
            self._dispatcher.dispatch(batch, rebuilding=self._rebuilding)
        except QueueShorter as error:
            # Whoever led had forgotten what this store holds; cutting the queue would make it forget too (R12).
            text = (
                f"{error}, and nothing deleted the topic: who led had forgotten messages that this member has. "
                f"Nothing was cut. Remove that member from the group, empty its store and add it again"
            )
            self._health.fail(text)
            raise StoreDamaged(text) from error
        except Exception as error:
            # The records are in the log, and will be in the queues after the next start; without them nothing goes on.
            self._health.fail(f"queues or index cannot take records: {error}; restart the broker, they will be rebuilt")
            raise StoreWriteError(f"records are written but not dispatched: {error}") from error
        self.look()
        self._dispatched(batch)

    def look(self) -> None:
        """Note whether too much waits for room on the disk: half of what may."""
        index, queued_max = self._index, 2 * consumequeue.BUFFERED_ENTRIES_MAX
        self._health.crowded = self._queues.buffered > queued_max or (index is not None and index.crowded)

    def forget(self, topic: str, before: int | None = None) -> None:
        """Delete a topic's queues; with `before` only those whose newest record ends there at the latest."""
        # First the checkpoint: a start that misses these queues would build them anew.
        self._keeper.shrunk()
        self._queues.delete_topic(topic, before)
        self._assembler.forget_topic(topic)

    def forget_deleted(self, end: int, payload: bytes) -> bool:
        """Delete the queues of topics that a META entry, which ends at `end`, deletes; tell whether it does any."""
        topics = self._deletes(payload)
        for topic in topics:
            self.forget(topic, end)
        return bool(topics)
