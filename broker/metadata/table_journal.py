"""The journal of a table's changes since its JSON file was written whole: a change costs the same at any size.

Its records are operations (broker/metadata/operations.py), a CBOR array [1, operation, ...] each, as META entries hold
them: replaying them over the file gives the table that was there. The JSON file names the generation that it is, in a
key of ours that RocketMQ ignores; the journal the one that it continues (runtime/journal.py).

    same generation         what the journal says is missing in the file: it is replayed
    file is newer           the crash came between the new file and the end of its journal: the journal is of the past
    file comes from .bak    what the journal says is replayed, on the best that there is
    file is older, of no generation, or missing     somebody put another file there: refused, for only he knows which
                            of the two he wants
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cbor2
import msgspec

from runtime.cbor import CborError, read_cbor
from runtime.journal import RECORD_BYTES_MAX, Journal, JournalContent, JournalDamaged

_log = logging.getLogger(__name__)

# The key of the generation among those of RocketMQ.
GENERATION_KEY = "journalGeneration"
# Bytes of a table's file from which changes go into a journal. Below, the file is written whole with each: that is as
# cheap, and a tool that reads it sees every change at once.
JOURNAL_FROM = 64 * 1024
_FORMAT = 1
_WAYS_OUT = "to go on without what only the journal has, move it away; otherwise put back the file that it belongs to"


class JournalRefused(Exception):
    """A journal cannot be used, or not with the file beside it; the text says what to do."""


class _Generation(msgspec.Struct):
    """All that is read of a table's file to find its generation."""

    journalGeneration: int = 0


def generation_of(content: bytes) -> int:
    """Return the generation that a table's file names; 0 when it names none."""
    if GENERATION_KEY.encode() not in content:
        return 0
    try:
        return max(0, msgspec.json.decode(content, type=_Generation).journalGeneration)
    except msgspec.DecodeError:
        return 0


def journal_of(table: Path) -> Path:
    """Return where the journal of a table's file stands."""
    return table.with_suffix(".journal")


class TableJournal:
    """The journal beside one table's file; `replay` first, once."""

    def __init__(self, table: Path, mode: int = 0o644) -> None:
        """`mode` is who may read it, as the table's file."""
        self._table = table
        self._journal = Journal(journal_of(table), mode)
        self._generation = 0

    @property
    def size(self) -> int:
        """Bytes that it holds; 0: the file has everything."""
        return self._journal.size

    @property
    def usable(self) -> bool:
        """Whether changes can be appended; if not, the file must be written whole first."""
        return self._generation > 0 and self._journal.usable

    def replay(self, content: bytes | None, *, backup: bool) -> list[Any]:
        """Return the operations that a file's content lacks; `backup`: the file itself could not be used.

        `content` is None when there is no file. Raises JournalRefused.
        """
        self._generation = 0 if content is None else generation_of(content)
        path = self._journal.path
        try:
            found = self._journal.read()
        except JournalDamaged as error:
            raise JournalRefused(f"{error}: restore it from a backup, or move it away and do without it") from error
        except OSError as error:
            raise JournalRefused(f"cannot read {path}: {error}") from error
        if found is None or (not backup and found.generation < self._generation):
            self._journal.begin(self._generation)
            return []
        if content is None:
            raise JournalRefused(f"{path} continues {self._table}, which is missing: {_WAYS_OUT}")
        if found.generation != self._generation and not backup:
            raise JournalRefused(f"{path} continues another {self._table.name} than the one beside it: {_WAYS_OUT}")
        if backup:
            _log.error("%s is replayed over the previous %s: changes between the two are lost", path, self._table.name)
        operations = [operation for payload in found.payloads for operation in self._decode(payload)]
        self._resume(found)
        _log.info("%d changes of %s were taken from its journal", len(operations), self._table.name)
        return operations

    def next_generation(self, size: int) -> int:
        """Return which generation a file of so many bytes is to be; 0 as long as it needs no journal."""
        return self._generation + 1 if self._generation or size >= JOURNAL_FROM else 0

    def begin(self, generation: int) -> None:
        """Begin anew: the file was written whole, as this generation."""
        self._generation = generation
        self._journal.begin(generation)

    def append(self, operations: Sequence[Any]) -> None:
        """Add changes; they are durable when this returns. For any thread. Raises OSError, and nothing was added."""
        payload = cbor2.dumps([_FORMAT, *operations])
        if len(payload) > RECORD_BYTES_MAX:
            self._journal.usable = False
            raise OSError(f"{len(payload)} bytes of changes at once are too many for {self._journal.path}")
        self._journal.append(payload)

    def is_due(self, file_bytes: int) -> bool:
        """Tell whether it has grown so long that writing the file whole costs no more than it saved."""
        return self.size >= max(JOURNAL_FROM, file_bytes)

    def _resume(self, found: JournalContent) -> None:
        try:
            self._journal.resume(found)
            # Of a .bak, the journal belongs to the file that could not be used.
            self._generation = max(self._generation, found.generation)
        except OSError as error:
            raise JournalRefused(f"cannot go on with {self._journal.path}: {error}") from error

    def _decode(self, payload: bytes) -> list[Any]:
        try:
            content = read_cbor(payload, len(payload))
        except CborError as error:
            raise JournalRefused(f"{self._journal.path} holds a record that cannot be read: {error}") from error
        if not isinstance(content, list) or content[:1] != [_FORMAT]:
            raise JournalRefused(f"{self._journal.path} is of a newer version: start that one")
        return content[1:]
