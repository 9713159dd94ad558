"""A broker whose disk can fail: `python -m chaos.site.member --undo FILE [--disk FILE] … broker -c FILE`.

Everything runs as deployed, but for the seam to the operating system (store.files.disk.Disk). There, what stood before
each unsynced write is noted (chaos/host/powerloss.py), and the faults that stand in the disk file are played:

    {"fsync_ms": 200}           each fdatasync takes so much longer
    {"fsync_errno": 5}          each fdatasync fails (EIO)
    {"write_errno": 28}         each write and each new file fails (ENOSPC)

The file is looked at before each act of the disk, so that faults come and go while the broker runs; how many were
played stands in a file of the same name with ".hits". `--planted` names a function that is called before the broker
starts: the bugs that prove that scenarios find bugs are put there. `--dial A=B`, for each of some addresses: who is at
A is dialled at B, where a fault proxy stands.
"""

import argparse
import contextlib
import importlib
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.host.powerloss import UndoFile
from runtime.loop import Loop
from store.files.disk import Disk
from store.files.kernelsync import KernelSyncs

# The broker is started as the command starts it; it is no import of ours.
COMMAND = "raftmq.cli.main"
# How soon a clock that is told to jump does.
CLOCK_EVERY_S = 0.1


class DiskFaults:
    """What the disk file asks for now. Used by any thread of the member."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int] = (0, 0)
        self._faults: dict[str, float] = {}
        self._lock = threading.Lock()
        self._hits_path = path.with_name(path.name + ".hits") if path is not None else None
        self._hits = 0

    @property
    def of_syncs(self) -> bool:
        """Whether syncs are to take longer, or to fail."""
        return bool(self._now().keys() & {"fsync_ms", "fsync_errno"})

    def before_write(self) -> None:
        """Raise OSError when writes are to fail."""
        self._fail("write_errno")

    def before_sync(self) -> None:
        """Wait as long as a sync is to take longer, and raise OSError when it is to fail."""
        delay_ms = self._now().get("fsync_ms", 0)
        if delay_ms:
            self._hit()
            # The clock of a disk cannot be turned: a slow one takes its time.
            time.sleep(delay_ms / 1000)
        self._fail("fsync_errno")

    def _fail(self, key: str) -> None:
        code = int(self._now().get(key, 0))
        if code:
            self._hit()
            raise OSError(code, os.strerror(code))

    def _now(self) -> dict[str, float]:
        if self._path is None:
            return {}
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        seen = (found.st_mtime_ns, found.st_ino)
        with self._lock:
            if seen != self._seen:
                with contextlib.suppress(FileNotFoundError):
                    self._seen, self._faults = seen, json.loads(self._path.read_bytes())
            return self._faults

    def _hit(self) -> None:
        assert self._hits_path is not None, "there is no fault without a file that asks for it"
        with self._lock:
            self._hits += 1
            self._hits_path.write_text(str(self._hits), encoding="ascii")


class WatchedSyncs(KernelSyncs):
    """The kernel's syncs, noted as those of fdatasync are; while one is to be slow or to fail, a thread's fdatasync."""

    def __init__(self, disk: Disk, undo: UndoFile, faults: DiskFaults, handed: dict[str, int]) -> None:
        """`handed`: see watch_disk(). Raises OSError where the kernel refuses."""
        super().__init__()
        self._disk, self._undo, self._faults, self._handed = disk, undo, faults, handed
        # What is durable once all that is under way has succeeded: path → sequence of its newest write.
        self._covered: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._of_thread: list[OSError | None] = []
        self._ended: list[OSError | None] = []

    def submit(self, fds: Sequence[int]) -> int:
        """As KernelSyncs.submit()."""
        if self._faults.of_syncs:
            # The files may be given up meanwhile; the kernel would keep them.
            copies = [os.dup(fd) for fd in fds]
            self._thread = threading.Thread(target=self._play, args=(copies,), daemon=True)
            self.under_way = len(fds)
            self._thread.start()
            return len(fds)
        covered, until = dict(self._handed), self._undo.begin_sync()
        covered.update((path_of(fd), until) for fd in fds)
        self._covered = covered
        return super().submit(fds)

    def collect(self) -> list[OSError | None]:
        """As KernelSyncs.collect()."""
        if self._thread is None:
            return self._noted(super().collect())
        if len(self._of_thread) < self.under_way:
            return []
        super().collect()
        return self._of_the_thread()

    def wait(self) -> list[OSError | None]:
        """As KernelSyncs.wait()."""
        if self._thread is None:
            return self._noted(super().wait())
        self._thread.join()
        return self._of_the_thread()

    def _play(self, fds: list[int]) -> None:
        results: list[OSError | None] = []
        for fd in fds:
            try:
                self._disk.fdatasync(fd)
            except OSError as error:
                results.append(error)
            else:
                results.append(None)
            os.close(fd)
        self._of_thread = results
        os.eventfd_write(self.fileno(), 1)

    def _of_the_thread(self) -> list[OSError | None]:
        results, self._of_thread, self._thread = self._of_thread, [], None
        self.under_way = 0
        return results

    def _noted(self, results: list[OSError | None]) -> list[OSError | None]:
        """Note what is durable, once the whole of a round is over."""
        self._ended += results
        if not self.under_way and self._ended:
            if not any(self._ended):
                note_syncs(self._undo, self._handed, self._covered)
            self._ended = []
        return results


def note_syncs(undo: UndoFile, handed: dict[str, int], covered: Mapping[str, int]) -> None:
    """Note that files' writes up to a sequence each are durable, those that were with the device among them."""
    for path, until in covered.items():
        undo.note_sync(path, until)
        if handed.get(path) == until:
            del handed[path]


def watch_disk(undo: UndoFile, faults: DiskFaults) -> None:
    """Make every Disk of this process take notes and play faults."""
    create, pwrite, fdatasync, hand_over = Disk.create, Disk.pwrite, Disk.fdatasync, Disk.hand_over
    # With the device, and durable with the next sync: path → sequence of its newest write.
    handed: dict[str, int] = {}

    def faulty_create(self: Disk, path: Path, size: int) -> int:
        faults.before_write()
        return create(self, path, size)

    def noted_pwrite(self: Disk, fd: int, data: bytes | memoryview, offset: int) -> None:
        faults.before_write()
        before = os.pread(fd, len(data), offset).ljust(len(data), b"\0")
        if before != bytes(data):
            undo.note_write(path_of(fd), offset, before)
        pwrite(self, fd, data, offset)

    def noted_fdatasync(self: Disk, fd: int) -> None:
        path, until = path_of(fd), undo.begin_sync()
        faults.before_sync()
        covered = {**handed, path: until}
        fdatasync(self, fd)
        note_syncs(undo, handed, covered)

    def watched_syncs(self: Disk) -> KernelSyncs | None:
        # A planted bug in place of fdatasync must not be passed by.
        return WatchedSyncs(self, undo, faults, handed) if Disk.fdatasync is noted_fdatasync else None

    def noted_hand_over(self: Disk, fd: int, offset: int, length: int) -> None:
        hand_over(self, fd, offset, length)
        handed[path_of(fd)] = undo.begin_sync()

    # An instance method in place of another; mypy does not let methods be replaced.
    Disk.create = faulty_create  # type: ignore[method-assign]
    Disk.pwrite = noted_pwrite  # type: ignore[method-assign]
    Disk.fdatasync = noted_fdatasync  # type: ignore[method-assign]
    Disk.make_syncs = watched_syncs  # type: ignore[method-assign]
    Disk.hand_over = noted_hand_over  # type: ignore[method-assign]


def redirect(dials: Mapping[str, str]) -> None:
    """Make every loop of this process connect to the second address of a pair in place of the first."""
    connect = Loop.create_connection

    async def redirected(self: Loop, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        proxy = dials.get(f"{host}:{port}")
        if proxy is not None:
            if options.get("ssl"):
                # What the certificate must name is the member that is meant: a proxy only passes bytes on.
                options.setdefault("server_hostname", host)
            host, _, text = proxy.rpartition(":")
            port = int(text)
        return await connect(self, factory, host, port, **options)

    # A method of the loop in place of its own: the code above it is the one that is deployed.
    Loop.create_connection = redirected  # type: ignore[method-assign, assignment]


def turn_clock(told: Path) -> None:
    """Let this process's wall clock be as many seconds ahead as a file tells, from now on; none while there is none.

    The broker asks time.time and time.time_ns, as modules that look them up at each call; the file is looked into ten
    times a second, by a thread of its own, so that asking for the time costs what it did.
    """
    ahead = 0.0
    time_s, time_ns = time.time, time.time_ns

    def follow() -> None:
        nonlocal ahead
        while True:
            try:
                ahead = float(told.read_text(encoding="ascii"))
            except FileNotFoundError:
                ahead = 0.0
            time.sleep(CLOCK_EVERY_S)

    threading.Thread(target=follow, name="chaos-clock", daemon=True).start()
    time.time = lambda: time_s() + ahead
    time.time_ns = lambda: time_ns() + int(ahead * 1e9)


def path_of(fd: int) -> str:
    """Return the path of an open file."""
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def plant(name: str) -> None:
    """Call the function "module:function"."""
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function)()


def main() -> None:
    """Read our own arguments, hand the rest to the raftmq command."""
    parser = argparse.ArgumentParser(prog="python -m chaos.site.member")
    parser.add_argument("--undo", type=Path, required=True)
    parser.add_argument("--disk", type=Path)
    parser.add_argument("--clock", type=Path)
    parser.add_argument("--dial", action="append", default=[])
    parser.add_argument("--planted", default="")
    options, rest = parser.parse_known_args()
    watch_disk(UndoFile(options.undo), DiskFaults(options.disk))
    if options.clock:
        turn_clock(options.clock)
    if options.dial:
        redirect(dict(pair.split("=", 1) for pair in options.dial))
    if options.planted:
        plant(options.planted)
    sys.argv = ["raftmq", *rest]
    with contextlib.suppress(KeyboardInterrupt):
        runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
