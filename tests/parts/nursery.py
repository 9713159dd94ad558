"""Server processes by fork of one that has imported what servers import, for tests: they start a thousand.

A server from here is a process like any other and a child of the test's own: it has a session, files, folder,
environment and command line of its own, and runs ``python -m`` of its program from the first line to the last. What is
saved is reading a thousand modules once more, a third of a second of processor time for each. Whatever is not plain
(a command before it, variables of its own) is started as ever, as all are that commands start.

    python -P tests/parts/nursery.py FD PADDING    (FD: a socket on which starts are ordered; PADDING: room for names)
"""

import atexit
import ctypes
import functools
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import typer.main

from chaos.host.begun import Begun, begin
from chaos.host.interpreter import MODULE

# prctl(2): orphans of the processes below become children of the one that asked for it.
_PR_SET_CHILD_SUBREAPER = 36
# Programs that may be ordered, as `python -m` names them, and what they import only when they are used at last.
PROGRAMS = ("raftmq.cli.main", "chaos.site.member")
LATER = ("broker.main", "namesrv.server", "chaos.host.powerloss")
_ORDER_BYTES = 256 * 1024
# proc(5): fields 48 and 49 of a process's stat, counted behind the command's name.
_ARG_START, _ARG_END = 45, 46
_PADDING = 16 * 1024
# What pytest says to itself, and Spark to its own processes once a session has begun, is no variable of a server's.
_PASSING = ("PYTEST_", "SPARK_", "PYSPARK_")

_libc = ctypes.CDLL(None, use_errno=True)


class Nursling:
    """A server that was forked, with subprocess.Popen's members; used by any thread."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._exit_code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return its exit code, minus the signal's number when one ended it; None while it runs."""
        with self._lock:
            return self._look()

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code when it has ended; raises subprocess.TimeoutExpired."""
        with self._lock:
            if (code := self._look()) is not None:
                return code
            # Nobody has waited for it yet, so its id is no other's: what is opened stays this process.
            held = os.pidfd_open(self.pid)
        try:
            ended = select.poll()
            ended.register(held, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
        finally:
            os.close(held)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a server of the nursery", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        with self._lock:
            if self._look() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _look(self) -> int | None:
        """Take its exit code if it has ended. Under the lock: from then on its id may be another process's."""
        if self._exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code


class Nursery:
    """The process that is forked from, made with the first order of this process; used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._socket: socket.socket | None = None
        # As it is before any test sets a variable for itself.
        self._environment = _lasting(os.environ)

    def begin(self, command: Sequence[str], log: BinaryIO, environment: Mapping[str, str]) -> Begun:
        """Begin a server as chaos.host.processes.begin does; as that, where this is nothing for the nursery."""
        with self._lock:
            if tuple(command[: len(MODULE)]) == MODULE and command[len(MODULE)] in PROGRAMS:
                self._open()
                if _lasting(environment) == self._environment:
                    return Nursling(self._order(command, log, environment))
        return begin(command, log, environment)

    def _order(self, command: Sequence[str], log: BinaryIO, environment: Mapping[str, str]) -> int:
        assert self._socket is not None, "it is open"
        order = orjson.dumps({"command": command, "folder": str(Path.cwd()), "environment": environment})
        # Only for this moment: the orphans of others are not ours to wait for.
        _adopt(True)
        try:
            socket.send_fds(self._socket, [order], [log.fileno()])
            answer = self._socket.recv(64)
        finally:
            _adopt(False)
        assert answer, "the nursery of servers has ended"
        return int(answer)

    def _open(self) -> None:
        if self._owner == os.getpid():
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # It ends with the socket, so with this process.
            process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), "-" * _PADDING],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self._environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self._owner, self._socket = os.getpid(), ours
        atexit.register(self._close, ours, process)

    def _close(self, ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
        if self._owner == os.getpid():
            ours.close()
            process.wait()


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if not key.startswith(_PASSING) and key != "NAMESRV_ADDR"}


def _adopt(wanted: bool) -> None:
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(wanted), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _serve(orders: socket.socket) -> Sequence[str]:
    """Fork for each order until there are no more; return in the fork, with the command that it is to run."""
    while True:
        data, files, *_ = socket.recv_fds(orders, _ORDER_BYTES, 1)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            server = os.fork()
            if not server:
                for fd in (reading, writing, orders.fileno()):
                    os.close(fd)
                return _become(orjson.loads(data), files[0])
            os.write(writing, b"%d" % server)
            os._exit(0)
        # With this one's end its child is an orphan, and then a child of whoever adopts: only now may he stop that.
        os.waitpid(between, 0)
        orders.send(os.read(reading, 64))
        for fd in (reading, writing, *files):
            os.close(fd)


def _become(order: Mapping[str, Any], log: int) -> Sequence[str]:
    os.setsid()
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    command: list[str] = order["command"]
    _rename(command)
    return command


def _rename(command: Sequence[str]) -> None:
    """Put a command line in the place of this process's own, where others look for it."""
    line = b"\0".join(os.fsencode(word) for word in command)
    stat = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    start, end = int(stat[_ARG_START]), int(stat[_ARG_END])
    ctypes.memmove(start, line[: end - start - 1].ljust(end - start, b"\0"), end - start)


def main() -> None:
    """Import, freeze, and run in each fork what was ordered."""
    for name in (*PROGRAMS, *LATER):
        importlib.import_module(name)
    # What each command takes typer would find out in each fork anew, half of what is left of a start.
    commands = vars(typer.main)
    commands["get_params_from_function"] = functools.cache(commands["get_params_from_function"])
    top: Any = typer.main.get_command(sys.modules["raftmq.cli.main"].app)
    # Each of them is imported as it is looked at.
    list(top.commands.values())
    for name in PROGRAMS:
        # Run as the program it is, by its own name it is not there yet.
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    program, *arguments = _serve(socket.socket(fileno=int(sys.argv[1])))[len(MODULE) :]
    sys.argv[1:] = arguments
    code = _run(program)
    # All that a process does at its end, but for taking apart what was imported: that reads the whole memory once more.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _run(program: str) -> int:
    """Run it as ``python -m`` does, and return what it ends with; what it raises is told by Python as ever."""
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    main()
