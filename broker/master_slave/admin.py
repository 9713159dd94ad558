"""What is asked of a broker in a classic mode: 9111 and 9112, which are ours, and 907, mqadmin's haStatus.

9111 STATUS answers with what /v1/ha shows. 9112 DIGEST answers {"incarnation": ..., "digests": [...]}: the SHA-256 of
each range that was asked for, null for one that is not kept. A slave compares its log with its master's by these before
it follows (rule R16); the incarnation tells it that both answers come from the same start of the same broker.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

import orjson

from broker.reply import ok
from broker.settings.pair_proof import PairProof
from remoting.bodies.registry import HARuntimeInfo
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler

# Bytes of a request's body, and ranges in it.
BODY_BYTES_MAX = 64 * 1024
RANGES_MAX = 256
# Bytes that one request may have read, unless a log file is larger: about a second of a processor.
DIGEST_BYTES_MAX = 1024 * 1024 * 1024
# Requests that wait for another's digests; beyond it SYSTEM_BUSY. Digests are made one after the other, in a thread.
WAITING_MAX = 32


class DigestedLog(Protocol):
    """What is needed of the store."""

    @property
    def file_bytes(self) -> int:
        """The size of a log file."""
        ...

    def digest(self, begin: int, end: int) -> str | None:
        """Return the SHA-256 of bytes of the log, None when not all of them are there; for any thread."""
        ...


class PairHandlers:
    """Handlers of what a master and a slave tell."""

    def __init__(
        self,
        log: DigestedLog,
        threads: Executor,
        incarnation: str,
        status: Callable[[], dict[str, Any]],
        ha_info: Callable[[], HARuntimeInfo],
        proof: PairProof,
        asked: Callable[[bytes | memoryview, str], None] = lambda _body, _host: None,
    ) -> None:
        """`status` returns all that is known, for people; `ha_info` the part of it that RocketMQ's tools show.

        `asked` is told the body of each question about the state, where slaves say who they are, and its host.
        """
        self._proof = proof
        self._asked = asked
        self._log = log
        self._threads = threads
        self._incarnation = incarnation
        self._status = status
        self._ha_info = ha_info
        self._turn = asyncio.Lock()
        self._waiting = 0

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            ClassicCode.STATUS: self.status,
            ClassicCode.DIGEST: self.digest,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
        }

    def status(self, connection: Connection, request: Command) -> Command:
        """9111: what this broker knows of its pair, proved to whoever asks with a nonce."""
        self._asked(request.body, connection.peer[0])
        return ok(body=orjson.dumps(self._proof.answer(self._status(), request.body)))

    def ha_status(self, _connection: Connection, _request: Command) -> Command:
        """907: how far the slaves are, or this slave is."""
        return ok(body=self._ha_info().encode())

    async def digest(self, _connection: Connection, request: Command) -> Command:
        """9112: the SHA-256 of ranges of the log."""
        ranges = self._ranges(request)
        if self._waiting >= WAITING_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} others wait for digests: try again")
        self._waiting += 1
        try:
            async with self._turn:
                loop = asyncio.get_running_loop()
                digests = await loop.run_in_executor(self._threads, self._digests, ranges)
        except OSError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the log cannot be read: {error}") from None
        finally:
            self._waiting -= 1
        return ok(body=orjson.dumps({"incarnation": self._incarnation, "digests": digests}))

    def _digests(self, ranges: list[tuple[int, int]]) -> list[str | None]:
        return [self._log.digest(begin, end) for begin, end in ranges]

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
