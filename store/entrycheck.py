"""What a member checks of an entry that another one sent, before a byte of it is written."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from remoting.record import BLANK_BYTES, RecordError
from runtime.crc import crc32
from store.controlrecord import Control, ControlError, EntryKind, continues, decode_control
from store.covered import check_covered
from store.errors import EntryRefused
from store.floorfile import Mark
from store.logscan import check_record


class SentEntry(Protocol):
    """An entry as it came: raft.types.Entry."""

    @property
    def index(self) -> int:
        """Its index."""
        ...

    @property
    def term(self) -> int:
        """Its term."""
        ...

    @property
    def position(self) -> int:
        """Where it begins."""
        ...

    @property
    def data(self) -> bytes | memoryview:
        """All its bytes."""
        ...


class Checked(NamedTuple):
    """An entry that fits: what its control record says, and its bytes, a copy of our own."""

    control: Control
    data: bytes


def check_entries(entries: Sequence[SentEntry], last: Mark, last_config: int, file_bytes: int) -> list[Checked]:
    """Check that entries continue a log that ends with `last`. Raises EntryRefused."""
    checked: list[Checked] = []
    for entry in entries:
        # Copied first: the bytes that are checked are the ones that are written, whatever becomes of the buffer.
        data = bytes(entry.data)
        control = _check_entry(entry, data, last, file_bytes)
        expected = control.index if control.kind is EntryKind.CONFIG else last_config
        if control.config != expected:
            raise EntryRefused(f"entry {entry.index} names CONFIG {control.config} as the last one, it is {expected}")
        last_config = control.config
        last = Mark(control.index, control.term, control.end, control.chain)
        checked.append(Checked(control, data))
    return checked


def _check_entry(entry: SentEntry, data: bytes, last: Mark, file_bytes: int) -> Control:
    number = f"entry {entry.index}"
    if entry.index != last.index + 1:
        raise EntryRefused(f"{number} does not follow entry {last.index}")
    if entry.term < last.term:
        raise EntryRefused(f"{number} has term {entry.term}, entry {last.index} has {last.term}")
    _check_position(number, entry.position, len(data), last.end, file_bytes)
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
    if control.previous_term != last.term:
        raise EntryRefused(f"{number} follows term {control.previous_term}, entry {last.index} has {last.term}")
    if control.entry_bytes != len(data):
        raise EntryRefused(f"{number} has {len(data)} bytes and claims {control.entry_bytes}")
    if control.commit >= control.index:
        raise EntryRefused(f"{number} knows entry {control.commit} as committed")
    covered = view[control.size :]
    if crc32(covered) != control.covered_crc:
        raise EntryRefused(f"{number} does not match the CRC of its records")
    if not continues(control, last.chain):
        raise EntryRefused(f"{number} does not continue the chain of entry {last.index}")
    try:
        check_covered(covered, entry.position + control.size, control.covered_count)
    except RecordError as error:
        raise EntryRefused(f"{number} covers no records: {error}") from None
    return control


def _check_position(number: str, position: int, size: int, end: int, file_bytes: int) -> None:
    """Check that it stands at the end of the log or, behind a BLANK, at the start of the next file (R11).

    With 8 bytes behind it, within one file.
    """
    following = end + file_bytes - end % file_bytes
    if position != end and (position != following or end % file_bytes == 0):
        raise EntryRefused(f"{number} stands at {position}, the log ends at {end}")
    if position % file_bytes + size + BLANK_BYTES > file_bytes:
        raise EntryRefused(f"{number} of {size} bytes at {position} does not fit into its file")
