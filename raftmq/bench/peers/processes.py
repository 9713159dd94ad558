"""Servers of others as processes: started, awaited, ended with this one, and what they use of the processor."""

import contextlib
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.host.begun import Begun, begin
from chaos.host.guard import watch
from chaos.host.processes import ProcessEnded, ProcessError

START_TIMEOUT_S = 90.0  # Java's and Erlang's on a busy machine
POLL_S = 0.05
LOG_LINES_SHOWN = 15
PROC = Path("/proc")


class PeerProcess:
    """One server of others, in a session of its own; what it prints goes to a file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        """`environment` is added to this process's own."""
        self.name = name
        self._command = command
        self._log = log
        self._environment = environment
        self._process: Begun | None = None

    @property
    def pid(self) -> int:
        """The process's id; it must have been started."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start it without waiting; raises OSError."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = begin(self._command, log, {**os.environ, **self._environment})
        watch(self._process.pid)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until it is ready; raises ProcessError when it has ended or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            code = self._process.poll() if self._process is not None else None
            if code is not None:
                raise ProcessEnded(f"{self.name} ended with {code}:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} does not serve after {START_TIMEOUT_S:g} s:\n{self.last_words()}")
            time.sleep(POLL_S)

    def said(self) -> str:
        """Return what it has printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def last_words(self) -> str:
        """Return the end of what it has printed."""
        return "\n".join(self.said().splitlines()[-LOG_LINES_SHOWN:])

    def kill(self) -> None:
        """End it and what it has started, at once; one that never began or is gone needs nothing."""
        if self._process is None or self._process.poll() is not None:
            return
        # The session is its own, so the group is it and its children.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class ProcessTime(NamedTuple):
    """What a process and its children that have ended have used, and whose child it is."""

    parent: int
    seconds: float


def process_time(stat: str, ticks_per_s: int) -> ProcessTime:
    """Read a line of /proc/PID/stat: fields 14 to 17 of proc(5) are what it and its ended children used, in ticks."""
    # Counted after the command's name, which may hold blanks.
    fields = stat.rpartition(")")[2].split()
    return ProcessTime(int(fields[1]), sum(int(field) for field in fields[11:15]) / ticks_per_s)


def known_processes() -> dict[int, ProcessTime]:
    """Return all processes of this machine (Linux ``/proc``)."""
    ticks = os.sysconf("SC_CLK_TCK")
    known = {}
    for path in PROC.iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):  # it is gone
                known[int(path.name)] = process_time((path / "stat").read_text(errors="replace"), ticks)
    return known


def family_seconds(known: Mapping[int, ProcessTime], pids: Collection[int]) -> float:
    """Return the processor time that processes have used, in user and system mode, with all their descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, time_ in known.items():
        children[time_.parent].append(pid)
    total, waiting, seen = 0.0, list(pids), set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in known and pid not in seen:
            seen.add(pid)
            total += known[pid].seconds
            waiting += children[pid]
    return total


def run_to_end(command: Sequence[str], timeout_s: float, environment: Mapping[str, str]) -> str:
    """Run a tool of a system and return what it printed; raises ProcessError when it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProcessError(f"{command[0]} did not end within {timeout_s:g} s") from None
    if done.returncode:
        raise ProcessError(f"{command[0]} failed: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout
