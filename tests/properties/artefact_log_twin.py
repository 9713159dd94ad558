"""The twin of pipeline/artefact_log: reads a log record by record with the store's own readers, slowly and plainly.

An entry counts when its control record and all records that it covers are whole; of one that is not, the control
record and whatever is left of its records become a gap.
"""

from zlib import crc32

from client.compression import CompressionError, decompress
from pipeline.history.body import digest, read_tag
from pipeline.history.rows import UNKNOWN
from pipeline.logs.log import Keyed, LogRows
from pipeline.logs.rows import Config, EntryRow, GapRow, MessageRow
from raft.protocol.types import EntryType
from remoting.properties import PROPERTY_KEYS, PROPERTY_TRANSACTION_ID, PROPERTY_UNIQ_KEY
from remoting.record import RecordError, decode_record
from remoting.topics import TRANS_OP_HALF_TOPIC
from runtime.cbor import CborError, read_cbor
from store.controlrecord import Control, ControlError, continues, decode_control, is_control
from store.log.dispatch import dispatched_from_record
from store.log.logscan import Found
from store.recovery.inspect import Gap, StoreFolder

TORN = "an entry whose records do not match their CRC"


def read_log(store: StoreFolder) -> LogRows:
    """Read the whole log. Raises OSError."""
    walk = _Walk()
    for found in store.records():
        walk.take(found)
    walk.close_entry()
    return walk.rows


class _Walk:
    """Gathers rows; holds back what an entry covers until it is whole."""

    def __init__(self) -> None:
        self.rows = LogRows()
        self._open: Control | None = None
        self._crc = 0
        self._covered_crc = 0
        self._at = 0
        self._held: list[tuple[MessageRow, Keyed]] = []
        self._chain: int | None = None
        # What is left of an entry that is not whole ends here.
        self._torn_until = 0

    def take(self, found: Found | Gap) -> None:
        if isinstance(found, Gap):
            self.close_entry()
            self.rows.gaps.append(GapRow(found.start, found.end, found.reason))
            return
        if self._open is not None and found.position >= self._open.end:
            self.close_entry()
        if is_control(found.view, found.at):
            self._take_control(found)
        else:
            self._take_message(found)

    def _take_control(self, found: Found) -> None:
        self.close_entry()
        try:
            control = decode_control(found.view, found.at)
        except ControlError as error:
            self.rows.gaps.append(GapRow(found.position, found.position + found.size, str(error)))
            return
        self._open, self._held = control, []
        self._crc, self._covered_crc = crc32(_bytes_of(found)), 0
        self._at = found.position + found.size
        if self._at == control.end:
            self.close_entry()

    def _take_message(self, found: Found) -> None:
        entry = self._open
        try:
            row, keyed = _message_row(found, entry)
        except (RecordError, ValueError) as error:
            self.rows.gaps.append(GapRow(found.position, found.position + found.size, str(error)))
            return
        if entry is None and found.position < self._torn_until:
            return
        if entry is None:
            self.rows.messages.append(row)
            self.rows.keyed.append(keyed)
            self.rows.end = row.end
            return
        data = _bytes_of(found)
        self._crc, self._covered_crc = crc32(data, self._crc), crc32(data, self._covered_crc)
        self._at = row.end
        self._held.append((row, keyed))
        if self._at == entry.end:
            self.close_entry()

    def close_entry(self) -> None:
        """Make a row of the entry that is open, or a gap where it is not whole."""
        control, held = self._open, self._held
        if control is None:
            return
        self._open = None
        if self._at != control.end or self._covered_crc != control.covered_crc:
            self.rows.gaps.append(GapRow(control.position, control.end, TORN))
            self._torn_until = control.end
            return
        follows = self._chain is None or continues(control, self._chain)
        self._chain = control.chain
        rows = self.rows
        rows.entries.append(
            EntryRow(
                control.index, control.term, control.position, control.entry_bytes, self._crc, int(control.kind),
                control.is_classic, control.size, control.covered_count, control.previous_term, control.commit,
                control.config, control.chain, follows,
            )
        )  # fmt: skip
        rows.messages += [row for row, _ in held]
        rows.keyed += [keyed for _, keyed in held]
        rows.end = control.end
        if control.kind is EntryType.CONFIG:
            self._take_config(control)

    def _take_config(self, control: Control) -> None:
        try:
            # [version, group id, base position, index, term, digest, classic, [[id, address, store id, voter], …]]
            members = read_cbor(control.payload, len(control.payload))[7]
            ids = tuple(str(row[0]) for row in members)
            voters = tuple(str(row[0]) for row in members if row[3])
        except (CborError, TypeError, LookupError) as error:
            reason = f"a CONFIG entry that cannot be read: {error}"
            self.rows.gaps.append(GapRow(control.position, control.end, reason))
            return
        self.rows.configs.append(Config(control.index, ids, voters))


def _bytes_of(found: Found) -> memoryview:
    return found.view[found.at : found.at + found.size]


def _message_row(found: Found, entry: Control | None) -> tuple[MessageRow, Keyed]:
    record = decode_record(found.view, found.at)
    try:
        body = decompress(record.body, record.sys_flag)
    except CompressionError:
        # What its CRC vouches for, and nobody can unpack: no recorder made it, and consumers get it as it is.
        body = record.body
    tag = read_tag(body)
    row = MessageRow(
        record.topic,
        record.queue_id,
        record.queue_offset,
        found.position,
        found.size,
        dispatched_from_record(found.view, found.at).tags_code,
        record.store_timestamp,
        crc32(_bytes_of(found)),
        UNKNOWN if entry is None else entry.index,
        UNKNOWN if entry is None else entry.term,
        UNKNOWN if tag is None else tag.writer,
        UNKNOWN if tag is None else tag.counter,
        0 if tag is None else tag.attempt,
        digest(body),
        record.sys_flag,
        record.properties.get(PROPERTY_TRANSACTION_ID, ""),
        record.prepared_transaction_offset,
        _settled(body) if record.topic == TRANS_OP_HALF_TOPIC else (),
    )
    words = (record.properties.get(PROPERTY_UNIQ_KEY, ""), *record.properties.get(PROPERTY_KEYS, "").split(" "))
    return row, Keyed(found.position, record.topic, tuple(word for word in words if word))


def _settled(body: bytes) -> tuple[int, ...]:
    """Return the offsets in the body of an operation on halves: decimal, with commas where there are several."""
    return tuple(int(word) for word in body.split(b",") if word.isdigit())
