"""The store of a group that has ended, in the hands of a single broker: its metadata (R3), and an end by force (R2)."""

import logging
from collections.abc import Iterator, Sequence

from broker.metadata.meta_entry import MetaParts, decode, deleted_topics
from broker.metadata.operations import MetaTable
from broker.metadata.table_file import MetadataError, Stamp
from raft.protocol.config import ConfigRefused, GroupConfig
from raft.protocol.types import EntryType
from remoting.topics import RAFT_TOPIC
from store.config import StoreConfig
from store.controlrecord import Control, decode_control
from store.errors import StoreDamaged
from store.events import Payloads
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)

# Entries of the log that are looked up in its queue at a time.
ENTRIES_AT_A_TIME = 1000


def replay_metadata(store: MessageStore, tables: Sequence[MetaTable]) -> None:
    """Bring the tables of a single broker up to the end of the group that its store belonged to (R3).

    A group that ended in good order has written them; one that was killed, or ended by force, has not. Files that
    carry no stamp, or another group's, are left as they are: they were written, or are to be stamped, by others.
    Raises MetadataError, OSError.
    """
    last = store.max_offset(RAFT_TOPIC, 0) - 1
    behind = [table for table in tables if table.file.stamp is not None and table.file.stamp.applied < last]
    if not behind:
        return
    group = _group_of(store, last)
    stamps = {table: table.file.stamp for table in behind if table.file.stamp is not None}
    stamps = {table: stamp for table, stamp in stamps.items() if stamp.group == group}
    if not stamps:
        return
    first = min(stamp.applied for stamp in stamps.values()) + 1
    last_meta = max(stamp.last_meta for stamp in stamps.values())
    parts = MetaParts()
    for entry in _entries(store, first, last):
        if entry.kind is not EntryType.META:
            continue
        operations = parts.whole(decode(entry.payload))
        if operations is None:
            continue
        last_meta = entry.index
        for operation in operations:
            for table, stamp in stamps.items():
                if entry.index > stamp.applied and operation[1] in table.routes:
                    table.apply(operation, own=False)
    for table in stamps:
        table.file.stamp = Stamp(group, last, last_meta)
        table.file.write_now()
    _log.info("metadata was taken from the log of the group that ended, entries %d to %d", first, last)


def ends_group(payload: bytes) -> bool:
    """Tell of a CONFIG entry's payload whether the group ends with it: from there on it is a single broker's log."""
    return GroupConfig.decode(payload).classic


def last_term(store: MessageStore) -> int:
    """Return the term of the last entry of the group that a store belonged to, 0 when it belonged to none.

    The log cannot forget it (R15), while a table's stateVersion is gone when RocketMQ has had the folder: it writes 0.
    """
    last = store.max_offset(RAFT_TOPIC, 0) - 1
    return max((entry.term for entry in _entries(store, last, last)), default=0) if last >= 0 else 0


def end_by_force(config: StoreConfig, store_host: bytes) -> None:
    """End the group that a store belongs to without asking the group (R2); nothing when it belongs to none.

    All that the log holds is kept, committed or not. A log that cannot be opened as a member's is left as it is: it is
    for MessageStore.open(force=True), at each start. Raises StoreLocked, OSError.
    """
    try:
        payloads = Payloads(deleted_topics, ends_group=lambda _payload: True)
        store = MessageStore.open(config, store_host=store_host, group=True, stepped=True, payloads=payloads)
    except StoreDamaged as error:
        _log.warning("the group cannot be ended in its log: %s", error)
        return
    try:
        entries = store.entries
        assert entries is not None
        at = entries.last_config()
        if at == 0 or not entries.whole:
            return
        group = GroupConfig.decode(entries.payload(at))
        if group.classic:
            return
        # Who was a member says nothing any more; a list has one, though.
        ended = group._replace(members=(group.members[0]._replace(voter=True),), classic=True)
        last = entries.last
        index = entries.append(EntryType.CONFIG, last.term + 1, ended.encode(), last.index)
        entries.release(index)
        _log.warning("the group %s was ended by force at entry %d", group.group_id.hex(), index)
    finally:
        store.close()


def _group_of(store: MessageStore, last: int) -> str:
    """Return the id of the group that ended, as stamps have it; "" when the log does not tell any more."""
    for entry in _entries(store, last, last):
        for config in _entries(store, entry.config, entry.config):
            try:
                return GroupConfig.decode(config.payload).group_id.hex()
            except ConfigRefused as error:
                raise MetadataError(f"the CONFIG entry {config.index} cannot be read: {error}") from error
    return ""


def _entries(store: MessageStore, first: int, last: int) -> Iterator[Control]:
    """Yield the control records of a range; those that are deleted are left out."""
    for begin in range(first, last + 1, ENTRIES_AT_A_TIME):
        for found in store.queue_entries(RAFT_TOPIC, 0, begin, min(ENTRIES_AT_A_TIME, last + 1 - begin)):
            record = store.any_record_at(found[0])
            if record is not None:
                yield decode_control(record)
