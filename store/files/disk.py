"""The seam between the CommitLog and the operating system: every change of its files goes through here.

Tests put a Disk in its place that keeps what was not yet synced apart, and loses or tears it at a crash.
"""

import contextlib
import ctypes
import errno
import mmap
import os
from pathlib import Path

from runtime.durable import fsync_folder, replace_reserved, reserve
from store.files.kernelsync import KernelSyncs
from store.files.owner_only import FILE_MODE

_LIBC = ctypes.CDLL(None, use_errno=True)
# int sync_file_range(int fd, off64_t offset, off64_t nbytes, unsigned flags); flags of <fcntl.h>.
_LIBC.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4


class Disk:
    """The real disk. All methods raise OSError."""

    def create(self, path: Path, size: int) -> int:
        """Make a file of `size` bytes that read as zeros, for its owner alone; return its descriptor, for both ways."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.ftruncate(fd, size)
        except OSError:
            os.close(fd)
            raise
        return fd

    def open(self, path: Path) -> int:
        """Return a descriptor of a file that is there, opened for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        os.close(fd)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`; after an error any part of it may have been written."""
        done = os.pwrite(fd, data, offset)
        if done == len(data):
            return
        view = memoryview(data)
        while done < len(view):
            wrote = os.pwrite(fd, view[done:], offset + done)
            if wrote == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            done += wrote

    def allocate(self, fd: int, offset: int, length: int) -> None:
        """Have room kept for bytes of a file, which stay what they are: no write or sync of them can lack it then."""
        os.posix_fallocate(fd, offset, length)

    def fdatasync(self, fd: int) -> None:
        """Make what was written durable. After an error nobody knows what is: never call it again and believe it."""
        os.fdatasync(fd)

    def make_syncs(self) -> KernelSyncs | None:
        """Return what has the kernel sync without waiting for it; None: syncs go through fdatasync() alone.

        That is so for a disk whose fdatasync() is not this one: what it does beside must not be passed by.
        """
        return KernelSyncs() if type(self).fdatasync is _FDATASYNC else None

    def send_off(self, fd: int, offset: int, length: int) -> None:
        """Let bytes that overwrite others begin their way to the device."""
        self._sync_range(fd, offset, length, _WRITE)

    def hand_over(self, fd: int, offset: int, length: int) -> None:
        """Wait until bytes that were sent off are with the device: the next fdatasync of any file makes them durable.

        For every fdatasync has the device empty its cache, whatever file it is called for.
        """
        self._sync_range(fd, offset, length, _WAIT_BEFORE | _WRITE | _WAIT_AFTER)

    @staticmethod
    def _sync_range(fd: int, offset: int, length: int, flags: int) -> None:
        if _LIBC.sync_file_range(fd, offset, length, flags) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        fsync_folder(folder)

    def sync_tree(self, folder: Path) -> None:
        """Make everything below a folder durable, in one call however many files that are (syncfs)."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _LIBC.syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(folder))
        finally:
            os.close(fd)

    def replace(self, path: Path, content: bytes) -> None:
        """Replace a small file; durable when this returns, the old content or the new one after any crash."""
        replace_reserved(path, content)

    def reserve(self, path: Path, size: int) -> None:
        """Keep room for replace() to write a file of so many bytes on a full disk, if there is any."""
        reserve(path, size)

    def keep_room(self, path: Path, size: int) -> None:
        """Have a file hold so many bytes of the disk; after an error it is not there."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

    def rename(self, path: Path, target: Path) -> None:
        """Give a file or folder another name on the same file system, in one step."""
        path.rename(target)

    def map(self, fd: int, size: int) -> mmap.mmap:
        """Map a file for reading; its pages are those that pwrite fills."""
        return mmap.mmap(fd, size, access=mmap.ACCESS_READ)

    def free_bytes(self, folder: Path) -> int:
        """Return the bytes that can still be had on a file system (without the superuser's)."""
        facts = os.statvfs(folder)
        return facts.f_bavail * facts.f_frsize

    def used_ratio(self, folder: Path) -> float:
        """Return the used part of the file system, 0 to 1, as `df` counts it (without the superuser's reserve)."""
        facts = os.statvfs(folder)
        used = facts.f_blocks - facts.f_bfree
        reachable = used + facts.f_bavail
        return used / reachable if reachable else 1.0


_FDATASYNC = Disk.fdatasync
