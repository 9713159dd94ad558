"""What NameServers and other brokers say of this broker's group: who belongs to it, who leads, at which epoch."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import msgspec
import orjson

from broker.role import MASTER_ID
from broker.settings.config import LiveConfig
from broker.settings.pair_keys import SLAVE
from remoting.bodies.registry import BrokerMemberGroupBody
from remoting.codes import ClassicCode, NamesrvCode, RequestCode
from remoting.command import Body, Command
from remoting.errors import RemotingError, ResponseError
from remoting.fastjson import read_strictly
from remoting.headers.registry import GetBrokerMemberGroupRequestHeader, Header

_log = logging.getLogger(__name__)


# Seconds that a NameServer or a broker has for an answer before it counts as gone.
PATIENCE_SECONDS = 2.0


class Caller(Protocol):
    """What is needed of RemotingClient."""

    async def call(
        self, address: str, code: int, header: Header | None = None, body: Body = b"", timeout: float = 3.0
    ) -> Command:
        """Send a request and return the answer; ResponseError unless its code is SUCCESS, else RemotingError."""
        ...


class Invoker(Protocol):
    """What is needed of RemotingClient where an answer's code is looked at."""

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:
        """Send a request and return the answer, whatever its code. Raises InvokeError."""
        ...


class Remembered(msgspec.Struct, frozen=True):
    """What a NameServer of ours remembers of a broker name; see namesrv/epochs.py."""

    epoch: int = 0
    holder: str = ""
    members: dict[int, str] = {}


class Known(NamedTuple):
    """What one NameServer knows of a broker group."""

    members: dict[int, str]
    """brokerId → address of who is registered."""
    remembered: Remembered


async def members(live: LiveConfig, client: Caller) -> dict[str, dict[int, str]]:
    """Return who belongs to this broker's group at each NameServer that answers: brokerId → address."""
    config = live.broker
    header = GetBrokerMemberGroupRequestHeader(clusterName=config.brokerClusterName, brokerName=config.name())

    async def asked(address: str) -> tuple[str, dict[int, str]] | None:
        try:
            answer = await client.call(address, RequestCode.GET_BROKER_MEMBER_GROUP, header, timeout=PATIENCE_SECONDS)
            return address, BrokerMemberGroupBody.decode(answer.body).brokerMemberGroup.brokerAddrs
        except RemotingError as error:
            _log.debug("NameServer %s does not tell the members: %s", address, error)
            return None

    return dict(found for found in await _all(asked(each) for each in config.namesrv_addresses()) if found)


async def group_known(live: LiveConfig, client: Caller) -> list[Known]:
    """Return what each NameServer that answers knows, and remembers, of this broker's group."""
    body = msgspec.json.encode({"broker": live.broker.name()})

    async def remembered(address: str) -> Remembered:
        try:
            answer = await client.call(address, NamesrvCode.REMEMBERED, body=body, timeout=PATIENCE_SECONDS)
            return read_strictly(answer.body, Remembered)
        except (RemotingError, msgspec.DecodeError) as error:
            # RocketMQ's remember nothing.
            _log.debug("NameServer %s tells no epochs: %s", address, error)
            return Remembered()

    tables = await members(live, client)
    return list(map(Known, tables.values(), await _all(remembered(each) for each in tables)))


def holders(tables: Iterable[dict[int, str]], own: str) -> set[str]:
    """Return who stands as master in any of these tables, apart from this broker."""
    return {table[MASTER_ID] for table in tables if table.get(MASTER_ID, own) != own}


async def ask(client: Caller, address: str, body: bytes = b"") -> dict[str, Any] | None:
    """Return a broker's own state (9111), {} when it lives and tells none, as RocketMQ's; None without an answer."""
    try:
        answer = await client.call(address, ClassicCode.STATUS, body=body, timeout=PATIENCE_SECONDS)
        found = orjson.loads(bytes(answer.body))
    except ResponseError:
        return {}
    except RemotingError:
        return None
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def leads(state: dict[str, Any]) -> bool:
    """Tell whether a broker of this state is a master that takes messages."""
    return state.get("role") != SLAVE and not state.get("fenced")


def epoch_of(state: dict[str, Any]) -> int:
    """Return the epoch that a broker tells, 0 when it tells none."""
    epoch = state.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def promoting_to(state: dict[str, Any]) -> int:
    """Return the epoch of a promotion that a broker is just carrying out, 0 when it tells of none."""
    epoch = state.get("promoting")
    return epoch if isinstance(epoch, int) else 0


async def _all(asking: Iterable[Any]) -> list[Any]:
    return await asyncio.gather(*asking)
