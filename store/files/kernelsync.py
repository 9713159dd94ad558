"""Kernel AIO: has Linux sync files without a thread that waits, and hears of it by an eventfd.

A request is IOCB_CMD_FDSYNC (Linux 4.18), which a kernel worker carries out as fdatasync; the layouts are those of
<linux/aio_abi.h>. The C library has no functions for it, so the system calls are made by their numbers.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

# io_setup, io_destroy, io_getevents, io_submit.
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
# struct iocb: data, key, rw_flags, opcode, reqprio, fildes, buf, nbytes, offset, reserved2, flags, resfd.
_IOCB = struct.Struct("<QIIHhIQQqQII")
# struct io_event: data, obj, res, res2.
_EVENT = struct.Struct("<QQqq")
_CMD_FDSYNC, _FLAG_RESFD = 3, 1
# Requests under way at once: more than a sync can ever ask for, a file each and the floor's.
REQUESTS_MAX = 16

# PyDLL keeps the interpreter's lock: these calls never wait, and giving it away would cost more than they do.
_AT_ONCE = ctypes.PyDLL(None, use_errno=True).syscall
_WAITING = ctypes.CDLL(None, use_errno=True).syscall
for _call in (_AT_ONCE, _WAITING):
    _call.restype = ctypes.c_long


class KernelSyncs:
    """Syncs that the kernel has been asked for; `fileno()` is readable when collect() has something to tell.

    Used by one thread.
    """

    def __init__(self) -> None:
        """Get a context of the kernel's. Raises OSError where it has no AIO, no room for more, or must not be asked."""
        numbers = _NUMBERS.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, f"no numbers of system calls are known for {platform.machine()}")
        self._setup, self._destroy, self._getevents, self._submit = numbers
        self._context = ctypes.c_ulong(0)
        self._events = ctypes.create_string_buffer(_EVENT.size * REQUESTS_MAX)
        self._requests = ctypes.create_string_buffer(_IOCB.size * REQUESTS_MAX)
        first = ctypes.addressof(self._requests)
        self._pointers = (ctypes.c_void_p * REQUESTS_MAX)(*range(first, first + len(self._requests) - 1, _IOCB.size))
        self._at_once = (ctypes.c_long * 2)(0, 0)
        self.under_way = 0
        """Requests that collect() has not told of yet."""
        _called(_AT_ONCE, self._setup, ctypes.c_uint(REQUESTS_MAX), ctypes.byref(self._context))
        try:
            self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            _called(_AT_ONCE, self._destroy, self._context)
            raise

    def fileno(self) -> int:
        """Return the eventfd; see collect()."""
        return self._eventfd

    def submit(self, fds: Sequence[int]) -> int:
        """Ask for fdatasync of some files, return how many of them were taken, from the first on: perhaps none.

        The kernel takes none for now when too much is under way (EAGAIN, ENOMEM). Raises OSError when it refuses for
        good: no file of this kind, no AIO of this kind.
        """
        assert self.under_way + len(fds) <= REQUESTS_MAX, "a sync asks for a few files"
        assert not self.under_way, "one round at a time: its requests stand in the same place"
        for at, fd in enumerate(fds):
            _IOCB.pack_into(
                self._requests, at * _IOCB.size, fd, 0, 0, _CMD_FDSYNC, 0, fd, 0, 0, 0, 0, _FLAG_RESFD, self._eventfd
            )
        try:
            taken = _called(_AT_ONCE, self._submit, self._context, ctypes.c_long(len(fds)), self._pointers)
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.ENOMEM, errno.EINTR}:
                return 0
            raise
        self.under_way += taken
        return taken

    def collect(self) -> list[OSError | None]:
        """Return what became of requests that are over, None for each that succeeded. Raises OSError."""
        self.hush()
        return self._take(_AT_ONCE, 0, ctypes.byref(self._at_once))

    def hush(self) -> None:
        """Let `fileno()` be readable no more, until the next request is over."""
        try:  # noqa: SIM105 # three frames less, once a sync
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            pass

    def wait(self) -> list[OSError | None]:
        """Return what became of all that is under way, once it is over. Raises OSError."""
        told: list[OSError | None] = []
        while self.under_way:
            told += self._take(_WAITING, self.under_way, None)
        return told

    def close(self) -> None:
        """Give it back, after whatever is under way is over: the kernel waits for that."""
        with suppress(OSError):
            _called(_WAITING, self._destroy, self._context)
        os.close(self._eventfd)

    def _take(self, call: Callable[..., int], least: int, timeout: object) -> list[OSError | None]:
        try:
            count = _called(
                call,
                self._getevents,
                self._context,
                ctypes.c_long(least),
                ctypes.c_long(REQUESTS_MAX),
                self._events,
                timeout,
            )
        except InterruptedError:
            return []
        self.under_way -= count
        told: list[OSError | None] = []
        for at in range(count):
            result = _EVENT.unpack_from(self._events, at * _EVENT.size)[2]
            told.append(None if result == 0 else OSError(-result, os.strerror(-result)))
        return told


def _called(call: Callable[..., int], number: int, *arguments: object) -> int:
    result = call(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
