"""Metadata through the log of a Raft group: operations (broker/metadata/operations.py) become META entries, and back.

The leader gathers the operations of a turn of the loop into one META entry (broker/metadata/meta_entry.py); each member
applies them in the order of the log.

**Stamps (R3).** The config/*.json files are the snapshot. Each carries the group and the index up to which META entries
are in it (configfile.Stamp); what a stamp covers is not applied again, and the log is deleted only below the oldest.
"""

import asyncio
from collections import deque
from functools import partial

from broker.metadata.log_sync import LogSync
from broker.metadata.meta_entry import MetaParts, decode, joined, part_head, pieces
from broker.metadata.operations import LOST, Done, Later, MetaTable, Operation, Table, TableRoutes, answer_all
from broker.metadata.table_file import ConfigFile, MetadataError, Stamp
from broker.role import BrokerRole
from raft.protocol.group_node import GroupNode
from raft.protocol.types import Fate, Refusal
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.clock import Clock, SystemClock

# Bytes of one META entry's payload: it is written in one piece, together with the messages that follow it.
ENTRY_BYTES_MAX = 512 * 1024
# Bytes of operations that are not yet applied; beyond it a change is refused with SYSTEM_BUSY.
PENDING_BYTES_MAX = 64 * 1024 * 1024
# Seconds before operations that the group did not take (a transfer, a full disk) are proposed again.
RETRY_SECONDS = 0.05
# Seconds after which a table is written although nothing changed in it: else its stamp would keep the log from being
# deleted. And entries: a start behind a kill looks at each one from the oldest stamp on, 25 to 80 us each.
RESTAMP_SECONDS, RESTAMP_ENTRIES = 300.0, 30_000


class _Batch:
    """Operations that share a META entry."""

    __slots__ = ("dones", "encoded", "payload", "size")

    def __init__(self) -> None:
        self.encoded: list[bytes] = []
        self.dones: list[Done] = []
        self.size = 0
        self.payload = b""

    def seal(self) -> bytes:
        """Return the entry's payload."""
        if not self.payload:
            self.payload = joined(self.encoded)
            self.encoded.clear()
        return self.payload


class GroupMeta:
    """A member of a Raft group: operations become META entries, and count when they are applied.

    The leader's tables show a change as soon as it is proposed. Changes are applied in the order they were proposed
    in, so what the leader shows is what will be applied, unless it loses the lead: then everything that was not
    applied is taken back.
    """

    shared = True

    def __init__(self, role: BrokerRole, later: Later, clock: Clock | None = None, log: LogSync | None = None) -> None:
        """`later(seconds, call)` sets a timer; with 0 it calls in the next turn of the loop.

        `log`: the one that stamps speak of; without it they are written as if it were always synced.
        """
        self._log = log
        self._role = role
        self._clock: Clock = SystemClock() if clock is None else clock
        self.later = later
        self._routes = TableRoutes()
        self._node: GroupNode | None = None
        self._gathered: deque[_Batch] = deque()
        self._flying: deque[_Batch] = deque()
        self._pending_bytes = 0
        self._flush_set = False
        self._led_term: int | None = None
        self._parts = MetaParts()
        # The tables propose what a new leader owes: however much that is, it is taken.
        self._begins = False
        # The files are this group's, and may be written.
        self.group: str | None = None
        self.index = 0
        # The last META entry of this group that was applied: 0 says that the log holds no metadata yet.
        self.last_meta = 0
        self._restamped = self._clock.monotonic()
        role.subscribe(self.role_changed)

    @property
    def leads(self) -> bool:
        """Whether this broker may propose changes."""
        return self._role.leads

    @property
    def term(self) -> int:
        """The group's term."""
        return self._role.term

    def attach(self, table: MetaTable) -> None:
        """Add a table; see MetaLog."""
        self._routes.attach(table)
        table.file.stamped_by(partial(self._stamp, table.file), None if self._log is None else self._log.wait)

    def attach_node(self, node: GroupNode) -> None:
        """Take the node that entries are proposed to."""
        self._node = node

    def propose(self, operation: Operation, done: Done | None = None) -> None:
        """Gather an operation for this turn's META entry; see MetaLog."""
        if not self._role.leads:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "this broker follows: only the leader changes metadata")
        encoded = pieces(operation)
        size = sum(map(len, encoded))
        if self._pending_bytes + size > PENDING_BYTES_MAX and not self._begins:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY, f"{self._pending_bytes} bytes of changes of metadata are not yet agreed upon"
            )
        self._pending_bytes += size
        for piece in encoded:
            if (
                not self._gathered
                or self._gathered[-1].size + len(piece) > ENTRY_BYTES_MAX
                or self._gathered[-1].payload
            ):
                self._gathered.append(_Batch())
            batch = self._gathered[-1]
            batch.encoded.append(piece)
            batch.size += len(piece)
        if done is not None:
            self._gathered[-1].dones.append(done)
        self._flush_soon(0)

    def noted(self, table: Table) -> None:
        """Every change of a group is an operation; see MetaLog."""

    async def settled(self) -> None:
        """Return when everything proposed so far is applied; see MetaLog."""
        batch = self._gathered[-1] if self._gathered else self._flying[-1] if self._flying else None
        if batch is None:
            return
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        batch.dones.append(partial(_tell, told))
        if await told != ResponseCode.SUCCESS:
            raise CommandError(ResponseCode.SYSTEM_ERROR, LOST)

    def flush(self) -> bool:
        """Propose what was gathered. To be called before the messages of a turn are proposed: they may need it.

        False when the group does not take it now; it is tried again, and what depends on it should wait or be refused.
        """
        self._flush_set = False
        while self._gathered:
            batch = self._gathered.popleft()
            payload = batch.seal()
            # First among the flying: a group of one applies it before propose_meta returns.
            self._flying.append(batch)
            refusal = (
                Refusal.NOT_LEADER
                if self._node is None
                else self._node.propose_meta(payload, partial(self._settled, batch))
            )
            if refusal is None:
                continue
            if batch in self._flying:
                self._flying.remove(batch)
                self._gathered.appendleft(batch)
            if refusal is Refusal.NOT_LEADER:
                self.drop()
            elif self._gathered:
                self._flush_soon(RETRY_SECONDS)
            return False
        return True

    def apply(self, index: int, payload: bytes) -> None:
        """Do what a committed META entry says, in every table whose file does not cover it. In the order of the log.

        Raises MetadataError when this version does not understand the entry: the member must not go on.
        """
        operations = self._parts.whole(decode(payload))
        batch = self._flying[0] if self._flying else None
        own = batch is not None and batch.payload == payload
        if own:
            self._flying.popleft()
        elif batch is not None:
            self.drop()
        if operations is None:
            if own and batch is not None:
                self._pending_bytes -= batch.size
            return
        before, self.index = self.index, max(self.index, index)
        try:
            for operation in operations:
                for table in self._routes.of(operation):
                    if index > table.file.covers:
                        table.apply(operation, own=own)
        except Exception as error:
            self.index = before  # files that are written on the way out must not say that this entry is in them
            if isinstance(error, MetadataError):
                raise
            raise MetadataError(f"META entry {index} cannot be applied: {error!r}") from error
        self.last_meta = max(self.last_meta, index)
        if own and batch is not None:
            self._pending_bytes -= batch.size
            answer_all(batch.dones, ResponseCode.SUCCESS)

    def advance(self, index: int) -> None:
        """Note that everything up to `index` is committed and that all META entries among it were applied.

        Parts whose last one has not come are not, nor is anything behind them.
        """
        if not self._parts.waits:
            self.index = max(self.index, index)

    def role_changed(self) -> None:
        """Follow the role: a new leader owes the tables their version, a deposed one forgets what it proposed."""
        term = self._role.term if self._role.leads else None
        if term == self._led_term:
            return
        if self._led_term is not None:
            self.drop()
        self._led_term = term
        if term is not None:
            first = self.last_meta == 0
            self._begins = True
            try:
                for table in self._routes.tables:
                    table.lead(first=first)
                if first and len(self._gathered) > 1:
                    # Killed before the last one is committed, it is first once more, and its tables are as they were.
                    for number, batch in enumerate(self._gathered):
                        batch.encoded.insert(0, part_head(number, len(self._gathered)))
            finally:
                self._begins = False

    def drop(self) -> None:
        """Forget what was proposed and not yet applied; everybody who waits for it is told so."""
        lost = [*self._flying, *self._gathered]
        self._flying.clear()
        self._gathered.clear()
        self._pending_bytes = 0
        for table in self._routes.tables:
            table.drop()
        for batch in lost:
            answer_all(batch.dones, ResponseCode.SYSTEM_ERROR)

    def load_stamps(self, group_id: bytes, kept_from: int) -> str | None:
        """Check the stamps of all files against the group and the first index that the log keeps.

        None when the replay of META may go on from `replay_from()`. Else why not, in words: the member then needs a
        reset, or, when the group has only just begun, `stamp_all`.
        """
        group = group_id.hex()
        for table in self._routes.tables:
            stamp, path = table.file.stamp, table.file.path
            if stamp is None and table.file.may_begin():
                continue
            if stamp is None:
                return f"{path} carries no stamp of a group: it was written by a broker without one"
            if stamp.group != group:
                return f"{path} is stamped by another group, {stamp.group}, this one is {group}"
            if stamp.applied < kept_from - 1:
                return f"{path} holds metadata up to entry {stamp.applied}, the log is kept from entry {kept_from} on"
        self.group = group
        stamps = []
        for table in self._routes.tables:
            if (stamp := table.file.stamp) is not None:
                table.file.covers = stamp.applied
                stamps.append(stamp)
        self.index = min([stamp.applied for stamp in stamps], default=0)
        self.last_meta = max([stamp.last_meta for stamp in stamps], default=0)
        return None

    def replay_from(self) -> int:
        """Return the first index whose META entry some table may lack."""
        return self.index + 1

    def stamp_all(self, group_id: bytes, index: int) -> None:
        """Take all tables as they are for the group's metadata at its bootstrap entry, and write that down.

        Raises OSError. To be called only when a bootstrap CONFIG is applied, before any META entry behind it.
        """
        self.group = group_id.hex()
        self.index = index
        self.last_meta = 0
        if self._log is not None:
            self._log.wait_here()
        for table in self._routes.tables:
            table.file.covers = index
            table.file.write_now()

    def oldest_stamp(self) -> int:
        """Return the index up to which every file, and its .bak, holds all metadata; 0 when one does not."""
        if self.group is None:
            return 0
        oldest = []
        for table in self._routes.tables:
            file = table.file
            if file.stamp is None or file.stamp.group != self.group:
                return 0
            oldest.append(file.stamp.applied)
            if file.backup_stamp is not None and file.backup_stamp.group == self.group:
                # One of another group, or none, would be refused at a start: nothing depends on it.
                oldest.append(file.backup_stamp.applied)
        return min(oldest, default=0)

    def restamp_soon(self) -> None:
        """Have the next persist() write every file: the log is to be deleted, and an old stamp needs it."""
        self._restamped = self._clock.monotonic() - RESTAMP_SECONDS

    async def persist(self, *, everything: bool = False) -> None:
        """Write the files whose tables changed, and all whose stamps have grown old, or on demand. Raises OSError.

        Large ones that were written just now rest: the log has what they lack.
        """
        if self.group is None:
            return
        now = self._clock.monotonic()
        everything = everything or now - self._restamped >= RESTAMP_SECONDS
        if everything:
            self._restamped = now
        for table in self._routes.tables:
            if table.file.rests and not everything:
                continue
            stamp = table.file.stamp
            if everything or (stamp is not None and self.index - stamp.applied >= RESTAMP_ENTRIES):
                table.file.touch()
            await table.file.flush()

    def _settled(self, batch: _Batch, fate: Fate) -> None:
        """Take an entry's fate; a committed one is answered when it is applied."""
        if fate is not Fate.COMMITTED and batch in self._flying:
            self.drop()

    def _flush_soon(self, seconds: float) -> None:
        if not self._flush_set:
            self._flush_set = True
            self.later(seconds, self._flush_again)

    def _flush_again(self) -> None:
        if self._flush_set:
            self.flush()

    def _stamp(self, file: ConfigFile) -> Stamp | None:
        # During a replay some tables are ahead of others.
        return None if self.group is None else Stamp(self.group, max(self.index, file.covers), self.last_meta)


def _tell(told: "asyncio.Future[int]", code: int) -> None:
    if not told.done():
        told.set_result(code)
