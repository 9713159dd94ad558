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


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace the content of `path` so that after a crash either the old or the new content is there, whole.

    `mode`: who may read it, at most; who could not read the old content cannot read the new one. Raises OSError; the
    old content is then still in place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        mode &= path.stat().st_mode | 0o600
    aside = path.with_name(path.name + ".tmp")
    if mode & 0o077 == 0:
        # One that a crash left may be open to others.
        aside.unlink(missing_ok=True)
    _write(aside, content, os.O_TRUNC, mode)
    if path.exists():
        backup = path.with_name(path.name + ".bak")
        with contextlib.suppress(FileNotFoundError):
            backup.unlink()
        # A hard link, so that the main name never disappears between the two steps.
        os.link(path, backup)
    aside.replace(path)
    fsync_folder(path.parent)


def replace_reserved(path: Path, content: bytes) -> None:
    """Do what replace_file does, in room that was kept: content of the same size has its place on a full disk too.

    What was the backup before stays as ``<name>.tmp``, and is written over the next time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside, backup, spare = (path.with_name(path.name + end) for end in (".tmp", ".bak", ".old"))
    if aside.exists() and aside.stat().st_nlink > 1:
        # A crash left it as another name of a file that counts.
        aside.unlink()
    _write(aside, content, 0)
    if path.exists():
        if backup.exists():
            backup.replace(spare)
        os.link(path, backup)
    aside.replace(path)
    if spare.exists():
        spare.replace(aside)
    else:
        reserve(path, len(content))
    fsync_folder(path.parent)


def reserve(path: Path, size: int) -> None:
    """Keep room for replace_reserved to write so many bytes, unless some is kept; that there is none is no failure."""
    aside = path.with_name(path.name + ".tmp")
    if not aside.exists():
        with contextlib.suppress(OSError):
            _write(aside, bytes(size), 0, sync=False)


def _write(path: Path, content: bytes, flags: int, mode: int = 0o644, *, sync: bool = True) -> None:
    """Write a whole file, durably with `sync`; without O_TRUNC over what it holds."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, mode)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.ftruncate(fd, len(content))
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_file(path: Path) -> bytes | None:
    """Return the content of `path`, or of its ``.bak`` when it is missing or empty; None when neither is there."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        with contextlib.suppress(FileNotFoundError):
            content = candidate.read_bytes()
            if content:
                return content
    return None
