"""A member of a Raft group becomes a classic broker: 9118 TO_CLASSIC. See master_slave/to_raft.py for all of it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from broker.peers import ask
from broker.reply import ok
from broker.role import MASTER_ID, BrokerRole
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.conversion_orders import ConversionOrders, ToClassic, ToRaft, decoded, invalid, not_done
from broker.settings.ha_door import check_ha_door
from broker.settings.pair_keys import ASYNC_MASTER, RAFT, SLAVE, SYNC_MASTER
from broker.settings.pair_memory import note_uncommitted_tail
from broker.settings.pair_proof import PairProof
from broker.settings.restart import RestartAction
from broker.settings.secret_files import read_secret_files
from raft.protocol.config import GroupConfig
from remoting.client import RemotingClient
from remoting.codes import ClassicCode
from remoting.command import Command
from remoting.server import Connection, Handler
from runtime.config import ConfigError, replace_config
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)


class ConvertedGroup(Protocol):
    """What is needed of a member's part in its group."""

    @property
    def config(self) -> GroupConfig | None:
        """Who belongs to it, as far as this member knows."""
        ...

    @property
    def role(self) -> BrokerRole:
        """What this member is in it."""
        ...

    def status(self) -> dict[str, Any]:
        """Return all that is known, for people."""
        ...


class GroupConversion:
    """Answers TO_CLASSIC on a member of a Raft group, and what is asked of classic brokers: it is none."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        group: ConvertedGroup,
        client: RemotingClient,
        restart: Callable[[RestartAction], None],
    ) -> None:
        self._live = live
        self._store = store
        self._group = group
        self._client = client
        self._orders = ConversionOrders(restart)
        self._proof = PairProof()
        self.close = self._orders.close

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            ClassicCode.STATUS: self.status,
            ClassicCode.TO_RAFT: self.to_raft,
            ClassicCode.TO_CLASSIC: self.to_classic,
        }

    async def start(self) -> None:
        """Read what this member proves by, to a master of the pair that the group may have been, that it took over."""
        try:
            path = self._live.broker.haSecretFile
            self._proof.take(await asyncio.to_thread(read_secret_files, "haSecretFile", path))
        except ConfigError as error:
            # The group itself has no use for it.
            _log.warning("a master of before this group, should it come back, cannot be told so: %s", error)

    def status(self, _connection: Connection, request: Command) -> Command:
        """9111: this is no master to follow, however long it was one."""
        role = self._group.role
        begin, end = self._store.log_range()
        fields = {
            "broker": self._live.broker.name(),
            "role": RAFT,
            "brokerId": role.broker_id,
            "epoch": role.term,
            "incarnation": RAFT,
            "min": begin,
            "max": end,
            "flushed": self._store.flushed,
            "fileBytes": self._store.file_bytes,
            "leads": role.leads,
            "leader": role.leader_address,
        }
        return ok(body=orjson.dumps(self._proof.answer(fields, request.body)))

    def to_raft(self, _connection: Connection, request: Command) -> Command:
        """9117: it is a member already."""
        order, own = decoded(request, ToRaft), self._live.broker.dLegerSelfId
        if order.member != own:
            raise invalid(f"this broker is the member {own} of a Raft group already, not {order.member}")
        return ok(body=orjson.dumps({"self": own, "done": False, **_named(self._group.status(), "group_id", "leads")}))

    async def to_classic(self, _connection: Connection, request: Command) -> Command:
        """9118: become a master, when the group has ended here, or the slave of the one that it ended in."""
        order = decoded(request, ToClassic)
        keys = {
            "enableDLegerCommitLog": "false",
            "brokerRole": order.role,
            "brokerId": str(order.broker_id),
        }
        try:
            made, _ = replace_config(self._live.broker, keys)
            check_ha_door(made, made.ha_door(expected=True))
        except ConfigError as error:
            raise invalid(f"this broker could not start so: {error}") from None
        if order.check:
            return ok(body=orjson.dumps({"role": order.role, "brokerId": order.broker_id, "done": False}))
        if order.role in {ASYNC_MASTER, SYNC_MASTER}:
            return ok(body=orjson.dumps(await self._orders.carry_out(lambda: self._master(order, keys))))
        return ok(body=orjson.dumps(await self._orders.carry_out(lambda: self._slave(order, keys))))

    async def _master(self, order: ToClassic, keys: dict[str, str]) -> dict[str, Any]:
        config = self._group.config
        if config is None or not config.classic:
            raise not_done(
                "the group has not ended in this log: remove the other members and let this one leave first "
                "(raftmq cluster to-classic does all in order, and may be repeated)"
            )
        why = f"`raftmq cluster to-classic` made this broker a master ({order.role})"
        epoch = self._group.role.term
        await asyncio.to_thread(lambda: override.decide(self._live, keys, why=why, epoch=epoch))
        self._orders.again(why)
        return {"role": order.role, "brokerId": MASTER_ID, "epoch": epoch, "done": True}

    async def _slave(self, order: ToClassic, keys: dict[str, str]) -> dict[str, Any]:
        store, entries = self._store, self._store.entries
        assert entries is not None, "the store is a member's"
        if self._group.role.leads:
            raise not_done("this member leads the group: it becomes the master, or hands the lead over first")
        state = await ask(self._client, order.master) or {}
        end, epoch = state.get("max"), state.get("epoch")
        commit = entries.end_position(entries.commit)
        # Of the log: a member that was left alone may have come to a term in which nothing was written.
        term = entries.term(entries.commit) or 0
        if state.get("role") not in {ASYNC_MASTER, SYNC_MASTER} or not isinstance(end, int) or type(epoch) is not int:
            raise not_done(
                f"no master answers at {order.master} yet: the group's leader becomes it first (raftmq cluster "
                "to-classic does all in order, and may be repeated)"
            )
        if state.get("broker") != self._live.broker.name() or state.get("fileBytes") != store.file_bytes:
            raise not_done(
                f"the master at {order.master} is of {state.get('broker')} with mappedFileSizeCommitLog="
                f"{state.get('fileBytes')}, this broker of {self._live.broker.name()} with {store.file_bytes}"
            )
        if end < commit or epoch < term:
            raise not_done(
                f"the log of the master at {order.master} ends at {end}, its epoch is {epoch}; the group had agreed up "
                f"to {commit} in term {term} as far as this member knows: another member's log counts"
            )
        why = f"`raftmq cluster to-classic` made this broker a slave of {order.master}"
        await asyncio.to_thread(self._decide_slave, keys, why, epoch, commit)
        self._orders.again(why)
        return {"role": SLAVE, "brokerId": order.broker_id, "commit": commit, "end": store.written, "done": True}

    def _decide_slave(self, keys: dict[str, str], why: str, epoch: int, commit: int) -> None:
        # Before the decision: a slave without this memory would cut what the group had agreed upon.
        note_uncommitted_tail(self._live.store.root, commit)
        override.decide(self._live, keys, why=why, epoch=epoch)


def _named(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names}
