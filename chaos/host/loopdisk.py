"""A member's disk as an ext4 file system of its own, in a file: its power can really fail, and it can really be full.

A power failure is the file system's own FS_IOC_SHUTDOWN without its journal being written: what the kernel kept for
later is gone, in files and in directories, and mounting it again does what a machine does that starts. The mount says
``commit=600``, so that no journal is written in the middle of a run by the clock alone. It takes root, and a mount
namespace (chaos/host/namespaces.py), with which all of it goes. `python -m chaos.host.loopdisk FOLDER` tries it there.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from chaos.host.namespaces import tool
from runtime.crc import crc32
from runtime.durable import fsync_folder

# FS_IOC_SHUTDOWN, _IOR('X', 125, __u32), and its flag that drops what the journal has not: <linux/fs.h> of ext4.
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
# The file has holes: what is not written takes no room.
IMAGE_BYTES = 1024 * 1024 * 1024
# No room kept back for root, all tables written at once, and a journal as small as it may be.
MAKE = ("-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4")
MOUNT = "loop,commit=600,noatime"
BLOCK_BYTES = 4096
COMMAND_S = 30.0
# Whoever looked into a file may still have it open for a moment.
BUSY_S = 5.0
BALLAST = "ballast"


class DiskError(Exception):
    """The file system cannot be made, mounted or shut down; the text says why."""


class LoopDisk:
    """One file system in a file. Its methods raise DiskError; whoever writes to it must be dead where they say so."""

    def __init__(self, image: Path, mount: Path, size_bytes: int = IMAGE_BYTES) -> None:
        self.mount = mount
        self._image = image
        self._size_bytes = size_bytes
        self._mounted = False

    def open(self) -> None:
        """Make it, empty, and mount it."""
        self.mount.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(self._size_bytes)
        _run("mkfs.ext4", *MAKE, str(self._image))
        self._mount()

    def close(self) -> None:
        """Leave what it holds in the folder where it was mounted, and remove the rest. Its user must be dead."""
        if self._mounted:
            kept = self.mount.with_name(self.mount.name + ".kept")
            shutil.rmtree(kept, ignore_errors=True)
            self.drain()
            shutil.copytree(self.mount, kept, ignore=shutil.ignore_patterns("lost+found"))
            self._unmount()
            self.mount.rmdir()
            kept.rename(self.mount)
        self._image.unlink(missing_ok=True)

    def lose_power(self) -> str:
        """Shut it down, mount it again, and return what was lost. Its user must be dead.

        "" when it did not shut down. Bytes are counted in whole blocks of files that differ.
        """
        before = dict(self._blocks())
        fd = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
        except OSError as error:
            raise DiskError(f"{self.mount} cannot be shut down: {error}") from error
        finally:
            os.close(fd)
        dead = self._is_dead()
        self._unmount()
        self._mount()
        after = dict(self._blocks())
        lost = sum(
            sum(one != other for one, other in zip(blocks, after.get(name, ()), strict=False))
            + max(0, len(blocks) - len(after.get(name, ())))
            for name, blocks in before.items()
        )
        gone = len(before.keys() - after.keys())
        return f"ext4 shut down, {lost * BLOCK_BYTES} bytes and {gone} files lost" if dead else ""

    def fill(self) -> int:
        """Take all the room that is left; return how many bytes are taken so by now."""
        ballast = self.mount / BALLAST
        with ballast.open("ab", buffering=0) as file:
            piece = self.free_bytes()
            # The file's own tables take room too: so piece by piece, smaller ones at last.
            while piece >= BLOCK_BYTES and self.free_bytes():
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, min(piece, self.free_bytes()))
                except OSError:
                    piece //= 2
        return ballast.stat().st_size

    def drain(self) -> None:
        """Give the room back, for good: a loss of power soon after must not bring back what took it."""
        (self.mount / BALLAST).unlink(missing_ok=True)
        fsync_folder(self.mount)

    def free_bytes(self) -> int:
        """Return how much room is left."""
        found = os.statvfs(self.mount)
        return found.f_bavail * found.f_frsize

    def _is_dead(self) -> bool:
        try:
            (self.mount / uuid.uuid4().hex).touch()
        except OSError:
            return True
        return False

    def _blocks(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each file with a checksum of each of its blocks; what is not there reads as zeros, in no blocks."""
        for path in sorted(self.mount.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    blocks = [crc32(block) for block in iter(lambda: file.read(BLOCK_BYTES), b"")]
                yield str(path.relative_to(self.mount)), blocks

    def _mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", MOUNT, str(self._image), str(self.mount))
        self._mounted = True

    def _unmount(self) -> None:
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                _run("umount", str(self.mount))
                break
            except DiskError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._mounted = False


def _run(name: str, *arguments: str) -> None:
    program = tool(name)
    if program is None:
        raise DiskError(f"{name} is not installed (Debian: apt install e2fsprogs mount)")
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskError(f"{name}: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise DiskError(f"{name}: {lines[-1] if lines else f'it ended with {done.returncode}'}")


def attempt(folder: Path) -> str:
    """Write a synced and an unsynced file, cut the power, fill the disk; return why that does not work, or ""."""
    disk = LoopDisk(folder / "image", folder / "mount", 16 * 1024 * 1024)
    data = uuid.uuid4().bytes * 4096
    try:
        disk.open()
        for name, synced in (("kept", True), ("lost", False)):
            with (disk.mount / name).open("wb") as file:
                file.write(data)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
        if not disk.lose_power():
            return "what was shut down still takes writes"
        if (disk.mount / "kept").read_bytes() != data:
            return "a synced file did not survive"
        lost = disk.mount / "lost"
        if lost.exists() and lost.stat().st_size:
            return "an unsynced file survived"
        disk.fill()
        return "" if disk.free_bytes() < BLOCK_BYTES else "the disk cannot be filled"
    except DiskError as error:
        return str(error)
    finally:
        with contextlib.suppress(DiskError):
            disk.close()


if __name__ == "__main__":
    WHY = attempt(Path(sys.argv[1]))
    if WHY:
        sys.stderr.write(WHY + os.linesep)
    sys.exit(bool(WHY))
