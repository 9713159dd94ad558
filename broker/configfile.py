"""One of the broker's config/*.json tables on disk: written whole, by a thread, as seldom as possible.

A table marks its file as changed (`mark`), and the file is written soon; changes that arrive while it is being written
go into the next writing together. Whoever must answer only when a change is durable awaits `flush`. Tables hand out
immutable values only, so that a snapshot is a shallow copy and its encoding may happen outside the loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from remoting import fastjson
from remoting.errors import HeaderError
from runtime.durable import replace_file

_log = logging.getLogger(__name__)

# Seconds to let changes gather after a writing, at least; and how many times as long as the writing took, so that a
# table of 100,000 topics does not keep a core and the disk busy when topics arrive one by one.
PAUSE_MIN = 0.05
PAUSE_FACTOR = 4.0
# Seconds before a writing that failed (disk full) is tried again when nobody asked for it.
RETRY_PAUSE = 5.0

Chunks = Iterable[bytes]
T = TypeVar("T")


class MetadataError(Exception):
    """A config/*.json file cannot be used; the text names it and says what to do."""


class ConfigFile:
    """Keeps one file equal to a table in memory."""

    def __init__(self, path: Path, snapshot: Callable[[], Callable[[], Chunks]]) -> None:
        """`snapshot` is called in the loop and returns what encodes the content, to be called in a thread."""
        self.path = path
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

    def mark(self) -> None:
        """Note that the table changed; the file follows soon. Must be called in the event loop."""
        self._revision += 1
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"write {self.path.name}")

    def write_now(self) -> None:
        """Write the table in the calling thread, before a loop runs. Raises OSError."""
        assert self._writing is None, "a thread is writing the same file"
        self._revision += 1
        replace_file(self.path, b"".join(self._snapshot()()))
        self._written = self._revision

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
        await self.flush()

    async def _write(self) -> None:
        revision = self._revision
        encode = self._snapshot()
        try:
            await asyncio.to_thread(lambda: replace_file(self.path, b"".join(encode())))
            self._written = max(self._written, revision)
        finally:
            self._writing = None

    async def _keep(self) -> None:
        try:
            while self.dirty:
                began = time.monotonic()
                try:
                    await self.flush()
                    pause = max(PAUSE_MIN, PAUSE_FACTOR * (time.monotonic() - began))
                except OSError as error:
                    _log.error("cannot write %s: %s; it is tried again in %s s", self.path, error, RETRY_PAUSE)
                    if self._hurry.is_set():
                        return
                    pause = RETRY_PAUSE
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
    reasons: list[str] = []
    for candidate in (path, path.with_name(path.name + ".bak")):
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
        return value
    if reasons:
        raise MetadataError("; ".join(reasons) + "; put a good copy in its place, or move it away to start empty")
    return None


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
