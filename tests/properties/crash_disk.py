"""A disk that loses power: what was written and not synced may be there or not, sector by sector."""

import errno
import os
import random
import threading
from pathlib import Path

from store.files.disk import Disk

SECTOR = 512


class CrashDisk(Disk):
    """Files are real; beside them stands what of each is durable. Once dead, every call fails.

    `fuse` counts down with each call that changes something (those of the store's helper thread do not count, since
    they come at no certain moment); at zero the power goes, in the middle of a write if it is one. `full`: the next
    write takes so many bytes and then says that the disk is full.
    """

    def __init__(self, root: Path, derived: list[Path], *, after_kill: "CrashDisk | None" = None) -> None:
        self.root = root
        self.fuse: int | None = None
        self.full: int | None = None
        self.dead = False
        self._derived = derived
        self._lock = threading.RLock()
        self._paths: dict[int, Path] = {}
        self._durable: dict[Path, bytes] = {}
        self._names: set[Path] = set()
        if after_kill is not None:
            # The machine went on: what was not synced is in its cache still, and not on its disk.
            self._durable, self._names = after_kill._durable, after_kill._names
        else:
            self.sync_tree(root)

    # -- the disk

    def create(self, path: Path, size: int) -> int:
        self._count()
        with self._lock:
            fd = super().create(path, size)
            self._paths[fd] = path
            return fd

    def open(self, path: Path) -> int:
        self._check()
        with self._lock:
            fd = super().open(path)
            self._paths[fd] = path
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._paths.pop(fd, None)
            super().close(fd)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        try:
            self._count()
        except OSError:
            if self.fuse == 0:
                self.fuse = -1
                os.pwrite(fd, data[: len(data) // 2], offset)
            raise
        if self.full is not None and threading.current_thread() is threading.main_thread():
            taken, self.full = self.full, None
            os.pwrite(fd, data[:taken], offset)
            raise OSError(errno.ENOSPC, "the disk is full")
        super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self._count()
        with self._lock:
            path = self._paths[fd]
            if path.exists():
                self._durable[path] = path.read_bytes()

    def sync_folder(self, folder: Path) -> None:
        self._count()
        with self._lock:
            self._names.update(folder.iterdir())

    def sync_tree(self, folder: Path) -> None:
        self._count()
        with self._lock:
            for path in folder.rglob("*"):
                if path.is_file():
                    self._durable[path] = path.read_bytes()
                    self._names.add(path)

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)

    # -- the accident

    def lose_power(self, seed: int) -> None:
        """Bring the folder to a state that the disk may have after the power went. The store must be closed."""
        dice = random.Random(seed)
        # All kept, all lost, or a mixture: extremes find other mistakes than mixtures.
        odds = dice.choice([0.0, 0.2, 0.5, 0.9, 1.0])
        files = [path for path in self.root.rglob("*") if path.is_file() and self._is_tracked(path)]
        for path in sorted(files):
            if path not in self._names and dice.random() >= odds:
                path.unlink()
                continue
            now = path.read_bytes()
            durable = self._durable.get(path, b"").ljust(len(now), b"\0")
            mixed = bytearray(durable)
            for at in range(0, len(now), SECTOR):
                if dice.random() < odds:
                    mixed[at : at + SECTOR] = now[at : at + SECTOR]
            path.write_bytes(mixed)

    def _is_tracked(self, path: Path) -> bool:
        return path.parent.name == "commitlog" or any(folder in path.parents for folder in self._derived)

    def _check(self) -> None:
        if self.dead:
            raise OSError(errno.EIO, "the power is off")

    def _count(self) -> None:
        self._check()
        if self.fuse is not None and threading.current_thread().name != "store-helper":
            self.fuse -= 1
            if self.fuse <= 0:
                self.dead = True
                self.fuse = 0
                self._check()
