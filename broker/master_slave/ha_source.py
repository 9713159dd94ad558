"""Asks a master and the own store for the facts that ha_compare.py decides upon.

Whatever cannot be had (a time-out, a file that retention took away meanwhile, another process that answers under the
same address) raises FactsMissing: then nothing is decided, the slave does not follow, and asks again later.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

import orjson

from broker.master_slave.ha_compare import MasterLog, Range
from broker.peers import Invoker
from broker.settings.pair_keys import SYNC_MASTER
from remoting import fastjson
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import HeaderError, InvokeError
from remoting.record import BLANK, BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_V1, MAGIC_V2
from runtime.config import parse_properties

# Seconds for an answer that is at hand, and for one for which ASK_BYTES_MAX of a cold disk are read.
STATUS_SECONDS = 3.0
DIGEST_SECONDS = 30.0
# Bytes of the log that a master is asked to read for one request.
ASK_BYTES_MAX = 256 * 1024 * 1024
# Bytes of the own log read at once while record borders are looked for.
WALK_BYTES = 1024 * 1024


class FactsMissing(Exception):
    """A fact cannot be had at present; the text says which, and from whom."""


class OwnBytes(Protocol):
    """What is needed of the store; both methods are for any thread."""

    @property
    def file_bytes(self) -> int:
        """Size of a log file."""
        ...

    def digest(self, begin: int, end: int) -> str | None:
        """Return the SHA-256 of bytes of the log, None when not all of them are there."""
        ...

    def read_piece_cold(self, position: int, size_max: int) -> memoryview | bytes:
        """Return written bytes of one file from a position on. Raises OSError."""
        ...


class HaSource:
    """Knows how to ask; holds nothing."""

    def __init__(self, client: Invoker, own: OwnBytes, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self._client = client
        self._own = own
        self._loop = loop
        self._threads = threads

    async def master_log(self, address: str) -> MasterLog:
        """Return what the master at a broker's address says of itself. Raises FactsMissing."""
        answer = await self._ask(address, ClassicCode.STATUS, b"", STATUS_SECONDS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return await self._rocketmq_log(address)
        fields = _object(address, _good(address, answer))
        try:
            return MasterLog(
                role=_text(fields, "role"),
                begin=_number(fields, "min"),
                end=_number(fields, "max"),
                file_bytes=_number(fields, "fileBytes"),
                incarnation=_text(fields, "incarnation"),
                epoch=_number(fields, "epoch"),
                fenced=_text(fields, "fenced", needed=False),
                log_id=_text(fields, "logId", needed=False),
                slaves=_reports(fields.get("slaves")),
            )
        except ValueError as error:
            raise FactsMissing(f"{address} does not say what a master says: {error}") from None

    async def _rocketmq_log(self, address: str) -> MasterLog:
        """Ask a RocketMQ master, which knows nothing of us, for what it tells everybody."""
        begin, end = 0, None
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, b"", STATUS_SECONDS)
        if answer.code == ResponseCode.SUCCESS:
            table = _object(address, answer).get("table")
            figures = table if isinstance(table, dict) else {}
            begin = _figure(figures, "commitLogMinOffset") or 0
            end = _figure(figures, "commitLogMaxOffset")
        answer = await self._ask(address, RequestCode.GET_BROKER_CONFIG, b"", STATUS_SECONDS)
        values = {}
        if answer.code == ResponseCode.SUCCESS:
            values = parse_properties(bytes(answer.body).decode("utf-8", "replace"))
        # A role that is not told is the one that forbids most.
        role = values.get("brokerRole", SYNC_MASTER)
        return MasterLog(role, begin, end, _figure(values, "mappedFileSizeCommitLog"))

    def logs(self, address: str, incarnation: str) -> "PairOfLogs":
        """Return the logs of this broker and of a master, for compare()."""
        return PairOfLogs(self, address, incarnation)

    async def master_digests(self, address: str, incarnation: str, ranges: Sequence[Range]) -> list[str]:
        """Return the SHA-256 of each range of the master's log. Raises FactsMissing, also when another one answers."""
        digests: list[str] = []
        for asked in _portions(ranges):
            answer = await self._ask(address, ClassicCode.DIGEST, orjson.dumps({"ranges": asked}), DIGEST_SECONDS)
            fields = _object(address, _good(address, answer))
            if fields.get("incarnation") != incarnation:
                raise FactsMissing(f"{address} was started again meanwhile")
            found = fields.get("digests")
            if not isinstance(found, list) or len(found) != len(asked):
                raise FactsMissing(f"{address} does not answer with {len(asked)} digests")
            for (begin, end), digest in zip(asked, found, strict=True):
                if not isinstance(digest, str):
                    raise FactsMissing(f"{address} does not keep {begin} to {end} of its log (any more)")
                digests.append(digest)
        return digests

    async def own_digests(self, ranges: Sequence[Range]) -> list[str]:
        """Return the SHA-256 of each range of the own log. Raises FactsMissing."""
        digests: list[str] = []
        for begin, end in ranges:
            try:
                digest = await self._loop.run_in_executor(self._threads, self._own.digest, begin, end)
            except (OSError, EOFError) as error:
                raise FactsMissing(f"the own log cannot be read from {begin} to {end}: {error}") from None
            if digest is None:
                raise FactsMissing(f"{begin} to {end} of the own log is not kept (any more)")
            digests.append(digest)
        return digests

    async def own_border(self, position: int) -> int:
        """Return the last record border at or before a position of the own log. Raises FactsMissing."""
        try:
            return await self._loop.run_in_executor(self._threads, record_border, self._own, position)
        except (OSError, EOFError) as error:
            raise FactsMissing(f"the own log cannot be read before {position}: {error}") from None

    async def _ask(self, address: str, code: int, body: bytes, seconds: float) -> Command:
        try:
            return await self._client.invoke(address, Command.request(code, None, body), seconds)
        except InvokeError as error:
            raise FactsMissing(f"{address} does not answer: {error}") from None


class PairOfLogs:
    """The logs of a slave and of one incarnation of its master; see ha_compare.BothLogs."""

    def __init__(self, source: HaSource, address: str, incarnation: str) -> None:
        """See HaSource.logs."""
        self._source = source
        self._address = address
        self._incarnation = incarnation

    async def same(self, ranges: Sequence[Range]) -> list[bool]:
        """Compare digests, worked out by both sides at the same time."""
        own = asyncio.ensure_future(self._source.own_digests(ranges))
        try:
            theirs = await self._source.master_digests(self._address, self._incarnation, ranges)
            return [mine == other for mine, other in zip(await own, theirs, strict=True)]
        finally:
            own.cancel()
            await asyncio.wait({own})

    async def border(self, position: int) -> int:
        """Walk the own log's records."""
        return await self._source.own_border(position)


def record_border(own: OwnBytes, position: int) -> int:
    """Return the last record border at or before a position, found by walking from its file's begin; for any thread.

    The blank at the end of a file counts as a record. Raises OSError, FactsMissing when what stands there is no log.
    """
    border = position - position % own.file_bytes
    file_end = border + own.file_bytes
    piece: memoryview | bytes = b""
    base = border
    while position - border >= BLANK_BYTES:
        if not 0 <= border - base <= len(piece) - BLANK_BYTES:
            base, piece = border, own.read_piece_cold(border, WALK_BYTES)
            if len(piece) < BLANK_BYTES:
                raise FactsMissing(f"the own log is not kept at {border} (any more)")
        size, magic = BLANK.unpack_from(piece, border - base)
        blank = magic == BLANK_MAGIC and border + size == file_end
        if not blank and (magic not in {MAGIC_V1, MAGIC_V2} or size < FIXED_BYTES):
            raise FactsMissing(f"the own log is damaged at {border}: no record begins there")
        if border + size > position:
            break
        border += size
    return border


def _portions(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    """Yield the ranges in portions that one request may ask for."""
    portion: list[Range] = []
    size = 0
    for begin, end in ranges:
        if portion and size + end - begin > ASK_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append((begin, end))
        size += end - begin
    if portion:
        yield portion


def _good(address: str, answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise FactsMissing(f"{address} refuses to answer: code {answer.code}, {answer.remark}")
    return answer


def _object(address: str, answer: Command) -> dict[str, Any]:
    try:
        fields = fastjson.loads(bytes(answer.body))
    except HeaderError as error:
        raise FactsMissing(f"{address} answers with what is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise FactsMissing(f"{address} answers with another JSON value than an object")
    return fields


def _text(fields: dict[str, Any], name: str, *, needed: bool = True) -> str:
    value = fields.get(name)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or (needed and not value):
        raise ValueError(f"its {name} is {value!r}")
    return value


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or value < 0:
        raise ValueError(f"its {name} is {value!r}")
    return value


def _reports(slaves: object) -> tuple[int, ...] | None:
    """Return what a master's slaves have reported."""
    if not isinstance(slaves, list):
        return None
    reports = [slave.get("acked") for slave in slaves if isinstance(slave, dict)]
    return tuple(report for report in reports if isinstance(report, int))


def _figure(figures: dict[str, Any], name: str) -> int | None:
    """Return a number that RocketMQ writes as text, None when it does not."""
    value = figures.get(name)
    return int(value) if isinstance(value, str) and value.isdecimal() else None
