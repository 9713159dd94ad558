"""What a member checks of an entry that another one sent, before a byte of it is written."""

from collections.abc import Sequence
from typing import NamedTuple

from raft.protocol.types import Entry, EntryRefused, EntryType, Mark
from remoting.compiled.door import COMPILED, hotpath
from remoting.record import BLANK_BYTES, FIXED_BYTES, MAGIC_V1, MAGIC_V2, RecordError
from runtime.crc import crc32
from store.controlrecord import CONTROL_TAIL, Control, ControlError, continues, decode_control
from store.log.logscan import check_record
from store.raftlog.covered_records import check_covered
from store.raftlog.groupscan import mark_of

_new = tuple.__new__  # without the frame of the NamedTuple's own function


class Checked(NamedTuple):
    """An entry that fits: what its control record says, and its bytes, a copy of our own."""

    control: Control
    data: bytes | memoryview


def check_entries(entries: Sequence[Entry], last: Mark, last_config: int, file_bytes: int) -> list[Checked]:
    """Check that entries continue a log that ends with `last`. Raises EntryRefused."""
    checked: list[Checked] = []
    for entry in entries:
        # Copied first: the bytes that are checked are the ones that are written, whatever becomes of the buffer.
        data = bytes(entry.data)
        control = _read_usual(entry, data, last, last_config, file_bytes) if COMPILED else None
        if control is None:
            control = _check_entry(entry, data, last, file_bytes)
            _check_config(control, last_config)
        last_config = control.config
        last = mark_of(control)
        checked.append(_new(Checked, (control, data)))
    return checked


def _read_usual(entry: Entry, data: bytes, last: Mark, last_config: int, file_bytes: int) -> Control | None:
    """Return the control record of an entry of messages that fits; of another one _check_entry() says what it is."""
    index, term, position, _ = entry
    if index != last.index + 1 or position != last.end or position % file_bytes + len(data) + BLANK_BYTES > file_bytes:
        return None
    return hotpath.check_entry(
        Control, EntryType.MESSAGES, data, index, term, position, last.term, last_config, last.chain, CONTROL_TAIL,
        FIXED_BYTES, MAGIC_V1, MAGIC_V2, crc32,
    )  # fmt: skip


def check_next(control: Control, data: memoryview, last: Mark, last_config: int, file_bytes: int) -> Checked:
    """Check an entry whose control record has been read and decoded: it continues a log that ends with `last`.

    `data` is all its bytes, which stay as they are. Raises EntryRefused.
    """
    if control.index != last.index + 1:
        raise EntryRefused(f"entry {control.index} does not follow entry {last.index}")
    if control.term < last.term:
        raise EntryRefused(f"entry {control.index} has term {control.term}, entry {last.index} has {last.term}")
    _check_position(control.index, control.position, len(data), last.end, file_bytes)
    _check_content(control, data, last)
    _check_config(control, last_config)
    return Checked(control, data)


def _check_config(control: Control, last_config: int) -> None:
    expected = control.index if control.kind is EntryType.CONFIG else last_config
    if control.config != expected:
        raise EntryRefused(f"entry {control.index} names CONFIG {control.config} as the last one, it is {expected}")


def _check_entry(entry: Entry, data: bytes, last: Mark, file_bytes: int) -> Control:
    number = f"entry {entry.index}"
    if entry.index != last.index + 1:
        raise EntryRefused(f"{number} does not follow entry {last.index}")
    if entry.term < last.term:
        raise EntryRefused(f"{number} has term {entry.term}, entry {last.index} has {last.term}")
    _check_position(entry.index, entry.position, len(data), last.end, file_bytes)
    view = memoryview(data)
    verdict = check_record(view, 0, entry.position, check_crc=True)
    if isinstance(verdict, str):
        raise EntryRefused(f"{number} does not begin with a record: {verdict}")
    try:
        control = decode_control(data)
    except ControlError as error:
        raise EntryRefused(f"{number} does not begin with a control record: {error}") from None
    if (control.index, control.term) != (entry.index, entry.term):
        raise EntryRefused(f"{number} of term {entry.term} calls itself {control.index} of term {control.term}")
    _check_content(control, view, last)
    return control


def _check_content(control: Control, data: memoryview, last: Mark) -> None:
    if control.previous_term != last.term:
        raise EntryRefused(
            f"entry {control.index} follows term {control.previous_term}, entry {last.index} has {last.term}"
        )
    if control.entry_bytes != len(data):
        raise EntryRefused(f"entry {control.index} has {len(data)} bytes and claims {control.entry_bytes}")
    if control.commit >= control.index:
        raise EntryRefused(f"entry {control.index} knows entry {control.commit} as committed")
    covered = data[control.size :]
    if crc32(covered) != control.covered_crc:
        raise EntryRefused(f"entry {control.index} does not match the CRC of its records")
    if not continues(control, last.chain):
        raise EntryRefused(f"entry {control.index} does not continue the chain of entry {last.index}")
    try:
        check_covered(covered, control.position + control.size, control.covered_count)
    except RecordError as error:
        raise EntryRefused(f"entry {control.index} covers no records: {error}") from None


def _check_position(index: int, position: int, size: int, end: int, file_bytes: int) -> None:
    """Check that it stands at the end of the log or, behind a BLANK, at the start of the next file (R11).

    With 8 bytes behind it, within one file.
    """
    following = end + file_bytes - end % file_bytes
    if position != end and (position != following or end % file_bytes == 0):
        raise EntryRefused(f"entry {index} stands at {position}, the log ends at {end}")
    if position % file_bytes + size + BLANK_BYTES > file_bytes:
        raise EntryRefused(f"entry {index} of {size} bytes at {position} does not fit into its file")
