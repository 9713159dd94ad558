"""Finds slaves that have one brokerId: each says with its questions who it is, and is told who else asks.

A slave puts {"brokerId": n, "address": "host:port"} into its question about the master's state (code 9111), and the
answer lists who did so lately. RocketMQ's slaves say nothing, and its masters list nobody: then nothing is found.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from broker.peers import Invoker
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command

_log = logging.getLogger(__name__)

# Slaves that are remembered, and seconds for which they are; a slave asks every haSendHeartbeatInterval (5 s).
FOLLOWERS_MAX = 64
REMEMBERED_SECONDS = 60.0
BODY_BYTES_MAX = 1024


class KnownSlave(msgspec.Struct, frozen=True):
    """A slave, as it says of itself."""

    brokerId: int
    address: str


class _Told(msgspec.Struct):
    followers: list[KnownSlave] = []


class Followers:
    """Who asks a master."""

    def __init__(self, now: Callable[[], float], heard: Callable[[str], None] = lambda _address: None) -> None:
        """`now` is the loop's time; `heard` is told the address of each that asks."""
        self._now = now
        self._heard = heard
        # The one that asked longest ago first.
        self._seen: dict[KnownSlave, float] = {}
        self._said = ""

    def asked(self, body: bytes | memoryview) -> None:
        """Take note of the body of a question; what is none of a slave's says nothing."""
        if not 0 < len(body) <= BODY_BYTES_MAX:
            return
        try:
            follower = msgspec.json.decode(body, type=KnownSlave)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self._seen.pop(follower, None)
        self._seen[follower] = self._now()
        while len(self._seen) > FOLLOWERS_MAX:
            del self._seen[next(iter(self._seen))]
        self._heard(follower.address)
        self._say()

    def listed(self) -> list[dict[str, Any]]:
        """Return who asked lately."""
        least = self._now() - REMEMBERED_SECONDS
        self._seen = {follower: at for follower, at in self._seen.items() if at >= least}
        return [{"brokerId": each.brokerId, "address": each.address} for each in self._seen]

    def warnings(self) -> list[str]:
        """Return what is wrong with them."""
        by_id = defaultdict(list)
        for each in self.listed():
            by_id[each["brokerId"]].append(each["address"])
        return [
            f"{' and '.join(sorted(addresses))} are slaves with one brokerId, {number}: the route shows one of them "
            "only; give each a brokerId of its own"
            for number, addresses in sorted(by_id.items())
            if len(addresses) > 1
        ]

    def _say(self) -> None:
        words = "; ".join(self.warnings())
        if words != self._said:
            self._said = words
            if words:
                _log.error("%s", words)


class Introduction:
    """A slave's client to its master, which says who asks and hears who else does."""

    def __init__(self, client: Invoker, broker_id: int, address: str) -> None:
        self._client = client
        self._self = KnownSlave(broker_id, address)
        self._twins: list[str] = []

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:
        """See RemotingClient."""
        if request.code != ClassicCode.STATUS:
            return await self._client.invoke(address, request, timeout)
        told = Command.request(ClassicCode.STATUS, None, msgspec.json.encode(self._self))
        answer = await self._client.invoke(address, told, timeout)
        if answer.code == ResponseCode.SUCCESS:
            self._hear(answer.body)
        return answer

    def warnings(self) -> list[str]:
        """Return what is wrong with this slave's id."""
        return [
            f"{twin} is a slave with the same brokerId, {self._self.brokerId}: the route shows one of both only; give "
            "each a brokerId of its own"
            for twin in self._twins
        ]

    def _hear(self, body: bytes | memoryview) -> None:
        try:
            others = msgspec.json.decode(body, type=_Told).followers
        except (msgspec.DecodeError, UnicodeDecodeError):
            others = []
        own = self._self
        twins = sorted({each.address for each in others if each.brokerId == own.brokerId} - {own.address})
        if twins != self._twins:
            self._twins = twins
            for words in self.warnings():
                _log.error("%s", words)
