"""What a process of the run writes down: one line of JSON per event, handed to the system before the next step.

A kill of the process loses nothing that was noted: no line waits in the process's memory. Times are of the monotonic
clock, which all processes of a machine share.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

Line = dict[str, Any]


class AppJournal:
    """One process's file. Methods may be called from several threads: a line is one write at the file's end."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(self, event: str, **fields: object) -> None:
        """Write one event down; `at` is now unless it is given."""
        os.write(self._file, orjson.dumps({"e": event, "at": time.monotonic(), **fields}) + b"\n")

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


class Tail:
    """Reads the lines of a growing file, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def lines(self) -> Iterator[Line]:
        """Return the whole lines that came since the last call; half a line is left for the next one."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._at += len(line)
                    yield orjson.loads(line)
        except FileNotFoundError:
            return
