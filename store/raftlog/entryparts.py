"""The parts of a store that a member's log of entries works with."""

from collections.abc import Callable
from typing import NamedTuple

from store.derived.consumequeue import ConsumeQueues
from store.files.floorfile import FloorFile
from store.log.assembler import Assembler
from store.log.commitlog import CommitLog
from store.log.flusher import Flusher
from store.log.health import Health
from store.types import Dispatched
from store.worker import Worker


class EntryParts(NamedTuple):
    """See above; MessageStore makes them."""

    log: CommitLog
    queues: ConsumeQueues
    assembler: Assembler
    flusher: Flusher
    health: Health
    floor: FloorFile
    deliver: Callable[[list[Dispatched]], None]
    """Brings committed records into queues and index and tells of them."""
    worker: Worker
    """Reads, writes and syncs what the loop must not wait for."""
    make_room: Callable[[], None]
    """Has zeros written ahead."""
    hold: Callable[[int | None], None]
    """Keeps checkpoints at or below the position where a hole begins."""
    deletes: Callable[[int, bytes], bool]
    """Deletes the queues of topics that a META entry (position behind it, payload) deletes; tells whether any."""
    ends_group: Callable[[bytes], bool]
    """Tells of a CONFIG's payload whether it ends the group; the store reads no payload itself."""
    store_host: bytes
    file_bytes: int
    levels_ms: tuple[int, ...]
