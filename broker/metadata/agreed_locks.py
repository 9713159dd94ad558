"""Locks on queues that outlive whoever granted them: an agreed table in a Raft group, else config/queueLocks.json.

A grant counts when it is agreed upon: applied from the log of the group, or, of a broker without one, in the file on
the disk. Only then is the client told. So a new leader, or a broker that starts again, knows every lock that anybody
can trust: its holder is renewed at once, and everybody else waits until the holder cannot trust it any more (R14).

**What is in the log.** Who holds what, and no times: an entry for each change of a holder (a grant, a lock given back,
a client that left, locks that ran out), all of one turn of the loop in one META entry. A renewal is none. It is
answered from memory by a leader that has its lease, and moves the time only in that leader's memory. That is safe:
whoever leads next begins to count after that lease has ended, thus after the renewal was asked for, and lets every
holder be for the 30 s that clients trust a lock from asking. And a leader that lost its lead unawares cannot give the
queue to somebody else: that takes an entry of its own term, which then stands in the log of whoever leads next, or in
nobody's. While entries are on their way a queue is not renewed from memory: its answer waits for them.

**A group that has not begun with it.** As long as some member does not know these operations (a rolling upgrade: it
would have to stop), locks stay in the leader's memory, and a leader that does not know who holds what grants nothing
for 30 s. A leader that knows, in a group where everybody can, writes down all that it has granted and then BEGIN: from
there on all grants are in the log. A table without BEGIN is never believed.

**lockInStrictMode** asks a majority of RocketMQ's brokers to grant each lock. A Raft group does so by its log, always.

The file is ours: {"dataVersion": ..., "complete": bool, "lockTable": {group: {client: [[topic, broker, queue], ...]}}}.
`complete`: nobody holds a lock that is not in it. A slave's is not, nor one from before a group. But one that is
promoted while its master lives gets that one's table, which grants nothing more by then, and begins with it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from broker.metadata.operations import MetaLog, Operation, Table, Verb
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp, stamped
from broker.metadata.versions import next_version, packed, unpacked
from broker.queue_locks import LOCKS_MAX, GivenBack, LockTable
from remoting.bodies.registry import DataVersion, MessageQueue
from remoting.errors import CommandError, HeaderError
from runtime.clock import Clock

_log = logging.getLogger(__name__)

# What members say that know these operations (Hello.features).
LOCKS_IN_LOG = "queue-locks"
# Queues in one row of an operation: operations are split at their rows when they are too long for one entry.
ROW_QUEUES_MAX = 500
# Bytes of a table that is handed over in a promotion, some 50,000 locks; with more the promoted one waits.
HANDED_BYTES_MAX = 4 << 20

_Rows = list[list[Any]]


class _Content(msgspec.Struct):
    """The file's content."""

    dataVersion: DataVersion = msgspec.field(default_factory=DataVersion)
    complete: bool = False
    lockTable: dict[str, dict[str, list[tuple[str, str, int]]]] = {}


class AgreedLocks:
    """The locks of a broker: decided by `LockTable`, agreed upon through a MetaLog."""

    routes: tuple[Table, ...] = (Table.LOCKS,)

    def __init__(
        self,
        path: Path,
        clock: Clock,
        meta: MetaLog,
        *,
        fresh: bool = True,
        able: Callable[[], bool] = lambda: True,
        limit: int = LOCKS_MAX,
    ) -> None:
        """Read the file. `fresh`: this broker never served; `able`: every member of the group knows the operations.

        Raises MetadataError.
        """
        self._clock = clock
        self._meta = meta
        self._able = able
        # What the one that grants decides by; it runs ahead of what is applied.
        self._view = LockTable(clock, limit)
        self._applied: dict[str, dict[MessageQueue, str]] = {}
        # Rows about a queue that are proposed and not yet applied.
        self._pending: Counter[tuple[str, MessageQueue]] = Counter()
        self._begun = self._begins = False
        self._keeps = False
        # Of one that is promoted: whether it was handed all locks.
        self._handed: bool | None = None
        self.version = DataVersion(0, 0, 0)
        self.file = ConfigFile(path, self._snapshot, optional=True, may_lack_stamp=True)
        self._load(fresh=fresh)
        meta.attach(self)

    def __len__(self) -> int:
        return len(self._view)

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> tuple[list[MessageQueue], bool]:
        """Take or renew locks; returns those that the client may trust, once save() has returned if that is True.

        Raises CommandError when too much is pending; nothing was taken then.
        """
        self._begin()
        wanted = list(dict.fromkeys(queues))
        held = self._view.lock(group, client_id, wanted)
        if not self._writes:
            return held, False
        known = self._applied.get(group, {})
        new = [queue for queue in held if known.get(queue) != client_id or (group, queue) in self._pending]
        if new:
            try:
                self._propose(Verb.PUT, [GivenBack(group, client_id, new)])
            except CommandError:
                self._view.unlock(group, client_id, new)
                raise
        return held, bool(new) or (not self._meta.shared and self.file.dirty)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> bool:
        """Give back what the client holds of these; True: others learn of it for sure once save() has returned.

        Raises CommandError when too much is pending.
        """
        gone = self._view.unlock(group, client_id, dict.fromkeys(queues))
        return self._give_back([GivenBack(group, client_id, gone)] if gone else [])

    def release(self, group: str, client_id: str) -> None:
        """Give back everything that a client holds in a group: it has left."""
        if self._keeps or (self._meta.shared and not self._meta.leads):
            # The leader sees that itself, or the locks run out.
            return
        gone = self._view.release(group, client_id)
        try:
            self._give_back([GivenBack(group, client_id, gone)] if gone else [])
        except CommandError as error:
            _log.warning("locks of %s, which left %s, run out by themselves: %s", client_id, group, error)

    def keep(self) -> None:
        """Give nothing back for a closed connection any more: this broker stops, and its clients go on."""
        self._keeps = True

    def unknown(self, group: str, queues: Iterable[MessageQueue]) -> bool:
        """Tell whether somebody may hold one of these queues without being known here, and trust that (R14)."""
        return not self._view.may_grant() and any(self._view.holder(group, queue) is None for queue in queues)

    def sweep(self) -> None:
        """Forget the locks that have run out, as the one that grants."""
        if self._meta.shared and not self._meta.leads:
            return
        over = self._view.sweep()
        try:
            self._begin()
            self._give_back(over)
        except CommandError as error:
            _log.info("locks that ran out stay in the log for now: %s", error)
        if not self._meta.shared and self._complete != self._said_complete:
            # So that the next life knows what this one knew.
            self.file.mark()

    def regained(self) -> None:
        """Lead again, as a master that was held back or fenced: another one may have granted locks meanwhile."""
        self._view.inherit(self._applied)
        self._view.keep_quiet()

    def handed_over(self) -> bytes:
        """Return the table for whoever was promoted in the place of this broker, which grants nothing more."""
        content = b"".join(self._snapshot(None)())
        if len(content) > HANDED_BYTES_MAX:
            _log.warning("the queue locks take %d bytes: they are not handed over", len(content))
            return b""
        return content

    async def take_over(self, handed: bytes) -> bool:
        """Have the next start, as the master, begin with what the master before handed over; False: it is not all.

        Then nothing is granted for as long as somebody may trust a lock that is not known here. Raises OSError.
        """
        try:
            content = _decode(handed) if handed else _Content()
        except HeaderError as error:
            _log.warning("what the master before says of its queue locks is no table: %s", error)
            content = _Content()
        self._handed = content.complete
        if self._handed:
            self._applied = _by_queue(content)
        self.file.touch()
        await self.file.flush()
        return self._handed

    async def save(self) -> None:
        """Return when every change so far is agreed upon; raises OSError, CommandError when the lead is lost."""
        if self._meta.shared:
            await self._meta.settled()
        else:
            await self.file.flush()

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        await self.file.close()

    # ---- the table of a MetaLog

    def apply(self, operation: Operation, *, own: bool) -> None:
        """Do what an operation says; see MetaTable."""
        self._do(operation, own=own)
        self.file.mark(operation)

    def drop(self) -> None:
        """Decide by what is applied again; see MetaTable."""
        self._pending.clear()
        self._begins = False
        if self._begun:
            self._view.inherit(self._applied)

    def lead(self, *, first: bool) -> None:
        """Begin to grant; see MetaTable."""
        if self._begun:
            self._view.inherit(self._applied)
        elif not (first and self._known):
            self._view.lead(self._meta.term)
        self._begin()

    # ---- inside

    @property
    def _writes(self) -> bool:
        """Whether a change counts only once it is written: in the log, or in the file."""
        return self._begun or self._begins or not self._meta.shared

    @property
    def _complete(self) -> bool:
        """Whether everybody who holds a lock is in the table that is applied."""
        if self._meta.shared:
            return self._begun
        return self._meta.leads and self._view.may_grant() if self._handed is None else self._handed

    def _do(self, operation: Operation, *, own: bool) -> None:
        verb, _, version, *what = operation
        if verb == Verb.PUT:
            for group, client_id, queues in _read(what[0]):
                self._applied.setdefault(group, {}).update(dict.fromkeys(queues, client_id))
                self._follow(group, client_id, queues, own=own, put=True)
        elif verb == Verb.DELETE:
            for group, client_id, queues in _read(what[0]):
                self._forget(group, client_id, queues)
                self._follow(group, client_id, queues, own=own, put=False)
        elif verb == Verb.CLEAR:
            self._applied.clear()
            self._begun = False
        elif verb == Verb.BEGIN:
            self._begun, self._begins = True, False
            if not own and self._meta.leads:
                # Given up by this leader, and agreed upon all the same: it has granted more since then.
                self._view.inherit(self._applied)
                self._view.keep_quiet()
        else:
            raise MetadataError(f"operation {verb!r} on queue locks is unknown: upgrade this member")
        self.version = unpacked(version, self.version)

    def _begin(self) -> None:
        """Have all that was granted so far agreed upon, in a group that has not begun with it. Raises CommandError."""
        meta = self._meta
        if self._writes or not (meta.leads and self._view.may_grant() and self._able()):
            return
        meta.propose(self._operation(Verb.CLEAR))
        self._propose(Verb.PUT, list(self._view.rows()))
        meta.propose(self._operation(Verb.BEGIN))
        self._begins = True

    def _give_back(self, gone: Sequence[GivenBack]) -> bool:
        if not (gone and self._writes):
            return False
        self._propose(Verb.DELETE, gone)
        return True

    def _propose(self, verb: Verb, rows: Iterable[GivenBack]) -> None:
        written: _Rows = [
            [
                group,
                client_id,
                [[queue.topic, queue.brokerName, queue.queueId] for queue in queues[at:][:ROW_QUEUES_MAX]],
            ]
            for group, client_id, queues in rows
            for at in range(0, len(queues), ROW_QUEUES_MAX)
        ]
        if not written:
            return
        if self._meta.shared:
            self._pending.update((group, queue) for group, _client, queues in _read(written) for queue in queues)
        try:
            self._meta.propose(self._operation(verb, written))
        except CommandError:
            self._settle(written)
            raise

    def _settle(self, rows: _Rows) -> None:
        for group, _client_id, queues in _read(rows):
            self._landed(group, queues)

    def _landed(self, group: str, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            left = self._pending[group, queue] - 1
            if left > 0:
                self._pending[group, queue] = left
            else:
                del self._pending[group, queue]

    def _follow(self, group: str, client_id: str, queues: list[MessageQueue], *, own: bool, put: bool) -> None:
        """Have the view follow what is applied, where it is not ahead of it."""
        if own:
            self._landed(group, queues)
        elif not (self._meta.shared and self._meta.leads):
            # It was changed before the operation was proposed; or is made of the whole table when this one leads.
            return
        elif put:
            self._view.put(group, client_id, queues)
        else:
            self._view.unlock(group, client_id, queues)

    def _forget(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        held = self._applied.get(group, {})
        for queue in queues:
            if held.get(queue) == client_id:
                del held[queue]
        if not held:
            self._applied.pop(group, None)

    def _operation(self, verb: Verb, *what: object) -> Operation:
        version = next_version(self.version, self._clock.now_ms(), self._meta.term)
        return [int(verb), int(Table.LOCKS), packed(version), *what]

    def _load(self, *, fresh: bool) -> None:
        loaded = self.file.load(_decode)
        content = _Content(self.version) if loaded is None else loaded
        self.version, self._said_complete = content.dataVersion, content.complete
        self._applied = _by_queue(content)
        if self._meta.shared:
            self._begun = content.complete and self.file.stamp is not None
        self.file.replay(lambda operation: self._do(operation, own=False))
        # The locks of a group's member that serves alone now may be long out of date.
        self._known = fresh if loaded is None else content.complete and self.file.stamp is None
        if self._meta.leads and not self._known:
            self._view.keep_quiet()
        self._view.inherit(self._applied)

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        table: dict[str, dict[str, list[tuple[str, str, int]]]] = {}
        for group, held in sorted(self._applied.items()):
            for queue, client_id in sorted(held.items()):
                row = (queue.topic, queue.brokerName, queue.queueId)
                table.setdefault(group, {}).setdefault(client_id, []).append(row)
        self._said_complete = self._complete
        content = msgspec.json.encode(_Content(self.version, self._said_complete, table))
        return lambda: (stamped(content, stamp),)


def _read(rows: _Rows) -> list[GivenBack]:
    """Return an operation's rows; raises what a row that is none raises."""
    return [
        GivenBack(group, client_id, [MessageQueue(topic, broker, number) for topic, broker, number in queues])
        for group, client_id, queues in rows
    ]


def _by_queue(content: _Content) -> dict[str, dict[MessageQueue, str]]:
    return {
        group: {MessageQueue(*row): client_id for client_id, rows in clients.items() for row in rows}
        for group, clients in content.lockTable.items()
    }


def _decode(content: bytes) -> _Content:
    try:
        return msgspec.json.decode(content, type=_Content)
    except msgspec.DecodeError as error:
        raise HeaderError(f"not a table of queue locks: {error}") from None
