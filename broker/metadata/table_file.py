"""One of the broker's config/*.json tables on disk: written by a thread, and whole as seldom as possible.

A table marks its file as changed (`mark`), and the file is written soon; changes that arrive while it is being written
go into the next writing together. Whoever must answer only when a change is durable awaits `flush`. Tables hand out
immutable values only, so that a snapshot is a shallow copy and its encoding may happen outside the loop.

A file of some size is not replaced for each change: those that a table says as operations go into a journal beside it
(broker/metadata/table_journal.py), until that is as long as the file, has become quiet, or the broker stops.

In a Raft group a file is the snapshot of a table that the log holds too, and there is no journal. It then carries a
stamp (broker/metadata/stamps.py): which group's log, and up to which entry all of it is in the file. Such files are
written only when somebody asks for it (`flush`), for nothing is lost with them.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from broker.metadata.stamps import Stamp, stamp_in, stamp_part, stamped
from broker.metadata.table_journal import GENERATION_KEY, JournalRefused, TableJournal
from remoting import fastjson
from remoting.errors import HeaderError
from runtime.durable import replace_file
from store.errors import is_full

__all__ = ["Chunks", "ConfigFile", "MetadataError", "Stamp", "read_config", "stamp_part", "stamped", "table_text"]

_log = logging.getLogger(__name__)

# Seconds to let changes gather after a writing, at least; and how many times as long as the writing took, so that a
# table of 100,000 topics does not keep a core and the disk busy when topics arrive one by one.
PAUSE_MIN = 0.05
PAUSE_FACTOR = 4.0
# Seconds before a writing that failed is tried again when nobody asked for it; and one that found no room on the disk,
# for sends are refused until then.
RETRY_PAUSE = 5.0
FULL_PAUSE = 1.0
# Seconds without a change after which the file takes over what its journal holds, so that tools which read it see it;
# of a table that is never quiet it does so after some more, or so many times as long as writing it whole takes.
QUIET_SECONDS = 5.0
AGE_SECONDS = 60.0
AGE_FACTOR = 100.0
# Operations that wait to be written; of more than that (the disk is out of order) only the outcome is written.
WAITING_MAX = 20_000
# How long a file of a group that took longer than SLOW_SECONDS to write rests, in multiples of that time.
SLOW_SECONDS = 0.05
REST_FACTOR = 20.0

Chunks = Iterable[bytes]
T = TypeVar("T")


class MetadataError(Exception):
    """A config/*.json file cannot be used; the text names it and says what to do."""


class ConfigFile:
    """Keeps one file equal to a table in memory."""

    def __init__(
        self,
        path: Path,
        snapshot: Callable[[Stamp | None], Callable[[], Chunks]],
        *,
        mode: int = 0o644,
        optional: bool = False,
        may_lack_stamp: bool = False,
    ) -> None:
        """`snapshot` is called in the loop and returns what encodes the content, to be called in a thread.

        It is handed the stamp that the content is to carry. `optional`: a member of a group may lack it, as older
        versions did; `may_lack_stamp`: or have it without a stamp, and the table says by itself that it knows nothing.
        """
        self.path = path
        self._optional, self._may_lack_stamp = optional, may_lack_stamp
        self._mode = mode
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
        self._revision = self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._folding: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._journal = TableJournal(path, mode)
        self._journaled = False
        self._found: tuple[bytes, Path] | None = None
        # Changes that the journal is to be told; and that there are some which no operation says.
        self._waiting: list[Any] = []
        self._whole = False
        # Somebody wants the journal's content in the file; and when it is tried again after there was no room.
        self._folds, self._retry_at = False, 0.0
        # Of the last time that it was written whole: bytes, when, and how long it took.
        self._size, self._whole_at, self._whole_seconds = 0, 0.0, 0.0

    @property
    def rests(self) -> bool:
        """Whether it was written so lately, for how long that takes, that what the log holds too may wait."""
        took = self._whole_seconds
        return took > SLOW_SECONDS and time.monotonic() - self._whole_at < REST_FACTOR * took

    @property
    def dirty(self) -> bool:
        """Tell whether the table holds something that the file does not."""
        return self._written < self._revision

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """Return what `decode` makes of the file, or of its .bak, and remember the stamps on disk."""
        found = read_config(self.path, decode)
        self.backup_stamp = _stamp_of_file(_backup(self.path))
        if found is None:
            return None
        value, content, path = found
        self.stamp = stamp_in(content)
        self._size, self._found = len(content), (content, path)
        return value

    def replay(self, apply: Callable[[Any], object]) -> None:
        """Have every operation applied that the loaded file lacks, and write it whole then; to be called after load().

        Raises MetadataError, OSError.
        """
        content, path = self._found or (None, self.path)
        self._found, self._journaled = None, True
        try:
            operations = self._journal.replay(content, backup=path != self.path)
        except JournalRefused as error:
            raise MetadataError(str(error)) from error
        for operation in operations:
            apply(operation)
        if operations:
            try:
                self.write_now()
            except OSError as error:
                if not is_full(error):
                    raise
                _log.warning("no room for %s: its journal is kept, and goes on", self.path)

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

    def may_begin(self) -> bool:
        """Tell whether a member of a group may begin with this file, which carries no stamp; it gets one then."""
        if self._optional and self._may_lack_stamp:
            self.touch()
            return True
        return self._optional and not self.path.exists()

    def touch(self) -> None:
        """Have the next flush write the file whole, whether the table changed or not."""
        self._revision += 1
        self._whole = True
        self._waiting.clear()

    def note(self, operation: Any) -> None:
        """Note a change that an operation says in full; the next flush makes it durable."""
        if self._lazy or self._whole or not self._journaled or len(self._waiting) >= WAITING_MAX:
            self.touch()
        else:
            self._revision += 1
            self._waiting.append(operation)

    def mark(self, operation: Any = None) -> None:
        """Note a change, in full if an operation is given; the file follows soon. Must be called in the event loop."""
        if operation is None:
            self.touch()
        else:
            self.note(operation)
        if self._keeper is None and not self._lazy:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"write {self.path.name}")

    def write_now(self) -> None:
        """Write the table in the calling thread, before a loop runs. Raises OSError."""
        assert self._writing is None, "a thread is writing the same file"
        self._revision += 1
        stamp = self._current_stamp()
        self._replace(self._snapshot(stamp))
        self._waiting.clear()
        self._whole = False
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
        if self._keeper is not None:
            await asyncio.wait([self._keeper])
        await self.at_stop(self.flush)

    async def at_stop(self, write: Callable[[], Awaitable[object]]) -> None:
        """Have `write` write the table for the last time; what a group's log holds too may wait for room. OSError."""
        self._hurry.set()
        try:
            await write()
        except OSError as error:
            if not is_full(error) or self._current_stamp() is None:
                raise
            _log.warning("no room for %s: the next start takes from the log what it lacks", self.path)
        if self._folding is not None:
            await asyncio.wait([self._folding])
        if self._journal.size:
            await self._fold()

    async def _fold(self) -> None:
        """Write whole what the journal holds; if that fails, nothing is lost. Raises OSError for what it lacks."""
        self._folds = True
        self._revision += 1
        await self.flush()

    async def _write(self) -> None:
        revision, stamp = self._revision, self._current_stamp()
        must = self._lazy or self._whole or not self._journal.usable
        may = not must and (self._folds or (self._journal.is_due(self._size) and time.monotonic() >= self._retry_at))
        encode = self._snapshot(stamp) if must or may else None
        waiting, self._waiting = self._waiting, []
        self._whole = self._folds = False
        written = False
        try:
            if encode is None or not await self._replaced(encode, stamp, must=must):
                if waiting:
                    await asyncio.to_thread(self._journal.append, waiting)
                self._fold_later()
            written = True
            self._written = max(self._written, revision)
            self.full = None
        except OSError as error:
            self.full = error if is_full(error) else None
            # Writing tells no name by itself. An error of ours has a sentence and no number: a name would replace it.
            if error.errno is not None:
                error.filename = error.filename or str(self.path)
            raise
        finally:
            if not written:
                self._whole |= must
                self._waiting = [] if self._whole else waiting + self._waiting
            self._writing = None

    async def _replaced(self, encode: Callable[[], Chunks], stamp: Stamp | None, *, must: bool) -> bool:
        """Write the file whole; False when that failed and the journal will do. Raises OSError."""
        try:
            if stamp is not None and self._synced is not None:
                await self._synced()
            await asyncio.to_thread(self._replace, encode)
        except OSError as error:
            if must:
                raise
            _log.warning("cannot write %s: %s; its journal is kept, and goes on", self.path, error)
            self._retry_at = time.monotonic() + RETRY_PAUSE
            return False
        self._carries(stamp)
        return True

    def _replace(self, encode: Callable[[], Chunks]) -> None:
        """Write the file whole, in whatever thread. Raises OSError."""
        began = time.monotonic()
        content = b"".join(encode())
        generation = self._journal.next_generation(0 if self._lazy or not self._journaled else len(content))
        replace_file(self.path, stamped(content, None, **{GENERATION_KEY: generation}), self._mode)
        self._journal.begin(generation)
        self._size, self._whole_at = len(content), time.monotonic()
        self._whole_seconds = self._whole_at - began

    def _carries(self, stamp: Stamp | None) -> None:
        self.backup_stamp, self.stamp = self.stamp, stamp

    def _fold_later(self) -> None:
        if self._folding is None:
            self._folding = asyncio.get_running_loop().create_task(
                self._fold_when_quiet(), name=f"fold {self.path.name}"
            )

    async def _fold_when_quiet(self) -> None:
        try:
            while self._journal.size:
                revision = self._revision
                if await self._hurried(QUIET_SECONDS):
                    return
                old = time.monotonic() - self._whole_at > max(AGE_SECONDS, AGE_FACTOR * self._whole_seconds)
                if old or revision == self._revision:
                    try:
                        await self._fold()
                    except OSError as error:
                        _log.error("cannot write %s: %s", self.path, error)
        finally:
            self._folding = None

    async def _hurried(self, seconds: float) -> bool:
        """Wait; tell whether the broker stops."""
        try:
            await asyncio.wait_for(self._hurry.wait(), seconds)
        except TimeoutError:
            return False
        return True

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
                await self._hurried(pause)
        finally:
            self._keeper = None


def read_config(path: Path, decode: Callable[[bytes], T]) -> tuple[T, bytes, Path] | None:
    """Return what `decode` makes of the content, or of the ``.bak``'s when the file is missing, empty or damaged.

    With the content that was used, and where it stands. `decode` raises HeaderError for what it cannot read. None when
    neither file exists. Raises MetadataError when what exists cannot be used.
    """
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
        return value, content, candidate
    if reasons:
        raise MetadataError("; ".join(reasons) + "; put a good copy in its place, or move it away to start empty")
    return None


def _stamp_of_file(path: Path) -> Stamp | None:
    try:
        return stamp_in(path.read_bytes())
    except OSError:
        return None


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


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
