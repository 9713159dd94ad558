"""Small files that must be whole after any crash: written aside, fsynced, renamed, the folder fsynced.

The previous content stays as ``<name>.bak`` (RocketMQ's habit), and is what a reader gets when the main file is
missing or empty.
"""

import contextlib
import os
from pathlib import Path


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of `path` so that after a crash either the old or the new content is there, whole.

    Raises OSError; the old content is then still in place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    if path.exists():
        backup = path.with_name(path.name + ".bak")
        with contextlib.suppress(FileNotFoundError):
            backup.unlink()
        # A hard link, so that the main name never disappears between the two steps.
        os.link(path, backup)
    aside.replace(path)
    fsync_folder(path.parent)


def read_file(path: Path) -> bytes | None:
    """Return the content of `path`, or of its ``.bak`` when it is missing or empty; None when neither is there."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        with contextlib.suppress(FileNotFoundError):
            content = candidate.read_bytes()
            if content:
                return content
    return None
