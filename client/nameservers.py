"""The NameServers as one: ask the one that answered last, go on to the next when it does not."""

import random
from collections.abc import Sequence

from client.errors import RouteError
from remoting.address import parse_address
from remoting.client import RemotingClient
from remoting.command import Command
from remoting.errors import InvokeError, ResponseError
from remoting.headers.base import Header

# One NameServer may take so long before the next one is asked: less than a send's whole time.
TIMEOUT_S = 1.5
DEFAULT_PORT = 9876
ADDRESSES_MAX = 64


def parse_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Read "host:port;host:port" (or a list of such); the port is 9876 when left out. Raises ValueError."""
    parts = text.replace(",", ";").split(";") if isinstance(text, str) else list(text)
    addresses = tuple(dict.fromkeys(_with_port(part.strip()) for part in parts if part.strip()))
    if not addresses:
        raise ValueError("no NameServer address was given: it takes host:port, several separated by ';'")
    if len(addresses) > ADDRESSES_MAX:
        raise ValueError(f"{len(addresses)} NameServer addresses were given, {ADDRESSES_MAX} at most")
    return addresses


def _with_port(address: str) -> str:
    host = address.rpartition("]")[2] if address.startswith("[") else address
    if ":" not in host:
        return f"{address}:{DEFAULT_PORT}"
    try:
        parse_address(address)
    except ValueError as error:
        raise ValueError(f"{address!r} is no NameServer address, it takes host:port: {error}") from error
    return address


class NameServers:
    """Calls that any NameServer can answer."""

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str]) -> None:
        """`addresses` as parse_addresses returns them."""
        self._remoting = remoting
        self.addresses = tuple(addresses)
        self._current = random.randrange(len(self.addresses))

    def describe(self) -> str:
        """Return the addresses for an error text."""
        return ", ".join(self.addresses)

    async def call(
        self, code: int, header: Header | None = None, body: bytes = b"", timeout: float = TIMEOUT_S
    ) -> Command:
        """Ask until one answers. Raises ResponseError (its refusal) or RouteError (none could be reached)."""
        failures: list[str] = []
        for _attempt in self.addresses:
            address = self.addresses[self._current]
            try:
                return await self._remoting.call(address, code, header, body, timeout)
            except ResponseError:
                raise
            except InvokeError as error:
                failures.append(str(error))
                self._current = (self._current + 1) % len(self.addresses)
        raise RouteError(
            f"no NameServer answered ({'; '.join(failures)}): check that one runs at {self.describe()}", retriable=True
        )

    async def call_all(self, code: int, header: Header | None = None, body: bytes = b"") -> list[Command]:
        """Ask every NameServer (they do not talk to one another); raises the first InvokeError after asking all."""
        answers: list[Command] = []
        first_error: InvokeError | None = None
        for address in self.addresses:
            try:
                answers.append(await self._remoting.call(address, code, header, body, TIMEOUT_S))
            except InvokeError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return answers
