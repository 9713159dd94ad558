"""The calling side: one connection per address, made when it is first needed."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from remoting.address import parse_address
from remoting.backoff import Backoff
from remoting.codes import ResponseCode
from remoting.command import Body, Command
from remoting.connection import Connection, Handler, Reply
from remoting.errors import ConnectError, ResponseError
from remoting.headers.base import Header
from remoting.limits import ClientLimits
from remoting.side import Side
from remoting.signing import Credentials
from runtime.tls import Contexts, current, tls_words

__all__ = ["ClientHandler", "ClientLimits", "RemotingClient", "Reply"]

_log = logging.getLogger(__name__)

ClientHandler = Handler
_ADDRESS = "address"
_LIMITS = ClientLimits()


class RemotingClient:
    """Calls servers by address ("host:port") and handles what they ask.

    Connections are shared by all callers, reconnected when needed, and closed when idle. After a failure the next
    attempt waits, longer each time; requests wait with it as long as their timeout allows. `on_close` is told the
    address of a connection that ended. Must be made inside a running loop.
    """

    def __init__(
        self,
        handlers: Mapping[int, ClientHandler] | None = None,
        *,
        limits: ClientLimits = _LIMITS,
        on_close: Callable[[str], None] | None = None,
        name: str = "remoting client",
        backoff: Backoff | None = None,
        tls: Contexts | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`tls`: what all connections are made with; None for plain ones. `credentials` sign all that is asked."""
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._on_close = on_close
        self._side = Side(
            name,
            handlers or {},
            limits,
            # Never here: a client that reads no answers because the server takes no requests, which in turn waits
            # until its answers are read, would be a deadlock.
            connections_max=limits.connections_max,
            on_close=self._lost,
        )
        self._side.credentials = credentials
        self._open: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection | ConnectError]] = {}
        self._backoff = backoff or Backoff(limits)
        self._calls: set[asyncio.Task[None]] = set()
        self._sweeping = False
        self._closed = False

    def connection(self, address: str) -> Connection | None:
        """Return the open connection to an address, if there is one."""
        connection = self._open.get(address)
        return None if connection is None or connection.closed else connection

    async def connect(self, address: str, timeout: float = 3.0) -> Connection:
        """Return the open connection to an address, made when there is none; ConnectError when none can be had."""
        known = self.connection(address)
        if known is not None:
            return known
        attempt = self._connecting.get(address)
        if attempt is None:
            if self._closed:
                raise ConnectError("the client is closed")
            attempt = self._connecting[address] = self._loop.create_task(self._connect(address))
            attempt.add_done_callback(lambda _: self._connecting.pop(address, None))
        await asyncio.wait({attempt}, timeout=timeout)
        if not attempt.done():
            raise _too_late(address, timeout)
        result = ConnectError("the client is closed") if attempt.cancelled() else attempt.result()
        if isinstance(result, ConnectError):
            raise ConnectError(*result.args)
        if result.closed:
            raise ConnectError(f"{address} closed the connection at once")
        return result

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:
        """Send a request and return the answer, whatever its code; `timeout` in seconds covers connecting as well.

        Raises ConnectError, BacklogFull (nothing was sent), ConnectionLost, InvokeTimeout (the outcome is unknown),
        FrameError for a request that is too long.
        """
        connection = self._open.get(address)
        if connection is None or connection.closed:
            connection, timeout = await self._connect_in_time(address, timeout)
        return await connection.submit(request, timeout)

    def submit(self, address: str, request: Command, timeout: float = 3.0) -> "asyncio.Future[Command]":
        """Do the same without a coroutine, for the hot path: all errors come through the future."""
        connection = self._open.get(address)
        if connection is not None and not connection.closed:
            try:
                return connection.submit(request, timeout)
            except Exception as error:
                failed: asyncio.Future[Command] = self._loop.create_future()
                failed.set_exception(error)
                return failed
        return self._loop.create_task(self.invoke(address, request, timeout))

    async def oneway(self, address: str, request: Command, timeout: float = 3.0) -> None:
        """Send a request that gets no answer; errors as of `invoke`, but an unknown outcome is never reported.

        Nothing else slows down who sends so: while the peer does not take what it was sent, this waits for it.
        """
        connection = self._open.get(address)
        if connection is None or connection.closed:
            connection, timeout = await self._connect_in_time(address, timeout)
        await connection.drained(timeout)
        connection.send_oneway(request)

    async def _connect_in_time(self, address: str, timeout: float) -> tuple[Connection, float]:
        """Return the connection and the seconds that are left; one that came too late is used for nothing."""
        started = self._loop.time()
        connection = await self.connect(address, timeout)
        left = timeout - (self._loop.time() - started)
        if left <= 0:
            raise _too_late(address, timeout)
        return connection, left

    async def call(
        self, address: str, code: int, header: Header | None = None, body: Body = b"", timeout: float = 3.0
    ) -> Command:
        """Make a request, send it and return the answer; ResponseError unless its code is SUCCESS."""
        response = await self.invoke(address, Command.request(code, header, body), timeout)
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, address)
        return response

    async def close(self) -> None:
        """End everything; requests that wait get ConnectionLost, later ones ConnectError."""
        self._closed = True
        attempts = list(self._connecting.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        await self._side.close()

    async def _connect(self, address: str) -> Connection | ConnectError:
        if wait := self._backoff.wait_seconds(address, self._loop.time()):
            await asyncio.sleep(wait)
        try:
            host, port = parse_address(address)
        except ValueError as error:
            return ConnectError(str(error))
        if len(self._side.connections) >= self._limits.connections_max:
            return ConnectError(f"{self._limits.connections_max} connections are open already")
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                made = partial(Connection, self._side, self._loop)
                _, connection = await self._loop.create_connection(made, host, port, ssl=current(self._tls))
        except TimeoutError:
            self._backoff.failed(address, self._loop.time())
            return _too_late(address, self._limits.connect_seconds)
        except OSError as error:
            self._backoff.failed(address, self._loop.time())
            return ConnectError(f"no connection to {address}: {tls_words(error)}")
        except (ValueError, OverflowError) as error:
            # UnicodeError among them: a name that no resolver can be asked for.
            return ConnectError(f"{address} is no address that can be connected to: {error}")
        if connection.closed:
            self._backoff.failed(address, self._loop.time())
            return ConnectError(f"{address} closed the connection at once")
        connection.attachments[_ADDRESS] = address
        self._open[address] = connection
        if not self._sweeping:
            self._sweeping = True
            self._side.start_sweeping()
        return connection

    def _lost(self, connection: Connection) -> None:
        address = connection.attachments.get(_ADDRESS)
        if address is None:
            return
        if connection.heard:
            self._backoff.reached(address)
        else:
            self._backoff.failed(address, self._loop.time())
        if self._open.get(address) is connection:
            del self._open[address]
        if self._on_close is not None:
            self._on_close(address)


def _too_late(address: str, timeout: float) -> ConnectError:
    return ConnectError(f"no connection to {address} within {max(timeout, 0.0):g} s")
