"""Ports for servers that are told theirs: nobody else may take them between the choice and the server's start.

They lie below those that the system gives to outgoing connections and to whoever binds port 0. Each process takes whole
blocks of them for as long as it lives, by a lock that ends with it, so that test runs side by side do not meet.
"""

import fcntl
import os
import random
import socket
import tempfile
import time
from pathlib import Path

HOST = "127.0.0.1"
PORT_MIN = 13_000  # above RocketMQ's own
PORTS_LEAST = 1000
BLOCK_PORTS = 200
# A broker may also listen on its port-2 (VIP) and port+1 (HA): those are given to nobody.
STRIDE, BELOW = 4, 2
# From the choice of a port to its server's start, at most.
REST_S = 60.0
GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
GIVEN_PORT_DEFAULT = 32_768


class Ports:
    """The ports of this process."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` takes the lock files; by default one for each user in the system's temporary folder."""
        self._folder = folder or Path(tempfile.gettempdir()) / f"raftmq-ports-{os.getuid()}"
        # Whatever a test seeds: others choose on this machine too.
        self._dice = random.SystemRandom()
        self._owner = os.getpid()
        self._locks: list[int] = []
        self._own: list[int] = []
        self._next = 0
        # When a port was given last, by time.monotonic().
        self._given: dict[int, float] = {}

    def take(self, count: int) -> list[int]:
        """Return ports of the loopback interface that nobody listens on, all different; raises OSError without any."""
        if self._owner != os.getpid():
            # A fork has its parent's locks, and not its ports.
            self._owner, self._locks, self._own, self._next = os.getpid(), [], [], 0
            self._given = {}
        found: list[int] = []
        tried = 0
        while len(found) < count:
            if tried >= len(self._own):
                self._next = len(self._own)
                self._own += self._block()
            # One after the other, so that a port rests before it is given again.
            port = self._own[self._next]
            self._next = (self._next + 1) % len(self._own)
            tried += 1
            # One that was given lately looks free until its server listens on it.
            rests = time.monotonic() - self._given.get(port, -REST_S) < REST_S
            if not rests and is_free(port):
                self._given[port] = time.monotonic()
                found.append(port)
        return found

    def _block(self) -> range:
        """Take a block that no other process has."""
        self._folder.mkdir(parents=True, exist_ok=True)
        blocks = list(range(PORT_MIN, _first_given_port() - BLOCK_PORTS, BLOCK_PORTS))
        self._dice.shuffle(blocks)
        for start in blocks:
            lock = os.open(self._folder / str(start), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._locks.append(lock)
            return range(start + BELOW, start + BLOCK_PORTS, STRIDE)
        raise OSError(f"all ports from {PORT_MIN} on are taken by other processes ({self._folder})")


def is_free(port: int) -> bool:
    """Tell whether nobody has a port of the loopback interface."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((HOST, port))
        except OSError:
            return False
    return True


def _first_given_port() -> int:
    """Return the first port that the system gives away by itself (Linux ``/proc``)."""
    try:
        given = int(GIVEN_PORTS.read_text(encoding="ascii").split()[0])
    except OSError:
        return GIVEN_PORT_DEFAULT
    # Where nearly all ports are given away there is no better choice than among those.
    return given if given >= PORT_MIN + PORTS_LEAST else GIVEN_PORT_DEFAULT
