"""Listening sockets: an address that cannot be had is named by its key, who reaches it, and an end in good order."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator
from typing import Protocol

# From an accept to the connection at its protocol: one turn of the loop makes the transport, the next calls
# connection_made.
_TURNS = 2
# One customer's share of IPv6, as providers hand it out: its addresses count as one.
_IPV6_PREFIX = 64


class Listening(Protocol):
    """What of asyncio.Server an end in good order needs."""

    @property
    def sockets(self) -> "tuple[socket.socket, ...]":
        """Those that listen."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


async def stop_accepting(server: Listening) -> None:
    """Listen no more; returns when all that was accepted before is at its protocol (with TLS: in its handshake).

    `close` alone does not do: asyncio asserts that the server of a connection it accepted in the same turn is open, and
    a connection that comes to its protocol after the owner has ended all of them outlives the owner.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()


def is_loopback(host: str) -> bool:
    """Whether an address names this machine for sure; other names than localhost are not looked up."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def origin(host: str) -> str:
    """Return what an address counts as: itself, an IPv6 one its network of 64 bits; what is none stays as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
    return str(address)


def exposed(host: str, *, guarded: bool = False, encrypted: bool = False) -> str | None:
    """Return what it means that a server listens at an address that others reach; None when that harms nobody.

    `guarded`: whoever asks for something signs it; `encrypted`: plain connections are refused.
    """
    if is_loopback(host) or (guarded and encrypted):
        return None
    if guarded:
        return f"TLS is not enforced: whoever is on the way to {host} reads along, and may repeat it (SECURITY.md)"
    return (
        f"there is no access control: whoever reaches {host} may send, read, and register as any broker; who may "
        "administer is said by adminAllowFrom (SECURITY.md)"
    )


@contextlib.contextmanager
def named_address(key: str, host: str, port: int) -> Iterator[None]:
    """Have an OSError of the block say which configuration key asked for which address, and what is wrong with it."""
    try:
        yield
    except OSError as error:
        why = {
            errno.EADDRINUSE: "it is in use by another process; end that, or choose another port",
            errno.EADDRNOTAVAIL: "this machine has no such address",
            errno.EACCES: "ports below 1024 are not for every user",
        }.get(error.errno or 0, error.strerror or str(error))
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise OSError(error.errno, f"{key}={port} cannot be had at {where}: {why}") from error
