"""One of the broker's config/*.json tables on disk: written whole, by a thread, as seldom as possible.

A table marks its file as changed (`mark`), and the file is written soon; changes that arrive while it is being written
go into the next writing together. Whoever must answer only when a change is durable awaits `flush`. Tables hand out
immutable values only, so that a snapshot is a shallow copy and its encoding may happen outside the loop.

In a Raft group a file is the snapshot of a table that the log holds too. It then carries a stamp, a key of its own that
RocketMQ ignores: which group's log, and up to which entry all of it is in the file. Such files are written only when
somebody asks for it (`flush`), for nothing is lost with them.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from remoting import fastjson
from remoting.errors import HeaderError
from runtime.durable import replace_file
from store.errors import is_full

_log = logging.getLogger(__name__)

# Seconds to let changes gather after a writing, at least; and how many times as long as the writing took, so that a
# table of 100,000 topics does not keep a core and the disk busy when topics arrive one by one.
PAUSE_MIN = 0.05
PAUSE_FACTOR = 4.0
# Seconds before a writing that failed is tried again when nobody asked for it; and one that found no room on the disk,
# for sends are refused until then.
RETRY_PAUSE = 5.0
FULL_PAUSE = 1.0

# The key of the stamp among those of RocketMQ.
STAMP_KEY = "raftStamp"

Chunks = Iterable[bytes]
T = TypeVar("T")


class MetadataError(Exception):
    """A config/*.json file cannot be used; the text names it and says what to do."""


class Stamp(NamedTuple):
    """What a file holds of a group's metadata: all META entries up to `applied`, the last of which is `last_meta`."""

    group: str
    """The group's id, in hexadecimal."""
    applied: int
    last_meta: int
    """0 when no META entry of this group has been applied yet."""

    def encode(self) -> bytes:
        """Return it as JSON."""
        return b'{"group":"%s","applied":%d,"lastMeta":%d}' % (self.group.encode(), self.applied, self.last_meta)


class ConfigFile:
    """Keeps one file equal to a table in memory."""

    def __init__(self, path: Path, snapshot: Callable[[Stamp | None], Callable[[], Chunks]]) -> None:
        """`snapshot` is called in the loop and returns what encodes the content, to be called in a thread.

        It is handed the stamp that the content is to carry.
        """
        self.path = path
        # The stamps that the file on disk and its .bak carry; the entries that what was loaded from them covers.
        self.stamp: Stamp | None = None
        self.backup_stamp: Stamp | None = None
        self.covers = 0
        self.full: OSError | None = None
        """That the last writing found no room on the disk; it is tried again until it does."""
        self._lazy = False
        self._current_stamp: Callable[[], Stamp | None] = lambda: self.stamp
        self._synced: Callable[[], Awaitable[None]] | None = None
        self._snapshot = snapshot
        self._revision = 0
        self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    @property
    def dirty(self) -> bool:
        """Tell whether the table holds something that the file does not."""
        return self._written < self._revision

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """Return what `decode` makes of the file, see read_table, and remember the stamps on disk."""
        found = _read(self.path, decode)
        self.backup_stamp = _stamp_of_file(_backup(self.path))
        if found is None:
            return None
        value, content = found
        self.stamp = _stamp_in(content)
        return value

    def stamped_by(
        self, current: Callable[[], Stamp | None], synced: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Leave it to others when the file is written, and write into it the stamp that is current then.

        `synced` is awaited before: it returns when what the stamp speaks of is on disk, and raises OSError.
        """
        self._lazy = True
        self._current_stamp = current
        self._synced = synced

    def disown(self) -> None:
        """Write no stamp any more: the table is another broker's by now, and no log of a group leads to it (R3)."""
        self._current_stamp = lambda: None

    def touch(self) -> None:
        """Have the next flush write the file, whether the table changed or not."""
        self._revision += 1

    def mark(self) -> None:
        """Note that the table changed; the file follows soon. Must be called in the event loop."""
        self._revision += 1
        if self._keeper is None and not self._lazy:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"write {self.path.name}")

    def write_now(self) -> None:
        """Write the table in the calling thread, before a loop runs. Raises OSError."""
        assert self._writing is None, "a thread is writing the same file"
        self._revision += 1
        stamp = self._current_stamp()
        replace_file(self.path, b"".join(self._snapshot(stamp)()))
        self._written = self._revision
        self._carries(stamp)

    async def flush(self) -> None:
        """Return when everything that the table holds now is durable. Raises OSError."""
        target = self._revision
        while self._written < target:
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write())
            # Shielded: a caller that gives up must not leave two threads writing one file.
            await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        self._hurry.set()
        keeper = self._keeper
        if keeper is not None:
            await asyncio.wait([keeper])
        await self.at_stop(self.flush)

    async def at_stop(self, write: Callable[[], Awaitable[object]]) -> None:
        """Have `write` write the table for the last time; what a group's log holds too may wait for room. OSError."""
        try:
            await write()
        except OSError as error:
            if not is_full(error) or self._current_stamp() is None:
                raise
            _log.warning("no room for %s: the next start takes from the log what it lacks", self.path)

    async def _write(self) -> None:
        revision, stamp = self._revision, self._current_stamp()
        encode = self._snapshot(stamp)
        try:
            if stamp is not None and self._synced is not None:
                await self._synced()
            await asyncio.to_thread(lambda: replace_file(self.path, b"".join(encode())))
            self._written = max(self._written, revision)
            self.full = None
            self._carries(stamp)
        except OSError as error:
            self.full = error if is_full(error) else None
            # Writing tells no name by itself. An error of ours has a sentence and no number: a name would replace it.
            if error.errno is not None:
                error.filename = error.filename or str(self.path)
            raise
        finally:
            self._writing = None

    def _carries(self, stamp: Stamp | None) -> None:
        self.backup_stamp, self.stamp = self.stamp, stamp

    async def _keep(self) -> None:
        told = ""
        try:
            while self.dirty:
                began = time.monotonic()
                try:
                    await self.flush()
                    pause = max(PAUSE_MIN, PAUSE_FACTOR * (time.monotonic() - began))
                except OSError as error:
                    pause = RETRY_PAUSE if self.full is None else FULL_PAUSE
                    if str(error) != told:
                        told = str(error)
                        _log.error("cannot write %s: %s; it is tried again every %s s", self.path, error, pause)
                    if self._hurry.is_set():
                        return
                try:
                    await asyncio.wait_for(self._hurry.wait(), pause)
                except TimeoutError:
                    continue
        finally:
            self._keeper = None


def read_table(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """Return what `decode` makes of the content, or of the ``.bak``'s when the file is missing, empty or damaged.

    `decode` raises HeaderError for what it cannot read. None when neither file exists. Raises MetadataError when
    what exists cannot be used.
    """
    found = _read(path, decode)
    return None if found is None else found[0]


def _read(path: Path, decode: Callable[[bytes], T]) -> tuple[T, bytes] | None:
    """Do what read_table says; the content that was used comes with it."""
    reasons: list[str] = []
    for candidate in (path, _backup(path)):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise MetadataError(f"cannot read {candidate}: {error}") from error
        if not content.strip():
            continue
        try:
            value = decode(content)
        except HeaderError as error:
            reasons.append(f"{candidate}: {error}")
            continue
        if reasons:
            _log.error("%s; the previous content is used instead: %s", reasons[0], candidate)
        return value, content
    if reasons:
        raise MetadataError("; ".join(reasons) + "; put a good copy in its place, or move it away to start empty")
    return None


class _Stamped(msgspec.Struct):
    """All that is read of a file to find its stamp."""

    raftStamp: dict[str, str | int] | None = None


def _stamp_in(content: bytes) -> Stamp | None:
    """Return the stamp in a file's content; RocketMQ writes none."""
    if STAMP_KEY.encode() not in content:
        return None
    try:
        fields = msgspec.json.decode(content, type=_Stamped).raftStamp
    except msgspec.DecodeError:
        return None
    if fields is None:
        return None
    group, applied, last_meta = fields.get("group"), fields.get("applied"), fields.get("lastMeta")
    if not isinstance(group, str) or not isinstance(applied, int) or not isinstance(last_meta, int):
        return None
    return Stamp(group, applied, last_meta)


def _stamp_of_file(path: Path) -> Stamp | None:
    try:
        return _stamp_in(path.read_bytes())
    except OSError:
        return None


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def stamp_part(stamp: Stamp | None) -> list[tuple[str, bytes]]:
    """Return the stamp as a part of table_text; nothing when there is none."""
    return [] if stamp is None else [(STAMP_KEY, stamp.encode())]


def stamped(content: bytes, stamp: Stamp | None, **more: object) -> bytes:
    """Return a JSON object's text with the stamp, and other keys of ours that hold something, before its own keys."""
    head = b"".join(b'"%s":%s,' % (name.encode(), value) for name, value in stamp_part(stamp))
    head += b"".join(b'"%s":%s,' % (name.encode(), msgspec.json.encode(value)) for name, value in more.items() if value)
    return b"{" + head + content[1:] if head else content


def table_text(parts: Iterable[tuple[str, bytes | Iterable[tuple[str, bytes]]]]) -> Chunks:
    """Yield a JSON object whose values are encoded already: a value, or a table of one line per entry."""
    opening = b"{\n"
    for name, value in parts:
        yield opening + b'"%s":' % name.encode()
        opening = b",\n"
        if isinstance(value, bytes):
            yield value
            continue
        comma = b"{\n"
        for key, item in value:
            yield comma + fastjson.dumps_object_keyed(key) + b":" + item
            comma = b",\n"
        yield b"{}" if comma == b"{\n" else b"\n}"
    yield b"\n}\n"
