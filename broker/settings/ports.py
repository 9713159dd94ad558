"""Where a broker listens and what its records say of it: a port held until it is listened on, a host's address."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

from runtime.config import ConfigError
from runtime.listening import named_address


@contextlib.contextmanager
def reserved_port(host: str, port: int) -> Iterator[int]:
    """Hold a port (0: a free one) until it is listened on, so that its number can stand in the store's host.

    Two sockets may be bound to one port with SO_REUSEADDR as long as only one of them listens. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with named_address("listenPort", host, port):
            holder.bind((host, port))
        yield int(holder.getsockname()[1])


async def resolved(host: str) -> str:
    """Return the IP address of a host name; raises ConfigError when there is none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"brokerIP1={host}: {error.strerror or error}") from error
    return str(found[0][4][0])
