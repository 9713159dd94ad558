"""What differs between the modes of a broker, in one value that the composition root works with.

The member of a Raft group stands in broker/raft_group/mode.py, the master and the slave in
broker/master_slave/master.py. Everybody else sees only a role, a replication and a metadata log, and does not ask
which mode it is.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from broker.context import Tables
from broker.deadlines import Came
from broker.messages.delay_levels import ScheduleService
from broker.messages.pull import ForwardPull
from broker.messages.replies import Relay
from broker.messages.send_answers import Elsewhere
from broker.metadata.operations import LocalMeta
from broker.metadata.replicated import GroupMeta
from broker.metadata.request_modes import RequestModes
from broker.metadata.topics import DeleteQueues
from broker.metadata.users import UserTable
from broker.replication import Confirming, SendTimes
from broker.role import BrokerRole, MasterWatch
from remoting.command import Command
from remoting.server import Connection, Handler
from runtime.figures import Figure
from store.types import CleanReport

_log = logging.getLogger(__name__)


class Clean(Protocol):
    """Does a pass of retention; see MessageStore.clean."""

    def __call__(self, *, now: bool = False) -> CleanReport:
        """Delete what may be deleted."""
        ...


class ModeReplication(Confirming, Protocol):
    """How a mode keeps messages safe, and what the broker as a whole needs of it."""

    @property
    def pending_bytes(self) -> int:
        """Bytes taken and not yet acknowledged."""
        ...

    @property
    def times(self) -> SendTimes:
        """How long messages took to be stored."""
        ...

    @property
    def congested(self) -> bool:
        """Whether more has been taken than is stored soon: who sends much shall wait."""
        ...

    async def drain(self, timeout_seconds: float) -> bool:
        """Take nothing more and return when everything taken is acknowledged; False when that took too long."""
        ...


class BrokerParts(NamedTuple):
    """The parts of a broker that a mode works with, once they are built."""

    tables: Tables
    schedule: ScheduleService
    modes: RequestModes
    users: UserTable
    wake_pulls: Callable[[], None]
    """Answers every parked pull: who asks again may be sent elsewhere, or be served here now."""
    folder: Path
    """Where the tables are kept."""


class Mode:
    """What all modes have; a mode sets `role`, `meta`, `replication` and `clean` when it is made."""

    role: BrokerRole
    meta: LocalMeta | GroupMeta
    replication: ModeReplication
    clean: Clean
    elsewhere: Elsewhere | None = None
    forward_pull: ForwardPull | None = None
    relay: Relay | None = None
    """Finds a reply's client at another broker."""
    came: Callable[[Command], Came | None] | None = None
    """When a request came from its client, where requests come by several ways."""
    master: MasterWatch | None = None
    """Of a slave."""
    adopts = True
    """Whether what recovery found in the store decides about the tables: new topics, offsets beyond an end."""
    delete_queues: DeleteQueues | None = None
    """Where queues go by themselves when the deletion of their topic is applied."""
    ha_address = ""
    """Where slaves reach it, "host:port"; empty when none can."""
    pages: Mapping[str, Callable[[], dict[str, object]]] = {}
    """What it adds to the HTTP face: path → content."""

    def members_hosts(self) -> Collection[str]:
        """Return the addresses of those who send in their clients' name what they have judged themselves."""
        return ()

    def from_member(self, connection: Connection) -> bool:  # noqa: ARG002 # as the others
        """Tell whether a connection comes from one of them."""
        return False

    def flushed_in_thread(self, position: int) -> None:
        """Take note, in the store's flusher thread, that everything before a position is on the disk."""

    def flushed_in_loop(self, position: int) -> None:
        """Take note of the same in the loop: the kernel has synced, see store.log.flusher."""

    def worked_in_thread(self) -> None:
        """Take note, in the store's worker thread, that a job of repair is done."""

    def heard(self, master: str | None, ha_address: str | None) -> None:
        """Take note of what the NameServers say about who the group's master is; None: they know none."""

    def seeks(self) -> bool:
        """Tell whether the NameServers are to be asked for the master without delay."""
        return False

    def attach(self, parts: BrokerParts) -> None:
        """Take the parts; called once, before start()."""

    def locks_in_log(self) -> bool:
        """Tell whether everybody who reads the log of the group knows the operations of queue locks."""
        return True

    def congested(self) -> bool:
        """Tell whether who sends much shall wait; asked before each slice of what he has sent."""
        return self.replication.congested

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return what serves requests, given the handlers."""
        return table

    async def start(self, parts: AsyncExitStack) -> None:
        """Begin, when every part is built; what must be closed goes on the stack."""
        raise NotImplementedError

    async def opened(self) -> None:
        """Do what takes a broker that can be asked already, before it serves and NameServers are told."""

    async def retire(self, served: Callable[[], bool], *, again: bool) -> None:
        """Begin to stop; `served` tells whether clients are still connected, `again` that it is back at once."""

    async def persist(self) -> None:
        """Write what is only written now and then."""

    async def hand_over(self) -> bool:
        """Give the lead to another broker; tell whether this one leads no more, or need not."""
        return True

    def figures(self) -> dict[str, str]:
        """Return what this mode adds to the broker's figures (code 28)."""
        return {}

    def measures(self) -> Iterable[Figure]:
        """Return what this mode adds to the broker's metrics."""
        return ()

    def label(self) -> str:
        """Return what it is called in /v1/status."""
        raise NotImplementedError

    def clock_apart(self) -> str:
        """Return why this broker may not lead a group for its clock; "" when nothing is against it."""
        return ""

    def waits_for(self) -> str | None:
        """Return what keeps this broker from serving clients, None when nothing does."""
        return None
