"""Telling every NameServer which topics this broker has.

All of them are told at start, at once when a topic changes (changes of one moment together), at once when this broker
begins or ends to lead its group, and every registerNameServerPeriod as a sign of life. A table that has not changed is
not sent again when forceRegister=false, or when it is large: the NameServer is asked whether it knows the table's
version (code 322), which is a sign of life too.

Of a table with many topics only those that changed are told (code 217, broker/registration/singles.py). The version
that the NameServer knows stays behind by that, so the next sign of life brings it the whole table, and whatever it may
have missed. What 217 cannot say, that topics are gone, is told with the whole table too, soon, but not with each.

A member of a Raft group is brokerId 0 while it leads and the number of the member + 1 otherwise, and its version says
the term (R15): a NameServer refuses brokerId 0 to a leader of an older term than the one it knows. NameServers are
memory, a help; nothing that is acknowledged depends on them.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from broker.metadata.topics import TopicTable
from broker.registration.addresses import address_warnings
from broker.registration.body import RegistrationPiece, registration_pieces
from broker.registration.singles import (
    SINGLES_FROM,
    Owed,
    SinglesUnknown,
    TopicRequest,
    few,
    tell_topics,
    topic_requests,
)
from broker.role import MASTER_ID, BrokerRole
from broker.settings.config import LiveConfig
from remoting.bodies.registry import DataVersion
from remoting.client import RemotingClient
from remoting.codes import Perm, RequestCode
from remoting.errors import InvokeTimeout, RemotingError
from remoting.headers.registry import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

_log = logging.getLogger(__name__)

# Topics from which a table is large: it is encoded in a thread, and its version is asked for before it is sent.
LARGE_TABLE = 1000
# Seconds between two registrations that changes cause, at least; and how many times as long as the last one took.
PAUSE_MIN = 0.02
PAUSE_FACTOR = 2.0
# Seconds between attempts to reach a NameServer that does not know this broker (one that restarted, for example).
CHASE_SECONDS = 1.0
# How many times as long as the last attempt took there is none: a large table is not sent all the time.
CHASE_FACTOR = 10.0
# But no longer than this: it may have been the silence of one that is soon back.
CHASE_PAUSE_MAX = 10.0
# Seconds that a round waits for a NameServer; who needs longer is left to the chase, so that the others learn of the
# next change, and administrators (clients wait 3 s) of the end of theirs.
ROUND_SECONDS = 2.0
# Seconds that the start of the broker waits for its NameServers, and its stop for taking leave of them.
START_SECONDS = 5.0
LEAVE_SECONDS = 3.0
_READ_WRITE = int(Perm.READ | Perm.WRITE)


OnMaster = Callable[[str | None, str | None], None]
"""Told what the NameServers say of the group's master: (its address, its HA address), None: they know none.

After each round in which one answered.
"""


class Registration:
    """Keeps all NameServers informed."""

    def __init__(
        self,
        live: LiveConfig,
        role: BrokerRole,
        topics: TopicTable,
        client: RemotingClient,
        address: str,
        on_master: OnMaster = lambda _master, _ha_address: None,
    ) -> None:
        """`address` is "host:port" as clients reach this broker."""
        self._live = live
        self._role = role
        self._topics = topics
        self._client = client
        self._address = address
        self._ha_address = ""
        self._on_master = on_master
        # NameServer → what it last said of the master.
        self._masters: dict[str, tuple[str, str]] = {}
        # Not before this time are NameServers chased again.
        self._chase_at = 0.0
        self._revision = 0
        self._told = 0
        self._round: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        # NameServers that know this broker, and those whose silence has been logged.
        self.registered: set[str] = set()
        self._silent: set[str] = set()
        # What the NameServers were last told to be at once, and who is still telling them.
        self._shown = self._face()
        self._urgent: set[asyncio.Task[None]] = set()
        self._open = False
        # Whether the next round is to send the whole table, and when it does so in any case.
        self._whole = True
        self._owed = Owed(self._pay)
        self._whole_seconds = 0.0
        # NameServers that do not understand code 217.
        self._no_singles: set[str] = set()
        role.subscribe(self._role_changed)

    async def start(self, ha_address: str = "") -> None:
        """Register for the first time; returns when all have answered, or after START_SECONDS.

        `ha_address` is where slaves reach this broker, "host:port"; empty when none can.
        """
        self._ha_address = ha_address
        for warning in address_warnings(self._address, self._live.broker.namesrv_addresses()):
            _log.warning("%s", warning)
        self._open, self._shown, self._whole = True, self._face(), True
        self._revision += 1
        try:
            await asyncio.wait_for(self.announce(), START_SECONDS)
        except TimeoutError:
            _log.warning("not every NameServer has answered within %s s; it is tried again", START_SECONDS)

    def changed(self) -> None:
        """Note that a topic or permission changed; the NameServers are told soon, in the background.

        Not before start(): what a member replays changes its topics too, and nobody could reach it yet.
        """
        self._revision += 1
        if self._keeper is None and self._open:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="register")

    async def announce(self) -> None:
        """Return when every NameServer that answers knows all changes made so far."""
        target = self._revision
        while self._told < target:
            if self._round is None:
                self._round = asyncio.get_running_loop().create_task(self._tell_all(), name="register round")
            # Shielded: others may wait for the same round.
            await asyncio.shield(self._round)

    async def refresh(self) -> None:
        """Give every NameServer a sign of life; called every registerNameServerPeriod."""
        if self._deposed():
            return
        config = self._live.broker
        by_version = not config.forceRegister or len(self._topics.tables) >= LARGE_TABLE
        if not by_version or not all(await asyncio.gather(*map(self._knows, config.namesrv_addresses()))):
            await self._announce_whole()

    async def chase(self, *, seeks: bool = False) -> None:
        """Register with the NameServers that do not know this broker; called every CHASE_SECONDS.

        `seeks`: with all of them, for their answers name the group's master, which this broker looks for.
        """
        addresses = self._live.broker.namesrv_addresses()
        missing = [address for address in addresses if seeks or address not in self.registered]
        began = time.monotonic()
        if missing and self._round is None and not self._deposed() and began >= self._chase_at:
            pieces = await self._pieces()
            await asyncio.gather(*(self._tell(address, pieces) for address in missing))
            self._chase_at = began + min(CHASE_FACTOR * (time.monotonic() - began), CHASE_PAUSE_MAX)
            self._name_master()

    def lost(self, address: str) -> None:
        """Note that the connection to a NameServer ended: it has forgotten this broker, or was itself restarted."""
        self.registered.discard(address)
        self._no_singles.discard(address)
        self._masters.pop(address, None)

    async def close(self) -> None:
        """Take leave of every NameServer, so that clients are sent elsewhere at once."""
        self._open = False
        self._owed.settle()
        for task in (self._keeper, self._round, *self._urgent):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await asyncio.gather(*(self._leave(address) for address in sorted(self.registered)))

    def _role_changed(self) -> None:
        """Tell everybody at once: a round under way may hang on a NameServer that does not answer."""
        if not self._open or self._face() == self._shown:
            return
        self._shown = self._face()
        self._revision += 1
        task = asyncio.get_running_loop().create_task(self._tell_everybody(), name="register role")
        self._urgent.add(task)
        task.add_done_callback(self._urgent.discard)

    def _deposed(self) -> bool:
        """Tell whether it is a master that leads no more (R15): id 0 is another's, and it is nobody else."""
        return self._role.broker_id == MASTER_ID and not self._role.leads

    def _face(self) -> tuple[int, int]:
        """Return what this broker is in the route: its id, and for a leader the term that it leads in."""
        role = self._role
        return role.broker_id, role.term if role.leads else 0

    def _version(self) -> DataVersion:
        version = self._topics.data_version
        return msgspec.structs.replace(version, stateVersion=max(version.stateVersion, self._role.term))

    async def _keep(self) -> None:
        try:
            while self._told < self._revision:
                began = time.monotonic()
                await self.announce()
                await asyncio.sleep(max(PAUSE_MIN, PAUSE_FACTOR * (time.monotonic() - began)))
        finally:
            self._keeper = None

    def _pay(self) -> None:
        self._whole = True
        self.changed()

    async def _announce_whole(self) -> None:
        self._whole = True
        self._revision += 1
        await self.announce()

    async def _tell_all(self) -> None:
        try:
            await self._tell_changes()
        finally:
            self._round = None

    async def _tell_changes(self) -> None:
        """Tell what changed, or everything where that is cheaper or must be."""
        revision, changes, table = self._revision, self._topics.changes.take(), self._topics.tables
        role = self._role
        speaks = role.broker_id == MASTER_ID and role.leads and role.lease()
        if self._whole or len(table) < SINGLES_FROM or (speaks and (changes.all or not few(changes, table))):
            await self._tell_everybody()
            return
        if speaks and changes.names:
            config = self._live.broker
            requests = topic_requests(changes.names, table, config.name(), config.brokerPermission)
            await self._tell_some(requests)
        if self._open and (changes.gone or not speaks):
            # What others than the master say of topics, NameServers only take when there is no master.
            self._owed.owe(self._whole_seconds)
        self._told = max(self._told, revision)

    async def _tell_some(self, requests: Sequence[TopicRequest]) -> None:
        """Tell single topics to those who know the others, and everything to those who do not."""
        heard = [address for address in self._live.broker.namesrv_addresses() if address not in self._silent]
        whole = [address for address in heard if address not in self.registered or address in self._no_singles]
        told = await asyncio.gather(*(self._tell_topics(each, requests) for each in heard if each not in whole))
        whole += [address for address in told if address is not None]
        if whole:
            pieces = await self._pieces()
            await asyncio.gather(*(self._tell(address, pieces, ROUND_SECONDS) for address in whole))

    async def _tell_topics(self, address: str, requests: Sequence[TopicRequest]) -> str | None:
        """Tell a NameServer single topics; return its address when it does not understand that."""
        seconds = self._live.broker.registerBrokerTimeoutMills / 1000
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                await tell_topics(self._client, address, requests, seconds)
        except SinglesUnknown:
            self._no_singles.add(address)
            return address
        except TimeoutError:
            self._failed(address, InvokeTimeout(f"no answer within {ROUND_SECONDS} s"))
        except RemotingError as error:
            self._failed(address, error)
        return None

    async def _tell_everybody(self) -> None:
        revision, began = self._revision, time.monotonic()
        self._whole = False
        self._owed.settle()
        addresses = self._live.broker.namesrv_addresses()
        if self._deposed():
            self.registered.clear()
        elif addresses:
            pieces = await self._pieces()
            heard = [address for address in addresses if address not in self._silent]
            await asyncio.gather(*(self._tell(address, pieces, ROUND_SECONDS) for address in heard))
            self._name_master()
            self._whole_seconds = time.monotonic() - began
        self._told = max(self._told, revision)

    async def _pieces(self) -> list[RegistrationPiece]:
        """Return the registration's body, in pieces when it is long."""
        config = self._live.broker
        topics = dict(self._topics.tables)
        if config.brokerPermission & _READ_WRITE != _READ_WRITE:
            topics = {
                name: msgspec.structs.replace(topic, perm=topic.perm & config.brokerPermission)
                for name, topic in topics.items()
            }
        encode = partial(
            registration_pieces,
            topics,
            self._version(),
            compressed=config.compressedRegister,
            piece_topics=config.splitRegistrationSize if config.enableSplitRegistration else None,
        )
        return await asyncio.to_thread(encode) if len(topics) >= LARGE_TABLE else encode()

    async def _tell(self, address: str, pieces: Sequence[RegistrationPiece], patience: float | None = None) -> None:
        """Register with one NameServer, within `patience` seconds; it knows this broker when it has every piece."""
        seconds = self._live.broker.registerBrokerTimeoutMills / 1000
        told = RegisterBrokerResponseHeader()
        try:
            async with asyncio.timeout(patience):
                for piece in pieces:
                    header = self._header(piece)
                    answer = await self._client.call(address, RequestCode.REGISTER_BROKER, header, piece.body, seconds)
                    told = answer.header(RegisterBrokerResponseHeader)
        except TimeoutError:
            self._failed(address, InvokeTimeout(f"no answer within {patience} s"))
        except RemotingError as error:
            self._failed(address, error)
        else:
            self._masters[address] = (told.masterAddr or "", told.haServerAddr or "")
            self._succeeded(address)

    def _header(self, piece: RegistrationPiece) -> RegisterBrokerRequestHeader:
        config = self._live.broker
        return RegisterBrokerRequestHeader(
            **self._names(),
            haServerAddr=self._ha_address,
            enableActingMaster=config.enableSlaveActingMaster and not config.enableDLegerCommitLog,
            compressed=piece.compressed,
            bodyCrc32=piece.crc32(),
        )

    def _names(self) -> dict[str, Any]:
        """Return who this broker is, in the words of a header."""
        config = self._live.broker
        return {
            "brokerName": config.name(),
            "brokerAddr": self._address,
            "clusterName": config.brokerClusterName,
            "brokerId": self._role.broker_id,
        }

    def _name_master(self) -> None:
        """Tell what the NameServers say of the master: the first of them, in the file's order, that knows one."""
        said = [self._masters[each] for each in self._live.broker.namesrv_addresses() if each in self._masters]
        if said:
            master, ha_address = next((each for each in said if each[0]), ("", ""))
            self._on_master(master or None, ha_address or None)

    async def _knows(self, address: str) -> bool:
        """Ask whether a NameServer has the current table; False also when it does not answer."""
        header = QueryDataVersionRequestHeader(**self._names())
        try:
            response = await self._client.call(
                address, RequestCode.QUERY_DATA_VERSION, header, self._version().encode()
            )
            return not response.header(QueryDataVersionResponseHeader).changed
        except RemotingError as error:
            self._failed(address, error)
            return False

    async def _leave(self, address: str) -> None:
        if self._role.broker_id == MASTER_ID and not self._role.lease():
            # R15: another member may lead by now, and the id be its own.
            return
        header = UnRegisterBrokerRequestHeader(**self._names())
        try:
            await self._client.call(address, RequestCode.UNREGISTER_BROKER, header, timeout=LEAVE_SECONDS)
        except RemotingError as error:
            _log.warning("cannot unregister from NameServer %s: %s", address, error)

    def _failed(self, address: str, error: Exception) -> None:
        self.registered.discard(address)
        self._masters.pop(address, None)
        if address not in self._silent:
            self._silent.add(address)
            _log.warning("cannot register with NameServer %s: %s; it is tried again", address, error)

    def _succeeded(self, address: str) -> None:
        self._silent.discard(address)
        if address not in self.registered:
            self.registered.add(address)
            _log.info("registered with NameServer %s as %s", address, self._address)
