"""A member that is behind what the others still have is given a copy of the leader's log (R13): what both sides share.

The marker file comes first and goes last: while it is there this member opens no store, acknowledges nothing and votes
for nobody. A copy stops at the commit point, so what was copied once is right for ever, whoever led then: the marker
names the files that are whole and on disk, and an interrupted copy goes on behind them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import cbor2

from raft.protocol.config import CONFIG_BYTES_MAX
from raft.protocol.fields import FieldError, blob, number, sequence, text, unpack
from raft.protocol.types import Mark
from runtime.durable import fsync_folder, replace_file

# One request for bytes. Large enough to keep the disk and the socket busy, small enough to let heartbeats through.
RANGE_BYTES = 1024 * 1024
# Requests that a member which copies has open, and what one may have before its link is closed.
RANGES_OPEN = 16
RANGES_OPEN_MAX = 64
# Metadata of one copy, which the leader keeps in memory until the copy is done. Beyond it no copy is served.
METADATA_BYTES_MAX = 256 * 1024 * 1024
METADATA_FILES_MAX = 1000
LOG_FILES_MAX = 1_000_000
# A row of two values for each log file, of three for each metadata file, and what stands around them.
_MANIFEST_ITEMS_MAX = 20 + 3 * LOG_FILES_MAX + 4 * METADATA_FILES_MAX

# The name of the log in a request; no metadata file can be called so.
LOG_NAME = "commitlog/"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MANIFEST_VERSION = 1
_CRC_MAX = (1 << 32) - 1


class ResetMismatch(Exception):
    """What was copied, or is offered, is not what it should be; the text says what."""


class Marker(NamedTuple):
    """The content of the marker file; that it is there is what counts, whatever it says."""

    leader: str = ""
    """Whom to ask first."""
    group_id: str = ""
    """In hexadecimal: no other group's log is taken; "" while it is not known."""
    why: str = ""
    done: tuple[int, ...] = ()
    """Where the log files begin that are whole and on disk."""
    wiped: bool = False
    """Whether what is in the folder is of this copy; else it is the old log, and is left alone until a leader offers
    its own."""
    peers: tuple[tuple[str, str], ...] = ()
    """Id and "host:port" of the members that the last CONFIG named: the configuration file may know fewer."""


def write_marker(path: Path, marker: Marker) -> None:
    """Put the marker on disk, or its new content in place of the old. Raises OSError."""
    replace_file(path, json.dumps(marker._asdict()).encode())


def read_marker(path: Path) -> Marker | None:
    """Return the marker, None when there is none; one that cannot be read says nothing but that it is there."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        said = json.loads(data)
        done = tuple(int(start) for start in said["done"])
        peers = tuple((str(peer), str(address)) for peer, address in said["peers"])
        return Marker(str(said["leader"]), str(said["group_id"]), str(said["why"]), done, said["wiped"] is True, peers)
    except (ValueError, KeyError, TypeError):
        return Marker()


def remove_marker(path: Path) -> None:
    """Let the member take part again: the copy is whole, checked and on disk. Raises OSError."""
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    path.unlink()
    fsync_folder(path.parent)


class CopiedFile(NamedTuple):
    """One file of the log: the position that it begins at, and how many bytes of it are copied."""

    start: int
    size: int


class MetadataFile(NamedTuple):
    """One metadata file, by its name in the folder for such."""

    name: str
    size: int
    crc: int


class Manifest(NamedTuple):
    """What a copy consists of."""

    config: bytes
    """The CONFIG payload in force at `end` (raft.protocol.config.GroupConfig)."""
    end: Mark
    """The leader's commit point, where the copied log ends."""
    log_file_bytes: int
    files: tuple[CopiedFile, ...]
    metadata: tuple[MetadataFile, ...]

    @property
    def log_bytes(self) -> int:
        """Bytes of the log that are copied."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        """Return the bytes that decode() reads."""
        files = [list(file) for file in self.files]
        metadata = [list(file) for file in self.metadata]
        return cbor2.dumps(
            [_MANIFEST_VERSION, self.config, list(self.end), self.log_file_bytes, files, metadata],
        )

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "Manifest":
        """Read a manifest, every field and what they say together checked; ResetMismatch otherwise."""
        try:
            manifest = cls._decode(data)
            manifest.check()
        except FieldError as error:
            raise ResetMismatch(f"a manifest cannot be read: {error}") from error
        return manifest

    @classmethod
    def _decode(cls, data: bytes | memoryview) -> "Manifest":
        version, config, end, file_bytes, files, metadata = unpack(data, _MANIFEST_ITEMS_MAX, 6)
        if version != _MANIFEST_VERSION:
            raise FieldError(f"it is of version {version!a}, this program knows {_MANIFEST_VERSION}")
        index, term, position, chain = _row(end, "end", 4)
        log_files = [_row(row, "log file", 2) for row in sequence(files, "files", LOG_FILES_MAX)]
        rows = [_row(row, "metadata file", 3) for row in sequence(metadata, "metadata", METADATA_FILES_MAX)]
        return cls(
            blob(config, "config", 1, CONFIG_BYTES_MAX),
            Mark(
                number(index, "end index"),
                number(term, "end term"),
                number(position, "end position"),
                number(chain, "end chain", 0, _CRC_MAX),
            ),
            number(file_bytes, "log_file_bytes", 1),
            tuple(CopiedFile(number(start, "start"), number(size, "size", 1)) for start, size in log_files),
            tuple(
                MetadataFile(_name(name), number(size, "metadata size"), number(crc, "metadata crc", 0, _CRC_MAX))
                for name, size, crc in rows
            ),
        )

    def check(self) -> None:
        """Raise FieldError unless the files are a log without gaps that ends where it says."""
        if not self.files:
            raise FieldError("it names no log file")
        due = self.files[0].start
        for start, size in self.files:
            if start != due or start % self.log_file_bytes or size > self.log_file_bytes:
                raise FieldError(f"a log file at {start} with {size} bytes where one at {due} is due")
            due = start + self.log_file_bytes
        last = self.files[-1]
        if last.start + last.size != self.end.end:
            raise FieldError(f"the log files end at {last.start + last.size}, not at {self.end.end}")
        if any(file.size != self.log_file_bytes for file in self.files[:-1]):
            raise FieldError("a log file other than the last is not whole")
        if sum(file.size for file in self.metadata) > METADATA_BYTES_MAX:
            raise FieldError(f"more than {METADATA_BYTES_MAX} bytes of metadata")
        if len({file.name for file in self.metadata}) != len(self.metadata):
            raise FieldError("a metadata file is named twice")


def _row(value: object, name: str, length: int) -> list[object]:
    row: list[object] = sequence(value, name, length)
    if len(row) != length:
        raise FieldError(f"{name} has {len(row)} values, {length} are due")
    return row


def _name(value: object) -> str:
    name = text(value, "metadata name", 100)
    if not _NAME.fullmatch(name):
        raise FieldError(f"{name!r} is no name of a metadata file")
    return name


class ResetSource(Protocol):
    """What the leader's side needs of the store. Called in the loop, `read_bytes` in a thread of its own."""

    @property
    def log_file_bytes(self) -> int:
        """Size of one log file."""
        ...

    def refusal(self) -> str | None:
        """Return why this member serves no copy now (it does not lead: name who does), None when it does."""
        ...

    def config(self) -> bytes:
        """Return the payload of the CONFIG in force."""
        ...

    def end(self) -> Mark:
        """Return the mark of the commit point."""
        ...

    def files_upto(self, position: int) -> Sequence[tuple[int, int]]:
        """Return (start, bytes before `position`) of every log file that is kept, in order."""
        ...

    def pin(self) -> None:
        """Keep all log files that are there now; counted."""
        ...

    def unpin(self) -> None:
        """Undo one pin()."""
        ...

    def read_bytes(self, position: int, size: int) -> bytes | memoryview:
        """Return bytes of one log file, pinned and before the commit point. In any thread; raises OSError."""
        ...

    def metadata(self) -> Mapping[str, bytes]:
        """Return the metadata files by name, each stamped with an index at or before the commit point."""
        ...


class ResetTarget(Protocol):
    """What the copying side needs of the folder of a store that is not open. Called in threads, one at a time."""

    @property
    def log_file_bytes(self) -> int:
        """Size of one log file, as configured."""
        ...

    def wipe(self, keep: frozenset[int]) -> None:
        """Remove all but the vote, the marker and the log files that begin at `keep`, durably; may be repeated."""
        ...

    def log_path(self, start: int) -> Path:
        """Return where the log file that begins at a position stands."""
        ...

    def metadata_path(self, name: str) -> Path:
        """Return where a metadata file stands."""
        ...

    def verify(self, manifest: Manifest) -> None:
        """Check every record's CRC and the chain up to `manifest.end`, and make the floor say so, durably.

        Raises ResetMismatch when something does not fit: then everything is copied anew.
        """
        ...
