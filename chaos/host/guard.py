"""A watcher that ends the servers of this process when this process is gone, by whatever: `kill -9`, want of memory.

It is a process of its own that reads from a pipe which only this process holds open, and knows by that pipe's end that
it is alone. (PR_SET_PDEATHSIG goes by the thread that forked, and ours come and go.) So nothing is left to be found by
the next run, which may want the same folder or ports.

    python -I -S chaos/host/guard.py < the pipe, a line for each server: its process id, and when that began
"""

import os
import signal
import sys
from pathlib import Path

PROC = Path("/proc")


class Guard:
    """The watcher of this process; it is started with the first server."""

    def __init__(self) -> None:
        self._owner = 0
        self._pipe = -1

    def watch(self, pid: int) -> None:
        """Have a child of this process, which nobody has waited for yet, killed should this process end before it."""
        if self._owner != os.getpid():
            # The first time; and a fork has its parent's pipe, whose end says nothing about the fork.
            self._owner, self._pipe = os.getpid(), _start()
        try:
            os.write(self._pipe, f"{pid} {began(pid)}\n".encode())
        except OSError:
            # Somebody has killed the watcher, or the child is gone: whoever started the server still ends it.
            return


watch = Guard().watch
"""Has a child killed when this process is gone; see Guard.watch."""


def began(pid: int) -> str:
    """Return when a process began, by which it is told from a later one of the same id; "" when there is none."""
    try:
        # proc(5): field 22, counted behind the command's name, which may hold blanks.
        return (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _start() -> int:
    """Start the watcher in a session of its own; return our end of the pipe."""
    reading, writing = os.pipe()
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", __file__],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    finally:
        os.close(reading)
    return writing


def main() -> None:
    """Wait until the pipe ends, and kill whoever it named and is still there."""
    os.chdir("/")
    servers = [line.split() for line in sys.stdin]
    for pid, *start in servers:
        try:
            held = os.pidfd_open(int(pid))
        except OSError:
            continue
        # What the id stands for cannot change any more: it is asked behind the opening.
        if start == [began(int(pid))]:
            signal.pidfd_send_signal(held, signal.SIGKILL)
        os.close(held)


if __name__ == "__main__":
    main()
