"""A machine's disk: real files, and beside them what of each would be there after a loss of power.

What is written and not synced survives a kill and not a loss of power, sector by sector. An fdatasync that fails
leaves the pages in the cache, clean, as Linux does: a later fdatasync says yes and does nothing for them.
"""

import contextlib
import errno
import os
import random
import shutil
from pathlib import Path

from runtime.durable import replace_reserved
from store.files.disk import Disk

SECTOR = 512
DERIVED = ("consumequeue", "index")


class PowerCut(OSError):
    """The power went in the middle of an operation; the process does not live to see it."""


class SimDisk(Disk):
    """The disk of one machine, over all lives of its process. `root` is everything that it holds.

    `fuse`: operations that change something until the power goes, in the middle of the last one. `failing_syncs`: so
    many of the next fdatasyncs fail.
    """

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.fuse: int | None = None
        self.failing_syncs = 0
        # Nothing gets room that has none yet. No process may end for that.
        self.full = False
        # It has failed in the life of this process, which may therefore end.
        self.failed = False
        # A planted bug: syncs are not asked for.
        self.deaf = False
        self.dead = False
        self.syncs = 0
        self._rng = rng
        self._paths: dict[int, Path] = {}
        # File → its durable content; a file that was never synced has none.
        self._durable: dict[Path, bytearray] = {}
        # File → (offset, length) of what was written since.
        self._dirty: dict[Path, list[tuple[int, int]]] = {}
        # Files with pages that are in the cache, not on the disk, and the kernel thinks otherwise.
        self._lost: set[Path] = set()
        self._names: set[Path] = set()
        # Removed, but the removal is not durable: what would be there again.
        self._ghosts: dict[Path, bytes] = {}
        self._derived: dict[Path, bytes] = {}
        # File → up to where it has room. What is removed gives its room to nobody else.
        self._room: dict[Path, int] = {}
        # In the device's cache, which the next fdatasync of any file empties: (file, offset, bytes).
        self._handed: list[tuple[Path, int, bytes]] = []
        root.mkdir(parents=True, exist_ok=True)

    # -- the seam

    def create(self, path: Path, size: int) -> int:
        self._count()
        fd = super().create(path, size)
        self._paths[fd] = path
        self._dirty.setdefault(path, [])
        return fd

    def open(self, path: Path) -> int:
        self._check()
        fd = super().open(path)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        if self._paths.pop(fd, None) is not None:
            super().close(fd)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._check()
        path = self._paths[fd]
        try:
            self._count()
        except PowerCut:
            half = len(data) // 2
            os.pwrite(fd, data[:half], offset)
            self._dirty.setdefault(path, []).append((offset, half))
            raise
        room = self._room.get(path, 0)
        if self.full and offset + len(data) > room:
            data, lacking = data[: max(0, room - offset)], OSError(errno.ENOSPC, "the disk is full", str(path))
        else:
            self._room[path], lacking = max(room, offset + len(data)), None
        super().pwrite(fd, data, offset)
        self._dirty.setdefault(path, []).append((offset, len(data)))
        if lacking is not None:
            raise lacking

    def allocate(self, fd: int, offset: int, length: int) -> None:
        self._check()
        path = self._paths[fd]
        if self.full and offset + length > self._room.get(path, 0):
            raise OSError(errno.ENOSPC, "the disk is full", str(path))
        self._room[path] = max(self._room.get(path, 0), offset + length)

    def fdatasync(self, fd: int) -> None:
        self._count()
        path = self._paths[fd]
        self.syncs += 1
        if self.deaf:
            return
        ranges = self._dirty.get(path, [])
        if self.failing_syncs:
            self.failing_syncs -= 1
            self.failed = True
            self._lost.add(path)
            self._dirty[path] = []
            raise OSError(errno.EIO, "the disk does not take it", str(path))
        self._sync(path, fd, ranges)
        for handed, offset, data in self._handed:
            if handed in self._durable:
                self._durable[handed][offset : offset + len(data)] = data
        self._handed.clear()

    def send_off(self, _fd: int, _offset: int, _length: int) -> None:
        self._count()

    def hand_over(self, fd: int, offset: int, length: int) -> None:
        self._count()
        self._handed.append((self._paths[fd], offset, os.pread(fd, length, offset)))

    def sync_folder(self, folder: Path) -> None:
        self._count()
        self._names = {path for path in self._names if path.parent != folder}
        self._names.update(path for path in folder.iterdir() if path.is_file())
        for path in [path for path in self._ghosts if path.parent == folder]:
            del self._ghosts[path]

    def sync_tree(self, folder: Path) -> None:
        self._count()
        for path in list(self._dirty):
            if path.exists():
                fd = os.open(path, os.O_RDONLY)
                try:
                    self._sync(path, fd, self._dirty[path])
                finally:
                    os.close(fd)
        self._derived = {path: path.read_bytes() for path in self._derived_files()}
        self._names.update(path for path in folder.rglob("*") if path.is_file())
        self._ghosts.clear()

    def unlink(self, path: Path) -> None:
        self._count()
        if path in self._names and path in self._durable:
            self._ghosts[path] = bytes(self._durable[path])
        self._names.discard(path)
        self._lost.discard(path)
        self._durable.pop(path, None)
        self._dirty.pop(path, None)
        super().unlink(path)

    def used_ratio(self, _folder: Path) -> float:
        return 0.1

    def free_bytes(self, _folder: Path) -> int:
        return 0 if self.full else 1 << 40

    def reserve(self, path: Path, size: int) -> None:
        if not self.full:
            super().reserve(path, size)

    def replace(self, path: Path, content: bytes) -> None:
        """Replace a small file, as runtime.durable.replace_reserved does; it is durable when this returns."""
        self._count()
        if self.failing_syncs:
            self.failing_syncs -= 1
            self.failed = True
            raise OSError(errno.EIO, "the disk does not take it", str(path))
        if self.full and not path.with_name(path.name + ".tmp").exists():
            raise OSError(errno.ENOSPC, "the disk is full", str(path))
        replace_reserved(path, content)

    # -- what the world asks

    def holds(self, path: Path, offset: int, data: bytes | memoryview) -> bool:
        """Tell whether these bytes would be there after a loss of power at this moment, whatever is torn."""
        content = self._durable.get(path)
        if content is None or path not in self._names or bytes(content[offset : offset + len(data)]) != data:
            return False
        # Rewritten with the same bytes is as good as synced; with others it is not.
        fd_bytes = path.read_bytes()[offset : offset + len(data)] if self._dirty.get(path) else data
        return fd_bytes == data

    # -- the accidents

    def die(self) -> None:
        """Take the disk away from its process; nothing of it writes any more."""
        self.dead = True
        for fd in list(self._paths):
            self.close(fd)

    def revive(self) -> None:
        """Give it to the next process."""
        assert not self._paths, "the last process is gone"
        self.dead = False
        self.failed = False
        self.fuse = None
        self.failing_syncs = 0
        self._handed.clear()

    def lose_power(self) -> None:
        """Bring the files to a state that they may have now. The disk must be dead."""
        assert self.dead, "the process must be gone first"
        rng = self._rng
        # All kept, all lost, or a mixture: extremes find other mistakes than mixtures.
        odds = rng.choice([0.0, 0.0, 0.3, 0.7, 1.0])
        for path in sorted(self._lost.union(self._dirty)):
            if path.exists():
                self._tear(path, odds)
        for path, content in sorted(self._ghosts.items()):
            if not path.exists() and rng.random() < odds:
                path.write_bytes(content)
                self._durable[path] = bytearray(content)
                self._names.add(path)
        self._ghosts.clear()
        self._dirty.clear()
        self._lost.clear()
        self._handed.clear()
        for path in self._derived_files():
            self._mix(path, self._derived.get(path, b""), odds)

    def write_back(self, path: Path) -> None:
        """Let the kernel write a file back by itself, as it does sooner or later."""
        self._durable[path] = bytearray(path.read_bytes())
        self._dirty[path] = []

    def rot(self, path: Path, offset: int, length: int) -> None:
        """Spoil durable bytes, as a bad medium does."""
        content = self._durable[path]
        spoilt = bytes(byte ^ 0x5A for byte in content[offset : offset + length])
        content[offset : offset + length] = spoilt
        fd = os.open(path, os.O_RDWR)
        try:
            os.pwrite(fd, spoilt, offset)
        finally:
            os.close(fd)

    def lose(self, path: Path) -> None:
        """Let a file be gone, with whatever of it was durable."""
        path.unlink()
        self._names.discard(path)
        self._lost.discard(path)
        self._durable.pop(path, None)
        self._dirty.pop(path, None)
        self._ghosts.pop(path, None)
        self._derived.pop(path, None)

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders in a folder."""
        folder = self.root / name
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def take_away(self, name: str) -> None:
        """Let a folder of what is derived be gone."""
        for path in [path for path in (self.root / name).rglob("*") if path.is_file()]:
            self.lose(path)
        remove_tree(self.root / name)

    def wipe(self) -> None:
        """Put an empty disk in its place."""
        assert self.dead, "the process must be gone first"
        shutil.rmtree(self.root)
        self.root.mkdir()
        for table in (self._durable, self._dirty, self._ghosts, self._derived):
            table.clear()
        self._lost.clear()
        self._handed.clear()
        self._names.clear()
        self._room.clear()
        self.full = False

    # -- inside

    def _sync(self, path: Path, fd: int, ranges: list[tuple[int, int]]) -> None:
        content = self._durable.get(path)
        if content is None:
            self._durable[path] = bytearray(os.pread(fd, os.fstat(fd).st_size, 0))
        else:
            for offset, length in ranges:
                content[offset : offset + length] = os.pread(fd, length, offset)
        self._dirty[path] = []

    def _tear(self, path: Path, odds: float) -> None:
        rng = self._rng
        content = self._durable.get(path)
        if path not in self._names and rng.random() >= odds:
            path.unlink()
            self._durable.pop(path, None)
            return
        size = path.stat().st_size
        if content is None:
            # The name is there, the length perhaps.
            if rng.random() >= odds:
                path.write_bytes(b"")
                return
            content = self._durable[path] = bytearray(size)
        now = path.read_bytes()
        for offset, length in self._dirty.get(path, []):
            for at in range(offset - offset % SECTOR, offset + length, SECTOR):
                if rng.random() < odds:
                    content[at : at + SECTOR] = now[at : at + SECTOR]
        self._names.add(path)
        path.write_bytes(content)

    def _mix(self, path: Path, durable: bytes, odds: float) -> None:
        now = path.read_bytes()
        if now == durable:
            return
        mixed = bytearray(durable.ljust(len(now), b"\0"))
        for at in range(0, len(now), SECTOR):
            if self._rng.random() < odds:
                mixed[at : at + SECTOR] = now[at : at + SECTOR]
        path.write_bytes(mixed)
        self._derived[path] = bytes(mixed)

    def _derived_files(self) -> list[Path]:
        found: list[Path] = []
        for name in DERIVED:
            for folder in self.root.rglob(name):
                found += [path for path in folder.rglob("*") if path.is_file()]
        return sorted(found)

    def _check(self) -> None:
        if self.dead:
            raise PowerCut(errno.EIO, "the power is off")

    def _count(self) -> None:
        self._check()
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                self.dead = True
                raise PowerCut(errno.EIO, "the power goes")


def remove_tree(folder: Path) -> None:
    """Remove a folder and what is in it, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
