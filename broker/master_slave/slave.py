"""The slave: its log and its tables are its master's, its queues and its index its own.

It serves what it has to whoever the master sends here (slaveReadEnable), and to everybody while the master is away;
it never takes a message. Which master it follows the NameServers tell, in answer to its registration.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, cast

from broker.master_slave.acting_master import LOOK_SECONDS, Acting
from broker.master_slave.fencing import deposed_body
from broker.master_slave.ha_client import HaClient
from broker.master_slave.ha_compare import LogVerdict
from broker.master_slave.ha_followers import Introduction
from broker.master_slave.ha_state import State
from broker.master_slave.master import Classic, ClassicParts
from broker.master_slave.measures import slave_figures
from broker.master_slave.metadata_copy import SlaveMeta, SlaveTables
from broker.master_slave.promotion import SlaveReplication
from broker.master_slave.queue_ends import end_before
from broker.mode import BrokerParts, ModeReplication
from broker.replication import CODES, BatchDone, Done, SendTimes
from broker.reply import ok
from broker.settings.restart import RestartAction
from broker.settings.secret_files import read_secret_files
from remoting.bodies.registry import HAClientInfo, HARuntimeInfo
from remoting.codes import ClassicCode
from remoting.command import Command
from remoting.server import Connection, Handler
from runtime.figures import Figure
from runtime.tasks import Tasks
from runtime.tls import outgoing_tls
from store.config import SYNC_FLUSH
from store.types import PendingRecord, PutResult, PutStatus

# What keeps a slave from being ready: until it is over nobody can say what the log is worth.
_UNREADY = frozenset({State.COMPARING, State.WAITING, State.REFUSED, State.CUTTING, State.ANEW})


class NoReplication:
    """Takes nothing: a slave's log is its master's. The gate refuses what would come here, with better words."""

    pending_bytes = 0
    congested = False

    def __init__(self) -> None:
        self.times = SendTimes()

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:  # noqa: ARG002 # as the others
        """Refuse a record."""
        done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE), CODES[PutStatus.SERVICE_NOT_AVAILABLE])

    def append_batch(
        self,
        records: Sequence[PendingRecord],  # noqa: ARG002 # as the others
        done: BatchDone,
        *,
        wait: bool = True,  # noqa: ARG002
        until: float = 0.0,  # noqa: ARG002
    ) -> None:
        """Refuse records."""
        done([PutResult(PutStatus.SERVICE_NOT_AVAILABLE)], CODES[PutStatus.SERVICE_NOT_AVAILABLE])

    def confirm(self, stored: PutResult, done: Done, *, wait: bool = True) -> None:  # noqa: ARG002 # as the others
        """Refuse to say."""
        done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE), CODES[PutStatus.SERVICE_NOT_AVAILABLE])

    async def drain(self, timeout_seconds: float) -> bool:  # noqa: ARG002 # as the others
        """Return at once."""
        return True


class Slave(Classic):
    """A slave."""

    # Its tables are its master's: nothing is made of what recovery found, and offsets may lie beyond its end.
    adopts = False

    def __init__(self, parts: ClassicParts) -> None:
        super().__init__(parts, leads=False)
        self.replication: ModeReplication = NoReplication()
        store, live = parts.store, parts.live
        self._introduction = Introduction(self._client, live.broker.brokerId, parts.address, self._proof)
        self._ha = HaClient(
            store,
            lambda: live.broker,
            self._introduction,
            asyncio.get_running_loop(),
            parts.threads,
            sync_flush=live.store.flushDiskType == SYNC_FLUSH,
            events=self,
            root=live.store.root,
            epoch=self._epoch,
            polling=parts.polling,
        )
        self.master = self._ha
        self._acting = Acting(live, self._client, parts.clock, lambda: self._ha.master_alive)
        self._tasks = Tasks("slave")
        # Whether the tables were ever copied since the start.
        self._has_tables = False
        self._broker: BrokerParts
        self._copies: SlaveMeta

    def flushed_in_thread(self, position: int) -> None:
        """Report to the master what is on the disk."""
        self._ha.flushed_in_thread(position)

    def attach(self, parts: BrokerParts) -> None:
        """Make what keeps the tables equal to the master's."""
        self._broker, tables = parts, parts.tables
        store = self._store
        assert store.slave is not None, "the store is a slave's"
        log = store.slave
        self._copies = SlaveMeta(
            SlaveTables(tables.topics, tables.groups, tables.offsets, parts.schedule, parts.modes, parts.users),
            self._client,
            lambda: self._live.broker,
            followed=lambda: self._ha.followed,
            log_end=lambda: log.dispatched,
            drop_queues=store.delete_topic,
            end_before=partial(end_before, store),
        )

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, and the one for being told that another was promoted: a slave takes nothing anyway."""

        def deposed(_connection: Connection, request: Command) -> Command:
            deposed_body(request, self._live.broker.name())
            return ok()

        return {**super().gate(table), int(ClassicCode.DEPOSED): cast(Handler, deposed)}

    async def start(self, parts: AsyncExitStack) -> None:
        """Look for the master, and follow it."""
        await super().start(parts)
        parts.push_async_callback(self._ha.close)
        path = self._live.broker.haSecretFile
        known = await asyncio.to_thread(read_secret_files, "haSecretFile", path)
        self._proof.take(known)
        await self._ha.start(known, outgoing_tls(self._live.broker))
        parts.push_async_callback(self._copies.close)
        self._copies.start()
        parts.push_async_callback(self._tasks.close)
        self._tasks.every(LOOK_SECONDS, self._acting.look, "acting master")

    # -- what is told to this broker

    def heard(self, master: str | None, ha_address: str | None) -> None:
        """Take note of the master that the NameServers name; one that none of them knows any more may come back."""
        if master is None or master == self._parts.address:
            return
        if master != self.role.leader_address:
            self.role.set_leader(master)
        self._ha.set_master(master, ha_address)

    def seeks(self) -> bool:
        """Tell whether the master is away, or not known: whoever takes its place is to be found soon."""
        return not self._ha.master_alive

    def master_changed(self, alive: bool) -> None:
        """Take note that the master has come or gone; see HaEvents."""
        if alive:
            self._copies.hurry()
        self._broker.wake_pulls()

    def follows(self) -> None:
        """Copy the tables of the master whose log comes from now on; see HaEvents."""
        self._copies.hurry()

    def must_restart(self, action: RestartAction) -> None:
        """Have the folder changed while nobody has it open; see HaEvents."""
        self._parts.restart(action)

    def judged(self, _verdict: LogVerdict) -> None:
        """Take note that logs were compared; see HaEvents. The client says itself what it makes of that."""

    def _epoch(self) -> int:
        """Return the epoch of the tables, which may be newer than what they were kept with."""
        self.role.set_epoch(self._broker.tables.topics.data_version.stateVersion)
        return self.role.term

    # -- what this broker tells

    def waits_for(self) -> str | None:
        """Return why the log is not to be relied upon yet; without a master it serves what it has."""
        state = self._ha.state
        if state in _UNREADY:
            return f"slave, {state.value}: {self._ha.status()['why']}"
        stale = self._ha.why_stale
        if stale is not None:
            return f"slave, {state.value}: {stale}"
        self._has_tables = self._has_tables or self._copies.synced
        if state is State.FOLLOWING and not self._has_tables:
            copies = self._copies.status()
            return (
                f"slave: the tables are not copied from the master yet. {copies['trouble'] or copies['refused'] or ''}"
            )
        return None

    def acts(self) -> bool:
        """Tell whether this slave grants queue locks in the place of its master."""
        return self._acting.acts

    def status(self) -> dict[str, Any]:
        """Return what a slave knows of itself and of its master."""
        waits = self._ha.waits_for
        self._epoch()
        return {
            **super().status(),
            "dispatched": self._store.slave.dispatched if self._store.slave is not None else 0,
            "master": self._ha.status(),
            "metadata": self._copies.status(),
            "warnings": [*([] if waits is None else [waits]), *self._introduction.warnings()],
        }

    def ha_info(self) -> HARuntimeInfo:
        """Return how far this slave is, RocketMQ's way."""
        known = self._ha.status()
        end = self._store.log_range()[1]
        connected = self._ha.state is State.FOLLOWING
        return HARuntimeInfo(
            master=False,
            masterCommitLogMaxOffset=known["max"] or 0,
            haClientRuntimeInfo=HAClientInfo(
                masterAddr=known["haAddress"],
                maxOffset=end,
                lastReadTimestamp=known["lastFrameAt"] or 0,
                lastWriteTimestamp=known["lastFrameAt"] or 0,
                masterFlushOffset=known["max"] or 0,
                activated=connected,
                isActivated=connected,
            ),
        )

    def figures(self) -> dict[str, str]:
        """Return what is told of the pair among the broker's figures."""
        known = self._ha.status()
        return {
            "brokerRole": self.label(),
            "epoch": str(self.role.term),
            "slaveState": known["state"],
            "masterAddress": self.role.leader_address or "",
            "masterBehindBytes": "" if known["behind"] is None else str(known["behind"]),
        }

    def measures(self) -> Iterable[Figure]:
        """Return the metrics of a slave."""
        return *super().measures(), *slave_figures(self._ha.status())

    def log_id(self) -> str | None:
        """Return the log's name, which is its master's."""
        return self._ha.log_id

    def follower(self) -> SlaveReplication:
        """Return the slave's part in replication."""
        return self._ha
