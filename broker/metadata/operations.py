"""Metadata of a broker: every change of a table is an operation, and a `MetaLog` decides when it counts.

A broker without a group has `LocalMeta`: an operation is applied at once. In a Raft group `GroupMeta` gathers the
operations of a turn of the loop into one META entry; each member applies them in the order of the log. An operation
says all that is needed to apply it, the version of the table included, so that what it makes of a table is a function
of the two and nothing else: two members that applied the same entries hold the same tables.

A META entry's payload is a CBOR array [1, operation, ...]; an operation is an array [verb, table, version, ...]:

    [PUT,    TOPICS, v, [[name, read queues, write queues, perm, filter type, system flag, order, attributes], ...]]
    [DELETE, TOPICS, v, [name, ...]]
    [CLEAR,  TOPICS, v]                                  empties the table; what follows fills it again
    [PUT,    GROUPS, v, [{field: value}, ...]]           SubscriptionGroupConfig, RocketMQ's names
    [DELETE, GROUPS, v, [name, ...]]
    [FORBID, GROUPS, v, [[group, topic, bits], ...]]     bits 0: nothing is forbidden any more
    [CLEAR,  GROUPS, v]
    [COMMIT, OFFSETS, v, [[topic@group, queue, offset, back], ...]]    back: may lie before what is there (a seek)
    [RESET,  OFFSETS, v, [[topic@group, queue, offset, tell], ...]]    tell: commits wait until a pull was told
    [CLONE,  OFFSETS, v, source group, target group, topic]
    [DELETE, OFFSETS, v, topic, group]                   "" for either: of all
    [CLEAR,  OFFSETS, v]
    [PUT,    DELAY, v, [[level, offset], ...]]           everything before the offset has been delivered
    [PUT,    TRANSACTIONS, v, [[queue, half offset, op offset], ...]]  reserved: no member proposes or takes it yet
    [PUT,    LOCKS, v, [[group, client, [[topic, broker, queue], ...]], ...]]    the client holds these queues
    [DELETE, LOCKS, v, [[group, client, [[topic, broker, queue], ...]], ...]]    what it holds of these is free
    [CLEAR,  LOCKS, v]                                   nobody holds anything, as far as the log knows
    [BEGIN,  LOCKS, v]                                   from here on all locks are in the log
    [PUT,    QUEUE_STARTS, v, start, [[topic, queue, offset], ...]]    start: of the log, bytes; 0: it does not move
    [PUT,    USERS, v, [["user", name, JSON], ["policies", name, JSON], ...]]    "": no policies any more
    [DELETE, USERS, v, [name, ...]]                      a user and his policies
    [CLEAR,  USERS, v]
    [PUT,    MODES, v, [[topic, group, JSON], ...]]      how a group reads a topic, in RocketMQ's form
    [CLEAR,  MODES, v]

    [PART,   0, number, count]                           first in each of several entries, which count together

A version is [counter, state version, timestamp in ms], as the proposer decided it. The rows of an operation stand last
and may be split over several operations when they are too many for one entry.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Protocol

from broker.metadata.table_file import ConfigFile, MetadataError
from remoting.codes import ResponseCode

_log = logging.getLogger(__name__)

# What whoever waits for a change is told when the lead is lost.
LOST = "this broker lost the lead before the change was agreed upon: ask the new leader what became of it"


class Table(IntEnum):
    """Which table an operation is about."""

    TOPICS = 1
    GROUPS = 2
    OFFSETS = 3
    DELAY = 4
    TRANSACTIONS = 5
    QUEUE_STARTS = 6
    LOCKS = 7
    USERS = 8
    MODES = 9


class Verb(IntEnum):
    """What an operation does."""

    PUT = 1
    DELETE = 2
    CLEAR = 3
    FORBID = 4
    COMMIT = 5
    RESET = 6
    CLONE = 7
    BEGIN = 8
    PART = 9


Operation = list[Any]
Done = Callable[[int], None]
"""Called once with a response code: SUCCESS when applied, SYSTEM_ERROR when it is not known whether it ever will be."""
Later = Callable[[float, Callable[[], None]], object]
"""Calls something after some seconds."""


class MetaTable(Protocol):
    """A table whose changes go through the log."""

    @property
    def routes(self) -> tuple[Table, ...]:
        """The tables whose operations it wants to see."""
        ...

    @property
    def file(self) -> ConfigFile:
        """The file that is its snapshot."""
        ...

    def apply(self, operation: Operation, *, own: bool) -> None:
        """Do what an operation says; `own`: this member proposed it, and shows it already."""
        ...

    def drop(self) -> None:
        """Show again what is applied, and nothing else: what was proposed is in doubt."""
        ...

    def lead(self, *, first: bool) -> None:
        """Propose what a new leader owes; `first`: the whole table, nothing of it is in this group's log yet."""
        ...


class MetaLog(Protocol):
    """Where changes go."""

    @property
    def shared(self) -> bool:
        """Whether a group agrees on changes: they then count when they are applied, not when they are proposed."""
        ...

    @property
    def later(self) -> Later | None:
        """Sets timers in a group, for what is gathered before it is proposed; None without a group."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this broker may propose changes."""
        ...

    @property
    def term(self) -> int:
        """What versions of tables carry at least as their stateVersion."""
        ...

    @property
    def index(self) -> int:
        """Everything up to this entry is applied; from within `apply`, the entry that is being applied."""
        ...

    def attach(self, table: MetaTable) -> None:
        """Have a table see the operations that it wants to."""
        ...

    def propose(self, operation: Operation, done: Done | None = None) -> None:
        """Take an operation. Raises CommandError (nothing happened then, `done` is not called)."""
        ...

    def noted(self, table: Table) -> None:
        """Learn that a table changed without an operation (a commit, progress), in a broker without a group."""
        ...

    async def settled(self) -> None:
        """Return when everything proposed so far is applied; raises CommandError when that is in doubt."""
        ...


class TableRoutes:
    """The tables by the operations that they want to see."""

    def __init__(self) -> None:
        self.tables: list[MetaTable] = []
        self._of: dict[int, list[MetaTable]] = {}

    def attach(self, table: MetaTable) -> None:
        """Add a table."""
        self.tables.append(table)
        for kind in table.routes:
            self._of.setdefault(int(kind), []).append(table)

    def of(self, operation: Operation) -> list[MetaTable]:
        """Return who wants to see an operation; raises MetadataError when nobody knows what it is about."""
        found = self._of.get(operation[1])
        if found is None:
            raise MetadataError(
                f"a META entry changes table {operation[1]!r}, which this version does not know: upgrade this member"
            )
        return found


class LocalMeta:
    """A broker without a group: what is proposed is applied."""

    shared = False
    later = None
    term = 0
    index = 0

    def __init__(
        self,
        *,
        leads: bool = True,
        on_change: Callable[[Table], None] = lambda _table: None,
        on_progress: Callable[[Table], None] = lambda _table: None,
    ) -> None:
        """`leads`: False on a slave, whose tables are its master's and make nothing of their own.

        `on_change` is called after each operation, `on_progress` after what is `noted`, with the table that changed.
        """
        self.leads = leads
        self._on_change, self._on_progress = on_change, on_progress
        self._routes = TableRoutes()

    @property
    def tables(self) -> Sequence[MetaTable]:
        """Everything that was attached."""
        return self._routes.tables

    def attach(self, table: MetaTable) -> None:
        """Add a table; see MetaLog."""
        self._routes.attach(table)

    def propose(self, operation: Operation, done: Done | None = None) -> None:
        """Apply an operation."""
        for table in self._routes.of(operation):
            table.apply(operation, own=False)
        self._on_change(Table(operation[1]))
        if done is not None:
            done(ResponseCode.SUCCESS)

    def noted(self, table: Table) -> None:
        """Pass it on; see MetaLog."""
        self._on_progress(table)

    async def settled(self) -> None:
        """Return at once."""


def without_room(meta: MetaLog) -> OSError | None:
    """Return that a table on disk lacks what was acknowledged because there is no room for it; None when all is well.

    A group's tables stand in its log, and their files may wait.
    """
    if not isinstance(meta, LocalMeta):
        return None
    return next((table.file.full for table in meta.tables if table.file.full is not None), None)


def answer_all(dones: Iterable[Done], code: int) -> None:
    """Tell everybody who waits; a failure must not cost the others their answers."""
    for done in dones:
        try:
            done(code)
        except Exception:
            _log.exception("a change of metadata could not be answered")
