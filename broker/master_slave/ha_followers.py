"""Finds slaves that have one brokerId: each says with its questions who it is, and is told who else asks.

A slave puts {"brokerId": n, "address": "host:port", "proof": …} (broker/settings/pair_proof.py) into its question about
the master's state (code 9111), and the answer lists who did so lately. RocketMQ's slaves say nothing, and its masters
list nobody: then nothing is found.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from broker.peers import Invoker
from broker.settings.pair_proof import SLAVE_FIELD, PairProof, Question, read_question
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.fastjson import read_strictly

_log = logging.getLogger(__name__)

# Slaves that are remembered, and seconds for which they are; a slave asks every haSendHeartbeatInterval (5 s).
FOLLOWERS_MAX = 64
REMEMBERED_SECONDS = 60.0
# Characters of an address.
ADDRESS_LENGTH_MAX = 300
# Seconds between two times that the log says what is wrong with them: strangers may say ever other things.
SAY_SECONDS = 10.0


class KnownSlave(msgspec.Struct, frozen=True):
    """A slave, as it says of itself."""

    brokerId: int
    address: str


class _Told(msgspec.Struct):
    incarnation: str = ""
    followers: list[KnownSlave] = []


class Followers:
    """Who asks a master."""

    def __init__(
        self, now: Callable[[], float], heard: Callable[[Question, str], bool] = lambda _told, _host: True
    ) -> None:
        """`now` is the loop's time; `heard` is told what each says, and from which host, and whether to believe it."""
        self._now = now
        self._heard = heard
        # The one that asked longest ago first.
        self._seen: dict[KnownSlave, float] = {}
        self._said = ""
        self._said_at = float("-inf")

    def asked(self, body: bytes | memoryview, host: str) -> None:
        """Take note of the body of a question from a host; what is none of a slave's says nothing."""
        told = read_question(body)
        if told is None or not 0 < len(told.address) <= ADDRESS_LENGTH_MAX or not self._heard(told, host):
            return
        follower = KnownSlave(told.brokerId, told.address)
        self._seen.pop(follower, None)
        self._seen[follower] = self._now()
        while len(self._seen) > FOLLOWERS_MAX:
            del self._seen[next(iter(self._seen))]
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
        now, words = self._now(), "; ".join(self.warnings())
        if words != self._said and now - self._said_at >= SAY_SECONDS:
            self._said, self._said_at = words, now
            if words:
                _log.error("%s", words)


class Introduction:
    """A slave's client to its master, which says who asks and hears who else does."""

    def __init__(self, client: Invoker, broker_id: int, address: str, proof: PairProof) -> None:
        self._client = client
        self._proof = proof
        # The masters' incarnations, by address, to whom its name is proved.
        self._incarnations: dict[str, str] = {}
        self._self = KnownSlave(broker_id, address)
        self._twins: list[str] = []

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:
        """See RemotingClient."""
        own, incarnation = self._self, self._incarnations.get(address, "")
        proof = self._proof.introduce(incarnation, own.brokerId, own.address) if incarnation else ""
        told = msgspec.json.encode(Question(own.brokerId, own.address, proof))
        if request.code == ClassicCode.DIGEST and proof:
            request = Command.request(request.code, None, request.body, ext={SLAVE_FIELD: told.decode()})
        if request.code != ClassicCode.STATUS:
            return await self._client.invoke(address, request, timeout)
        answer = await self._client.invoke(address, Command.request(ClassicCode.STATUS, None, told), timeout)
        if answer.code == ResponseCode.SUCCESS:
            self._hear(address, answer.body)
        return answer

    def warnings(self) -> list[str]:
        """Return what is wrong with this slave's id."""
        return [
            f"{twin} is a slave with the same brokerId, {self._self.brokerId}: the route shows one of both only; give "
            "each a brokerId of its own"
            for twin in self._twins
        ]

    def _hear(self, address: str, body: bytes | memoryview) -> None:
        try:
            told = read_strictly(body, _Told)
        except msgspec.DecodeError:
            told = _Told()
        # One master at a time.
        self._incarnations = {address: told.incarnation}
        own, others = self._self, told.followers
        twins = sorted({each.address for each in others if each.brokerId == own.brokerId} - {own.address})
        if twins != self._twins:
            self._twins = twins
            for words in self.warnings():
                _log.error("%s", words)
