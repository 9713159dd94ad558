"""Ports for servers that are told theirs: nobody else may take them between the choice and the server's start.

They lie below those that the system gives to outgoing connections and to whoever binds port 0. Each process takes whole
blocks of them for as long as it lives, by having one port of each itself, so that runs side by side do not meet,
whoever's they are and whatever their temporary folders. Network namespaces have ports, and so blocks, of their own.
"""

import os
import random
import socket
import time
from pathlib import Path

HOST = "127.0.0.1"
PORT_MIN = 13_000  # above RocketMQ's own
PORTS_LEAST = 1000
BLOCK_PORTS = 200
# A server may also listen on its port-2 (VIP), port+1 (HA) and, unless it is told another one, port+100 (HTTP): those
# are given to nobody, so the upper half of a block is for the last.
STRIDE, BELOW, HTTP_ABOVE = 4, 2, 100
# So this one of a block is no server's: whoever has it has the block.
SIGN = 1
# From the choice of a port to its server's start, at most.
REST_S = 60.0
GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
GIVEN_PORT_DEFAULT = 32_768


class Ports:
    """The ports of this process."""

    def __init__(self) -> None:
        # Whatever a test seeds: others choose on this machine too.
        self._dice = random.SystemRandom()
        self._owner = os.getpid()
        # Descriptors of sockets that are bound to the signs of this process's blocks.
        self._signs: list[int] = []
        self._own: list[int] = []
        self._next = 0
        # When a port was given last, by time.monotonic().
        self._given: dict[int, float] = {}

    def take(self, count: int) -> list[int]:
        """Return ports of the loopback interface that nobody listens on, all different; raises OSError without any."""
        self._look_who_asks()
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

    def keep(self, port: int) -> None:
        """Have the block of a port that was given in an earlier life, unless another process has it by now."""
        self._look_who_asks()
        if PORT_MIN <= port < _first_given_port():
            self._have(port - (port - PORT_MIN) % BLOCK_PORTS)

    def close(self) -> None:
        """Have no block any more."""
        for sign in self._signs:
            os.close(sign)
        self._signs, self._own, self._next, self._given = [], [], 0, {}

    def _look_who_asks(self) -> None:
        if self._owner != os.getpid():
            # A fork has its parent's sockets, and not its ports.
            self._owner = os.getpid()
            self.close()

    def _block(self) -> range:
        """Take a block that no other process has."""
        starts = list(range(PORT_MIN, _first_given_port() - BLOCK_PORTS, BLOCK_PORTS))
        self._dice.shuffle(starts)
        for start in starts:
            if self._have(start):
                return range(start + BELOW, start + HTTP_ABOVE, STRIDE)
        raise OSError(f"all ports from {PORT_MIN} on are taken by other processes")

    def _have(self, start: int) -> bool:
        """Take a block for as long as this process lives; tell whether nobody had it, this process included."""
        held = socket.socket()
        try:
            # Not shared (SO_REUSEADDR), and nobody connects to it: it does not listen.
            held.bind((HOST, start + SIGN))
        except OSError:
            held.close()
            return False
        self._signs.append(held.detach())
        return True


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
