"""How groups are to read topics (pull or pop): config/messageRequestMode.json in RocketMQ's own form.

Every change is an operation (broker/metadata/operations.py). A group whose members have no modes proposes nothing, so
that members of a version that knows none go on.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from broker.metadata.operations import LocalMeta, MetaLog, Operation, Table, Verb
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp, stamped
from broker.metadata.versions import packed
from broker.reply import ok, whole_table
from remoting.bodies.registry import DataVersion, MessageRequestModeTable, SetMessageRequestModeBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler

PULL, POP = "PULL", "POP"
# Pairs of topic and group: the file is written whole with each change, and a slave copies it whole.
MODES_MAX = 100_000

Modes = dict[str, dict[str, dict[str, Any]]]
"""Topic → group → what was set; never changed, but replaced."""


class RequestMode(NamedTuple):
    """How a group reads a topic; with POP each member shares the queues of `share` others, all when that is 0."""

    mode: str
    share: int


class RequestModes:
    """Topic → group → mode."""

    routes: tuple[Table, ...] = (Table.MODES,)

    def __init__(self, path: Path, meta: MetaLog | None = None) -> None:
        """Read the file, when there is one. Raises MetadataError when it cannot be used."""
        self._meta: MetaLog = LocalMeta() if meta is None else meta
        self.file = ConfigFile(path, self._snapshot, optional=True)
        loaded = self.file.load(MessageRequestModeTable.decode)
        self._applied: Modes = {} if loaded is None else loaded.messageRequestModeMap
        # What is proposed is shown at once, where a group agrees on it.
        self._view = self._applied
        self._meta.attach(self)

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all}

    async def get_all(self, _connection: Connection, _request: Command) -> Command:
        """402: the whole table."""
        table = MessageRequestModeTable(self._view)
        return ok(None, whole_table(table.encode(), "copy config/messageRequestMode.json instead"))

    def get(self, topic: str, group: str) -> RequestMode | None:
        """Return what was set; None when nothing was, or nothing that can be understood."""
        row = self._view.get(topic, {}).get(group)
        if row is None or row.get("mode") not in {PULL, POP}:
            return None
        share = row.get("popShareQueueNum", 0)
        return RequestMode(row["mode"], share if isinstance(share, int) else 0)

    def put(self, wanted: SetMessageRequestModeBody) -> None:
        """Set a mode. Raises CommandError at the limit."""
        known = self._view
        if wanted.consumerGroup not in known.get(wanted.topic, {}) and sum(map(len, known.values())) >= MODES_MAX:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"this broker keeps at most {MODES_MAX} request modes")
        self._change(Verb.PUT, [[wanted.topic, wanted.consumerGroup, wanted.encode().decode()]])

    def take_over(self, copied: MessageRequestModeTable) -> None:
        """Become equal to the master's table, on a slave."""
        if copied.messageRequestModeMap != self._applied:
            self._applied = self._view = copied.messageRequestModeMap
            self.file.disown()
            self.file.mark()

    async def save(self) -> None:
        """Return when every change made so far is safe: on disk, or applied in the group of brokers.

        Raises OSError, and CommandError when the lead was lost meanwhile.
        """
        if self._meta.shared:
            await self._meta.settled()
        else:
            await self.file.flush()

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        await self.file.close()

    def apply(self, operation: Operation, *, own: bool) -> None:
        """Do what an operation says; see MetaTable."""
        self._applied = _after(self._applied, operation)
        if not self._meta.shared:
            self._view = self._applied
        elif not own:
            self._view = _after(self._view, operation)
        self.file.mark()

    def drop(self) -> None:
        """Show what is applied; see MetaTable."""
        self._view = self._applied

    def lead(self, *, first: bool) -> None:
        """Propose everything where the group's log has nothing of it, and there is something; see MetaTable."""
        if not first or not self._view:
            return
        rows = [
            [topic, group, msgspec.json.encode(row).decode()]
            for topic, groups in self._view.items()
            for group, row in groups.items()
        ]
        self._change(Verb.CLEAR)
        self._change(Verb.PUT, rows)

    def _change(self, verb: Verb, *what: Any) -> None:
        # RocketMQ's form has no version: what a slave copies it compares.
        operation = [int(verb), int(Table.MODES), packed(DataVersion(0, self._meta.term, 0)), *what]
        self._meta.propose(operation)
        if self._meta.shared:
            self._view = _after(self._view, operation)

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        table = MessageRequestModeTable(self._applied)
        return lambda: (stamped(table.encode(), stamp),)


def _after(modes: Modes, operation: Operation) -> Modes:
    """Return the table after an operation. Raises MetadataError."""
    if operation[0] == Verb.CLEAR:
        return {}
    if operation[0] != Verb.PUT:
        raise MetadataError(f"operation {operation[0]!r} on request modes is unknown: upgrade this member")
    made = dict(modes)
    copied: set[str] = set()
    for topic, group, text in operation[3]:
        if topic not in copied:
            made[topic] = dict(made.get(topic, {}))
            copied.add(topic)
        made[topic][group] = msgspec.json.decode(text)
    return made
