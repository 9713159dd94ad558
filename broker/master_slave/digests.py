"""9112 DIGEST: {"incarnation": ..., "digests": [...]}, the SHA-256 of each range asked for, null for one not kept.

A slave compares its log with its master's by these before it follows (rule R16); the incarnation tells it that both
answers come from the same start of the same broker. Each question makes this broker read, so it is answered to slaves
and administrators only (broker/master_slave/introductions.py), and in pieces: one piece is read at a time, by turns.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

import orjson

from broker.reply import ok
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler
from store.log.logbytes import Hash

# Bytes of a request's body, and ranges in it.
BODY_BYTES_MAX = 64 * 1024
RANGES_MAX = 256
# Bytes that one request may have read, unless a log file is larger: what slaves ask for at most.
DIGEST_BYTES_MAX = 256 * 1024 * 1024
# Bytes that are read before it is another request's turn, and the threads are free for cold pulls: ten milliseconds.
TURN_BYTES = 16 * 1024 * 1024
# Requests that are answered by turns, and those of them from one host; beyond it SYSTEM_BUSY.
WAITING_MAX = 32
WAITING_PER_HOST_MAX = 16


class DigestedLog(Protocol):
    """What is needed of the store."""

    @property
    def file_bytes(self) -> int:
        """The size of a log file."""
        ...

    def hash_into(self, found: Hash, begin: int, end: int) -> bool:
        """Add bytes of the log to a hash, False when not all of them are there; for any thread."""
        ...


class Digests:
    """Answers DIGEST."""

    def __init__(
        self,
        log: DigestedLog,
        threads: Executor,
        incarnation: str,
        refusal: Callable[[Connection, Command], str | None] = lambda _connection, _request: None,
    ) -> None:
        """`refusal` tells why somebody may not ask, None when he may."""
        self._log = log
        self._threads = threads
        self._incarnation = incarnation
        self._refusal = refusal
        self._turn = asyncio.Lock()
        # Requests that are being answered, by host.
        self._waiting: Counter[str] = Counter()

    def table(self) -> dict[int, Handler]:
        """Return the handler by request code."""
        return {ClassicCode.DIGEST: self.digest}

    async def digest(self, connection: Connection, request: Command) -> Command:
        """9112: the SHA-256 of ranges of the log."""
        if (why := self._refusal(connection, request)) is not None:
            raise CommandError(ResponseCode.NO_PERMISSION, why)
        ranges = self._ranges(request)
        host = connection.peer[0]
        if self._waiting.total() >= WAITING_MAX or self._waiting[host] >= WAITING_PER_HOST_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"{self._waiting.total()} others wait for digests: try again")
        self._waiting[host] += 1
        try:
            digests = [await self._digest(begin, end) for begin, end in ranges]
        except OSError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the log cannot be read: {error}") from None
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]
        return ok(body=orjson.dumps({"incarnation": self._incarnation, "digests": digests}))

    async def _digest(self, begin: int, end: int) -> str | None:
        loop, found, at = asyncio.get_running_loop(), hashlib.sha256(), begin
        while True:
            upto = min(end, at + TURN_BYTES)
            async with self._turn:
                if not await loop.run_in_executor(self._threads, self._log.hash_into, found, at, upto):
                    return None
            if upto == end:
                return found.hexdigest()
            at = upto

    def _ranges(self, request: Command) -> list[tuple[int, int]]:
        """Return what was asked for; raises CommandError."""
        if len(request.body) > BODY_BYTES_MAX:
            raise _invalid(f"the body takes at most {BODY_BYTES_MAX} bytes")
        try:
            fields = orjson.loads(request.body or b"{}")
        except orjson.JSONDecodeError as error:
            raise _invalid(f"the body is no JSON: {error}") from None
        asked = fields.get("ranges") if isinstance(fields, dict) else None
        if not isinstance(asked, list) or len(asked) > RANGES_MAX:
            raise _invalid(f"'ranges' takes a list of at most {RANGES_MAX} pairs [begin, end]")
        ranges = [_range(each) for each in asked]
        most = max(DIGEST_BYTES_MAX, self._log.file_bytes)
        if sum(end - begin for begin, end in ranges) > most:
            raise _invalid(f"'ranges' takes {most} bytes of the log in all: ask for fewer at a time")
        return ranges


def _range(pair: object) -> tuple[int, int]:
    if isinstance(pair, list) and len(pair) == 2:
        begin, end = pair
        if type(begin) is int and type(end) is int and 0 <= begin <= end < 1 << 63:
            return begin, end
    raise _invalid(f"{pair!r} is no range [begin, end] of the log")


def _invalid(why: str) -> CommandError:
    return CommandError(ResponseCode.INVALID_PARAMETER, why)
