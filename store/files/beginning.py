"""Where a log begins by our own notes: so that a lost oldest file is told from one that retention removed.

A log does not show it: what is left looks the same. So the checkpoint holds the position of the first byte and, of a
Raft group's member, the entry before the first one that is kept, as a mark: what stands there continues its chain, so
that it can be fetched from other members. A new beginning is on disk before the files in front of it are removed, and
whatever a kill leaves of them goes at the next start, unless the log still goes on from it without a gap.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from raft.protocol.types import EntryType, Mark
from store.controlrecord import Control
from store.files.mappedfile import file_name

_PACKED = struct.Struct(">qqqqqq?")
BEGINNING_BYTES = _PACKED.size
_NO_MARK = Mark(0, 0, 0, 0)


class Beginning(NamedTuple):
    """The begin of a log, and what a member's entries there continue."""

    start: int
    """Position of the first byte."""
    base: Mark | None = None
    """The mark before the first entry that is kept; None where no group is."""
    config: int = 0
    """The last CONFIG there, as that entry names it; 0 when it is a CONFIG itself."""

    @property
    def entries_from_start(self) -> Mark | None:
        """The base when nothing but entries stands in the log: only entries can be asked of other members."""
        base = self.base
        return base if base is not None and base.end == self.start and base.chain >= 0 else None

    def encode(self) -> bytes:
        """Return it as it stands in the checkpoint."""
        return _PACKED.pack(self.start, *(self.base or _NO_MARK), self.config, self.base is not None)

    @classmethod
    def decode(cls, packed: bytes) -> "Beginning":
        """Return what encode() made bytes of."""
        start, index, term, end, chain, config, known = _PACKED.unpack(packed)
        return cls(start, Mark(index, term, end, chain) if known else None, config)


def config_before(first: Control) -> int:
    """Return the last CONFIG before the first entry that is kept; 0 when that is one, and nothing tells."""
    return 0 if first.kind is EntryType.CONFIG else first.config


def leftovers(starts: Sequence[int], begin: int, file_bytes: int) -> list[int]:
    """Return which files in front of `begin` do not go on up to it: a removal of several was cut short."""
    known = set(starts)
    joined = begin
    while joined - file_bytes in known:
        joined -= file_bytes
    return [start for start in starts if start < joined]


def lost_text(root: Path, folder: Path, beginning: Beginning, first: int | None, *, group: bool) -> str:
    """Say that the files in front of the one at `first` are lost, None: that all are; and what can be done."""
    found = f"begins with {file_name(first)}" if first is not None else "is empty"
    text = (
        f"{folder} {found}, but the log began with {file_name(beginning.start)}, and no retention of this broker has "
        f"removed that: put the lacking files back; or"
    )
    if group:
        return f"{text} remove this member from the group, empty its store and add it again"
    return (
        f"{text}, to go on without what stood in them (or when it was RocketMQ that removed them), remove the file "
        f"'checkpoint' from {root} and start again"
    )
