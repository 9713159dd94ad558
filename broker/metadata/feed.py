"""When a master's metadata changed: what lets its slaves copy a change at once, and not ask every moment.

Each table has a number that grows when it changes (code 9113, AWAIT_METADATA; a slave's side:
broker/master_slave/metadata_copy.py). Changes gather for SOON_SECONDS, and what changes all the time (commits of
offsets, progress of delay levels) for PROGRESS_SECONDS: that bounds how often slaves copy these tables.

    request  {"seen": n, "wait_ms": n}     seen: of the last answer, anything else the first time
    answer   {"seen": n, "tables": {"TOPICS": n, "GROUPS": n, "OFFSETS": n, "DELAY": n, "USERS": n, "MODES": n}}

The answer comes when the number is another one than `seen`, or when the time is over. The numbers begin at random, so
that those of a master that started again are never taken for known.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from broker.metadata.operations import Table
from broker.reply import ok
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.fastjson import read_strictly
from remoting.server import Connection, Handler

# Seconds that changes gather for before slaves are told.
SOON_SECONDS = 0.05
PROGRESS_SECONDS = 1.0
# Slaves that wait for news; beyond it SYSTEM_BUSY. And the longest that one waits.
WAITERS_MAX = 64
WAIT_MS_MAX = 60_000
BODY_BYTES_MAX = 1024
# The tables whose changes are told.
TOLD = (Table.TOPICS, Table.GROUPS, Table.OFFSETS, Table.DELAY, Table.USERS, Table.MODES)
# What a slave's connection is marked with, in Connection.attachments.
SLAVE = "slave"


class NewsTimer(Protocol):
    """What `later` returns."""

    def cancel(self) -> None:
        """Let it never fire."""
        ...


class NewsRequest(msgspec.Struct):
    """What a slave asks."""

    seen: int = -1
    wait_ms: int = 0


class News(msgspec.Struct):
    """What it is answered: the number that it has seen then, and each table's."""

    seen: int
    tables: dict[str, int]


class MetaNews:
    """Counts changes, and answers the slaves that wait for one."""

    def __init__(
        self, later: Callable[[float, Callable[[], None]], NewsTimer], leads: Callable[[], bool], first: int
    ) -> None:
        """`later(seconds, call)` sets a timer, `leads` tells whether this is a master, `first` is random.

        changes() and progresses() are called by the tables' LocalMeta. `table()` goes among the broker's handlers,
        `close` before its connections end.
        """
        self._later = later
        self._leads = leads
        self._seen = first
        self._numbers = dict.fromkeys(TOLD, first)
        self._changed: set[Table] = set()
        self._soon: NewsTimer | None = None
        self._sometime: NewsTimer | None = None
        self._waiting: dict[Connection, asyncio.Future[None]] = {}

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {ClassicCode.AWAIT_METADATA: self.await_news}

    async def await_news(self, connection: Connection, request: Command) -> Command:
        """9113: answer when something changed, or the time is over."""
        if not self._leads():
            raise CommandError(ResponseCode.SYSTEM_ERROR, "this broker is no master: its metadata is a copy")
        asked = _request(request)
        connection.attachments[SLAVE] = SLAVE
        if asked.seen == self._seen and asked.wait_ms > 0:
            await self._change(connection, min(asked.wait_ms, WAIT_MS_MAX) / 1000)
        return ok(body=msgspec.json.encode(News(self._seen, {kind.name: n for kind, n in self._numbers.items()})))

    def close(self) -> None:
        """Answer everybody, and tell nothing more."""
        for timer in (self._soon, self._sometime):
            if timer is not None:
                timer.cancel()
        self._wake()

    async def _change(self, connection: Connection, seconds: float) -> None:
        for other in [other for other in self._waiting if other.closed]:
            self._end(other)
        # One that asks again on the same connection has given up what it asked before.
        self._end(connection)
        if len(self._waiting) >= WAITERS_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"{WAITERS_MAX} slaves wait for news, the limit")
        waits = self._waiting[connection] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((waits,), timeout=seconds)
        finally:
            if self._waiting.get(connection) is waits:
                del self._waiting[connection]

    def _end(self, connection: Connection) -> None:
        waits = self._waiting.pop(connection, None)
        if waits is not None and not waits.done():
            waits.set_result(None)

    def changes(self, table: Table) -> None:
        """Take note that a table was changed."""
        if table in self._numbers:
            self._changed.add(table)
            if self._soon is None:
                self._soon = self._later(SOON_SECONDS, self._tell)

    def progresses(self, table: Table) -> None:
        """Take note that a table has moved on; that is told of less often."""
        # With each commit of an offset: most find it noted already.
        if table not in self._changed and table in self._numbers:
            self._changed.add(table)
            if self._sometime is None:
                self._sometime = self._later(PROGRESS_SECONDS, self._tell)

    def _tell(self) -> None:
        for timer in (self._soon, self._sometime):
            if timer is not None:
                timer.cancel()
        self._soon = self._sometime = None
        self._seen += 1
        self._numbers.update(dict.fromkeys(self._changed, self._seen))
        self._changed.clear()
        self._wake()

    def _wake(self) -> None:
        for connection in list(self._waiting):
            self._end(connection)


def _request(request: Command) -> NewsRequest:
    """Return what was asked; raises CommandError."""
    try:
        if len(request.body) <= BODY_BYTES_MAX:
            return read_strictly(request.body, NewsRequest)
        why = f"it has more than {BODY_BYTES_MAX} bytes"
    except msgspec.DecodeError as error:
        why = str(error)
    raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body must be {{'seen': n, 'wait_ms': n}}: {why}")
