"""Reads the whole log again, slowly, and looks whether it is still what was written (R18).

Bytes rot where nobody reads. So everything that this process has not just written is read from the disk itself, not
from the page cache, a slice at a time in the helper's thread, at a rate that leaves clients alone; a pass over the log
begins where the last one was left, in which file at least. What is found is looked at once more in the store's thread:
what memory still holds right is written again, everything else is counted, logged, and in a group fetched from a peer.
"""

import json
import logging
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from runtime.clock import Clock
from runtime.durable import read_file, replace_file
from store.files.mappedfile import read_cold
from store.integrity.scrubcheck import Before, ScrubOutcome, check_piece
from store.integrity.verifier import Verifier
from store.log.commitlog import CommitLog
from store.types import Integrity

_LOG = logging.getLogger(__name__)

# Read and checked in one go; what is larger takes a slice of its own.
SLICE_BYTES = 1024 * 1024
# A pass over the log begins at the earliest so long after the one before began.
PASS_SECONDS = 3600.0
# Where the pass is: the file, so that a start goes on at a border.
PLACE_NAME = "scrub.json"
# The unit of direct reads: at least the sector of every disk.
_BLOCK_BYTES = 4096


class Scrub:
    """Driven by step() in the store's thread; `submit` hands its slices to the helper's."""

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        verifier: Verifier,
        clock: Clock,
        submit: Callable[[Callable[[], None]], None],
        rate: int,
    ) -> None:
        """`rate`: bytes per second, 0 for none; may be changed."""
        self._place_path = root / PLACE_NAME
        self._log = log
        self._verifier = verifier
        self._clock = clock
        self._submit = submit
        self.rate = rate
        self.bytes = self.passes = self.rewritten = 0
        now = clock.monotonic()
        self._due = self._pass_at = now
        self.position = _place(self._place_path, log)
        self._searching = False
        self._before: Before | None = None
        self._needed = 0
        self._running = False
        self._result: tuple[ScrubOutcome | None, int] | None = None

    def step(self) -> None:
        """Take what a slice has found, and begin the next one when it is time."""
        result = self._result
        if result is not None:
            self._result, self._running = None, False
            self._take(*result)
        if self._running or self.rate <= 0 or self._clock.monotonic() < self._due:
            return
        log = self._log
        if self.position < log.min_position:
            self._go_to(log.min_position)
        until = min(self._verifier.fresh_from, log.flushed)
        if self.position >= until:
            if self.position > log.min_position:
                self._end_pass()
            return
        path = log.path_of(self.position)
        if path is None:
            self._go_to(log.min_position)
            return
        self._running = True
        file_end = self.position - self.position % log.file_bytes + log.file_bytes
        size = min(max(SLICE_BYTES, self._needed), min(file_end, log.written) - self.position)
        where, searching, before = self.position, self._searching, self._before
        entries = self._verifier.entries
        entries_from = None if entries is None else entries.begin

        def slice_of_log() -> None:
            checked = None
            try:
                data = read_direct(path, where % log.file_bytes, size)
                checked = check_piece(
                    memoryview(data),
                    where,
                    file_end,
                    entries_from=entries_from,
                    searching=searching,
                    before=before,
                )
            except FileNotFoundError:
                # Its time was over.
                pass
            except (OSError, EOFError) as error:
                checked = ScrubOutcome(file_end, 0, False, [(where, f"{type(error).__name__}: {error}")], None)
            except Exception:
                _LOG.exception("the scrub failed at %d", where)
                checked = ScrubOutcome(file_end, 0, False, [], None)
            self._result = checked, size

        self._submit(slice_of_log)

    def report(self) -> Integrity:
        """Return what was found, by whomever, and how far it is."""
        verifier = self._verifier
        return Integrity(
            found=verifier.found,
            places=verifier.places(),
            rate=self.rate,
            position=self.position,
            until=min(verifier.fresh_from, self._log.flushed),
            checked=self.bytes,
            passes=self.passes,
            rewritten=self.rewritten,
        )

    def _take(self, checked: ScrubOutcome | None, size: int) -> None:
        now = self._clock.monotonic()
        if checked is None:
            return
        done = max(0, min(checked.end - self.position, size))
        self.bytes += done
        self._due = max(self._due, now - 1.0) + max(done, 1) / max(self.rate, 1)
        for position, reason in checked.bad:
            self._look_again(position, reason)
        before, log = self.position, self._log
        self.position, self._searching, self._needed = checked.end, checked.searching, checked.needed
        self._before = checked.before
        if checked.end == before and (not checked.needed or before + checked.needed > log.written):
            # Nothing whole stands before the end: a slave's log may end inside a record.
            self._end_pass()
        elif self.position // log.file_bytes > before // log.file_bytes:
            self._save(self.position)

    def _look_again(self, position: int, reason: str) -> None:
        log = self._log
        if not log.min_position <= position < min(self._verifier.fresh_from, log.written):
            return
        try:
            right = self._verifier.right_bytes(position)
            if right is not None:
                begin, data = right
                log.rewrite(begin, bytes(data))
                self.rewritten += 1
                _LOG.warning(
                    "the disk of the CommitLog was wrong at %d (%s): written again from memory", position, reason
                )
                return
        except (OSError, EOFError) as error:
            reason = f"{reason}; {error}"
        self._verifier.note(position, reason)

    def _end_pass(self) -> None:
        self.passes += 1
        self._due = self._pass_at = max(self._clock.monotonic(), self._pass_at + PASS_SECONDS)
        self._go_to(self._log.min_position)
        self._save(self.position)

    def _go_to(self, position: int) -> None:
        self.position, self._searching, self._needed, self._before = position, False, 0, None

    def _save(self, position: int) -> None:
        content = json.dumps({"position": position}).encode()

        def save() -> None:
            try:
                replace_file(self._place_path, content)
            except OSError as error:
                _LOG.debug("the place of the scrub is not noted: %s", error)

        self._submit(save)


def _place(path: Path, log: CommitLog) -> int:
    """Return the file's start at which the pass before was left, the log's begin when that is not known any more."""
    try:
        position = json.loads(read_file(path) or b"{}").get("position", 0)
    except (OSError, ValueError, AttributeError):
        position = 0
    within = isinstance(position, int) and position % log.file_bytes == 0 and log.min_position < position <= log.written
    return position if within else log.min_position


def read_direct(path: Path, offset: int, size: int) -> bytes | memoryview:
    """Return bytes of a file as the disk has them, past the page cache where the file system can do that.

    Raises OSError; EOFError when the file is too short.
    """
    begin = offset - offset % _BLOCK_BYTES
    length = -(-(offset + size - begin) // _BLOCK_BYTES) * _BLOCK_BYTES
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except FileNotFoundError:
        raise
    except OSError:
        return read_cold(path, offset, size)
    try:
        # Anonymous memory begins at a page, as direct reads want it.
        buffer = mmap.mmap(-1, length)
        got = os.preadv(fd, [buffer], begin)
    except OSError:
        # Another reason than that it cannot read like this will show again.
        return read_cold(path, offset, size)
    finally:
        os.close(fd)
    if got < offset - begin + size:
        return read_cold(path, offset, size)
    return memoryview(buffer)[offset - begin : offset - begin + size]
