"""Processes that stand still: by a cgroup's freezer, which takes all threads at once, else by SIGSTOP.

Both kinds of cgroups are known: the freezer hierarchy of version 1, and version 2, which freezes by itself.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
V1 = CGROUPS / "freezer"
V2 = (CGROUPS, CGROUPS / "unified")
# Seconds that a process may take to stand still or to go on; it is milliseconds.
STILL_S = 5.0


class Still:
    """One process that stands still until `thaw`. Where a cgroup cannot be made, SIGSTOP does it."""

    def __init__(self, pid: int, name: str, *, cgroup: bool = True) -> None:
        """`name` tells this process's cgroup from others."""
        self._pid = pid
        self._folder = _make_folder(f"raftmq-{os.getpid()}-{name}") if cgroup else None
        self._home = _home(pid, self._folder) if self._folder is not None else None

    def freeze(self) -> str:
        """Let it stand still; returns what shows that it does, "" when nothing does."""
        if self._folder is not None:
            try:
                (self._folder / "cgroup.procs").write_text(str(self._pid), encoding="ascii")
                return self._frozen()
            except OSError:
                # Some other manager of cgroups does not let processes move: then by signal.
                self._drop()
        os.kill(self._pid, signal.SIGSTOP)
        return f"pid {self._pid} in state T" if _soon(lambda: state_of(self._pid) == "T") else ""

    def thaw(self) -> None:
        """Let it go on; nothing happens to one that is gone."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._order(False)
            if self._home is not None:
                with contextlib.suppress(OSError):
                    (self._home / "cgroup.procs").write_text(str(self._pid), encoding="ascii")
            self._drop()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)

    def _frozen(self) -> str:
        assert self._folder is not None
        self._order(True)
        if self._first():
            told, wanted = self._folder / "freezer.state", "FROZEN"
        else:
            told, wanted = self._folder / "cgroup.events", "frozen 1"
        still = _soon(lambda: wanted in told.read_text(encoding="ascii"))
        return f"pid {self._pid}: {told.name} says {wanted}" if still else ""

    def _order(self, frozen: bool) -> None:
        assert self._folder is not None
        if self._first():
            (self._folder / "freezer.state").write_text("FROZEN" if frozen else "THAWED", encoding="ascii")
        else:
            (self._folder / "cgroup.freeze").write_text("1" if frozen else "0", encoding="ascii")

    def _first(self) -> bool:
        """Tell whether it is a cgroup of version 1."""
        assert self._folder is not None
        return (self._folder / "freezer.state").exists()

    def _drop(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
        self._folder = self._home = None


def state_of(pid: int) -> str:
    """Return a process's state letter ("R", "S", "T", …), "" when it is gone (Linux ``/proc``)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def why_no_cgroup() -> str:
    """Return why no freezer cgroup can be made here, "" when it can: tried for real."""
    folder = _make_folder(f"raftmq-probe-{os.getpid()}")
    if folder is None:
        return "no freezer cgroup can be made below /sys/fs/cgroup; SIGSTOP is used"
    with contextlib.suppress(OSError):
        folder.rmdir()
    return ""


def _make_folder(name: str) -> Path | None:
    """Make a cgroup that can freeze; None where that is not possible."""
    for root, knob in ((V1, "freezer.state"), *((one, "cgroup.freeze") for one in V2)):
        if not (root / "cgroup.procs").exists():
            continue
        folder = root / name
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        if (folder / knob).exists():
            return folder
        with contextlib.suppress(OSError):
            folder.rmdir()
    return None


def _home(pid: int, folder: Path) -> Path | None:
    """Return the cgroup that a process is in now, in the hierarchy that `folder` belongs to."""
    controller = "freezer" if (folder / "freezer.state").exists() else ""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers.split(",") == [controller] or (controller and controller in controllers.split(",")):
            return folder.parent / path.lstrip("/")
    return None


def _soon(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + STILL_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
