"""A classic group becomes a Raft group, and a Raft group a classic one: 9117 TO_RAFT, 9118 TO_CLASSIC (R16, R2).

Not a byte of the log is converted; what changes is who may write it. Each order is for one broker, which writes the
decision down (broker/settings/decision.py) and starts again in its process; `raftmq cluster to-raft` and `to-classic`
give the orders one after the other, and may be repeated at any time: each looks first what has come about.

**To a Raft group.** The master takes nothing more (14: clients try again), has all that it took on disk, and gives its
slaves time to have it too. Then it is decided: it is the founder, of this log, which ends here. It starts again and
writes the group's first entry behind it. A slave is told only when that leader answers: it comes to *that* group (by
its id) with the log that it has, or with nothing if the log is another one.

**To a classic group.** When the group has ended in the leader's log (R2), the leader is decided to be the master. The
others are told only when that master answers: they become its slaves, and are compared with it as all slaves are.

What a crash at any step leaves, and why it is safe:

* The master, before the decision is on disk: it starts as the master that it was. Nothing has been decided, and what
  it refused meanwhile was never acknowledged.
* The master, after the decision and before the first entry is on its disk: it starts as the founder, on the same log,
  or not at all: its end was on disk before it was decided, and another end is refused
  (broker/raft_group/join_intent.py). Nobody can have followed the entry that was lost: it is offered only when it is
  durable. Slaves still wait for their master: none of them was told.
* The founder, after its first entry is on disk: the log says who is in the group, and what was said is forgotten. It
  cannot found a second time, whatever becomes of its log.
* The founder never comes back: no slave was told, or those that were hold the log to its end. They found nothing, for
  they were told to come to a group (raft/core/bootstrap.py). A person promotes a slave that was not told, or, of those
  that were, moves config/mode.json of one away and starts it as what its broker.conf says.
* A slave, before its decision: it is a slave of something that is no master any more. It is told so (9111 of a member
  says RAFT), follows nobody, takes nothing, and serves what it has. Repeating the command brings it in, however much
  later: its log is a prefix of the group's, and exactly the base, or it is put aside and copied.
* A slave, after its decision: it joins when the group's first entry continues its log, CRC chain included, and says
  and counts nothing until then. If its log is another, longer or shorter, it is put aside (<store folder>/cut) and the
  group's is copied. In between it may be killed at any point: an empty store so decided joins as any new member does.
* The leader, before the group has ended: it is a member of a smaller group, which goes on. After that and before the
  decision: a member of a group that has ended, which takes nothing; repeating the command goes on. After it: a master.
* A former follower, before its decision: it belongs to a group that removed it, or has ended: it neither votes nor
  leads, and waits. After it: a slave. What it holds above the commit point that it knew and the master lacks was never
  acknowledged, and is cut without asking; below that nothing is (broker/settings/pair_memory.py, written before the
  decision).
* Floor and reset marker of a group that is over (raft/floor, raft/reset) are removed before a decision for a new one:
  in a classic mode they mean nothing, and the log may have changed below them.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import orjson

from broker.peers import PATIENCE_SECONDS
from broker.raft_group.snapshot import MARKER
from broker.reply import ok
from broker.role import BrokerRole
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.conversion_orders import ConversionOrders, ToRaft, decoded, invalid, not_done
from broker.settings.pair_keys import SLAVE
from broker.settings.raft_keys import group_settings, raft_bind_address
from broker.settings.restart import RestartAction
from raft.protocol.config import ConfigRefused, member_number
from raft.protocol.settings import parse_peers
from remoting.client import RemotingClient
from remoting.codes import ClassicCode, RaftCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.server import Connection, Handler
from runtime.config import ConfigError, replace_config
from runtime.durable import fsync_folder
from store.files.floorfile import FLOOR_NAME
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)

# Seconds for what the master has taken to be acknowledged, to be on disk, and to be with its slaves.
DRAIN_SECONDS = 10.0
FLUSH_SECONDS = 30.0
SLAVES_SECONDS = 10.0
POLL_SECONDS = 0.005


class Drained(Protocol):
    """What is needed of how a master keeps messages safe."""

    async def drain(self, timeout_seconds: float) -> bool:
        """Take nothing more and return when everything taken is acknowledged; False when that took too long."""
        ...


class PairConversion:
    """Answers TO_RAFT on a master or slave."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        role: BrokerRole,
        client: RemotingClient,
        restart: Callable[[RestartAction], None],
        replication: Drained,
        slaves: Callable[[], list[dict[str, Any]]],
    ) -> None:
        """`slaves` tells how far they are (HaServer.status); none on a slave."""
        self._live = live
        self._store = store
        self._role = role
        self._client = client
        self._replication = replication
        self._slaves = slaves
        self._orders = ConversionOrders(restart)
        self.close = self._orders.close

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {ClassicCode.TO_RAFT: self.to_raft}

    async def to_raft(self, _connection: Connection, request: Command) -> Command:
        """9117: found a Raft group on this master's log, or come to it as its slave was."""
        order = decoded(request, ToRaft)
        keys = self._keys(order)
        config = self._live.broker
        facts: dict[str, Any] = {
            "brokerName": config.name(),
            "brokerId": config.brokerId,
            "self": order.member,
            "end": self._store.written,
            "fileBytes": self._store.file_bytes,
            "warnings": list(_foreign(keys)),
            "done": not order.check,
        }
        if order.check:
            return ok(body=orjson.dumps(facts))
        if config.brokerRole == SLAVE:
            return ok(body=orjson.dumps(facts | await self._orders.carry_out(lambda: self._join(order, keys))))
        return ok(body=orjson.dumps(facts | await self._orders.carry_out(lambda: self._found(keys))))

    def _keys(self, order: ToRaft) -> dict[str, str]:
        """Return the keys that the broker would start with; raises CommandError when it could not."""
        config = self._live.broker
        try:
            number = member_number(order.member)
        except ConfigRefused as error:
            raise invalid(str(error)) from None
        if number != config.brokerId:
            raise invalid(f"{order.member} is not this broker: its brokerId is {config.brokerId}")
        keys = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": config.name(),
            "dLegerPeers": order.peers,
            "dLegerSelfId": order.member,
        }
        try:
            settings = group_settings(replace_config(config, keys)[0], config.name())
            host = raft_bind_address(config, settings, config.bindAddress)
            with socket.create_server((host, config.raftListenPort or settings.own.port)):
                pass
        except (ConfigError, OSError) as error:
            raise invalid(f"this broker could not start as {order.member} of {order.peers}: {error}") from None
        return keys

    async def _found(self, keys: dict[str, str]) -> dict[str, Any]:
        """Become the founder. Whatever keeps it from that, it takes messages again."""
        if not self._role.leads:
            raise not_done("this master takes nothing, so its log is not the one to begin a group with: see ha-status")
        _log.warning("this master takes nothing more: its log is to begin a Raft group")
        why = "it goes on as it was, for it did not become the founder of a Raft group"
        try:
            if not await self._replication.drain(DRAIN_SECONDS):
                raise not_done(f"some sends were not acknowledged within {DRAIN_SECONDS:g} s")
            end = await self._on_disk()
            there, missing = await self._with_slaves(end)
            if not self._role.leads:
                raise not_done("it was deposed meanwhile: see ha-status")
            decided = f"`raftmq cluster to-raft` made this broker the founder of a Raft group, on its log up to {end}"
            await asyncio.to_thread(self._decide, keys, decided, founder=True, log_end=end)
            why = decided
        finally:
            self._orders.again(why)
        return {"end": end, "slavesWithAll": there, "slavesBehind": missing}

    async def _on_disk(self) -> int:
        """Have the whole log synced; return its end."""
        store, loop = self._store, asyncio.get_running_loop()
        end, until = store.written, loop.time() + FLUSH_SECONDS
        store.flush_soon(end)
        while store.flushed < end:
            if loop.time() >= until:
                raise not_done(f"the log was not on disk within {FLUSH_SECONDS:g} s")
            await asyncio.sleep(POLL_SECONDS)
        return end

    async def _with_slaves(self, end: int) -> tuple[list[str], list[str]]:
        """Give the slaves time to have everything; return the addresses of who has, and of who will have to copy."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SLAVES_SECONDS
        while True:
            slaves = self._slaves()
            behind = [slave["address"] for slave in slaves if slave["acked"] < end]
            if not behind or loop.time() >= until:
                return [slave["address"] for slave in slaves if slave["acked"] >= end], behind
            await asyncio.sleep(POLL_SECONDS)

    async def _join(self, order: ToRaft, keys: dict[str, str]) -> dict[str, Any]:
        """Come to the group that a leader leads at this moment."""
        state = await _group_state(self._client, order.leader)
        group, group_id = state.get("group"), state.get("group_id")
        if not state.get("leads") or group != self._live.broker.name() or not isinstance(group_id, str):
            raise not_done(
                f"the broker at {order.leader} does not lead a Raft group {self._live.broker.name()}: the master comes "
                "first (raftmq cluster to-raft does all in order, and may be repeated)"
            )
        why = f"`raftmq cluster to-raft` made this broker a member of the Raft group {group_id}"
        await asyncio.to_thread(self._decide, keys, why, joins=group_id)
        self._orders.again(why)
        return {"group_id": group_id}

    def _decide(self, keys: dict[str, str], why: str, **more: Any) -> None:
        forget_group(self._live.store.root)
        override.decide(self._live, keys, why=why, epoch=self._role.term, **more)


def _foreign(keys: dict[str, str]) -> Iterator[str]:
    """Yield that the others may not find this member: what they are told is no address of this machine."""
    own = next(peer for peer in parse_peers(keys["dLegerPeers"]) if peer.id == keys["dLegerSelfId"])
    try:
        with socket.create_server((own.host, 0), family=socket.AF_INET6 if ":" in own.host else socket.AF_INET):
            pass
    except OSError as error:
        yield (
            f"{own.id} is to be found at {own.address}, which is no address of the broker's machine ({error}): go on "
            "only if it leads there all the same"
        )


def forget_group(root: Path) -> None:
    """Remove what a group that is over promised about this store's log: see the module. Raises OSError."""
    gone = [root / name for name in (FLOOR_NAME, MARKER, MARKER + ".bak")]
    for path in gone:
        path.unlink(missing_ok=True)
    if gone[0].parent.is_dir():
        fsync_folder(gone[0].parent)


async def _group_state(client: RemotingClient, address: str) -> dict[str, Any]:
    """Return what a member of a group knows of it (9101), {} when there is none."""
    try:
        answer = await client.call(address, RaftCode.STATUS, timeout=PATIENCE_SECONDS)
        found = orjson.loads(bytes(answer.body))
    except (RemotingError, orjson.JSONDecodeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
