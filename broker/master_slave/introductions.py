"""Who calls himself a slave of this master, and is one: only such an address may keep the master from taking messages.

A slave says with its questions about the master's state who it is (broker/master_slave/ha_followers.py). With
haSecretFile it proves that, and is believed. Without, anybody can say it of any address. Then the address is asked
itself, and is a slave's when it answers as one of this name that follows this master, while a link at the HA port comes
from the same host: of the question or of the address, or from anywhere where the HA port has a network of its own
(brokerIP2). So one whose address this master cannot reach is never known; that it does not answer would say nothing.
"""

import logging
from collections.abc import Collection
from typing import Protocol

from broker.master_slave.known_slaves import KnownSlaves
from broker.peers import Caller, ask
from broker.settings.config import LiveConfig
from broker.settings.pair_keys import SLAVE
from broker.settings.pair_proof import SLAVE_FIELD, PairProof, Question, read_question
from remoting.address import parse_address
from remoting.admission import address_of
from remoting.command import Command
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# Addresses that are asked at a time whether they are slaves; what is said beyond that is heard when it is said again.
ASKED_MAX = 4


class SlaveLinks(Protocol):
    """What is needed of the HA port."""

    def hosts(self) -> Collection[str]:
        """Return where the slaves are that the log is pushed to."""
        ...

    def connected(self) -> Collection[str]:
        """Return where they are, and those who are about to report."""
        ...


class Introductions:
    """Hears slaves say who they are, and notes those who are; see the module."""

    def __init__(
        self,
        live: LiveConfig,
        client: Caller,
        address: str,
        slaves: KnownSlaves,
        proof: PairProof,
        incarnation: str,
        links: SlaveLinks,
    ) -> None:
        """`address` and `incarnation` are this broker's own."""
        self._live = live
        self._client = client
        self._address = address
        self._slaves = slaves
        self._proof = proof
        self._incarnation = incarnation
        self._links = links
        self._asking: set[str] = set()
        self._tasks = Tasks("introductions")

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._tasks.close()

    def heard(self, told: Question, host: str) -> None:
        """Take note of what a slave says of itself, whose proof was right if one is due; `host`: where it says it."""
        if told.address == self._address:
            return
        if self._proof.needed:
            self._note(told.address)
        elif told.address not in self._asking and len(self._asking) < ASKED_MAX and self._comes_from_link(told, host):
            if told.address in self._slaves:
                self._note(told.address)
                return
            self._asking.add(told.address)
            self._tasks.spawn(self._ask_back(told.address), "ask a slave")

    def refusal(self, host: str, request: Command) -> str | None:
        """Return why who asks from a host is no slave of this master, None when he may be one.

        A slave asks while it has a connection to the HA port. With haSecretFile that comes from the same host, or the
        request has a proof; without, whoever reaches that port gets the log itself.
        """
        connected = self._links.connected()
        if not self._proof.needed:
            return None if connected else f"{host} is no slave: nobody is connected to the HA port"
        told = read_question(request.ext.get(SLAVE_FIELD, "").encode("utf-8", "replace"))
        if host in connected or (told is not None and self._proof.introduces(self._incarnation, told)):
            return None
        return f"{host} is no slave: it does not prove that it knows the secret of haSecretFile"

    def _comes_from_link(self, told: Question, host: str) -> bool:
        linked = self._links.hosts()
        if not linked or self._live.broker.brokerIP2:
            return bool(linked)
        try:
            own, _ = parse_address(told.address)
        except ValueError:
            return False
        links = {address_of(each) or each for each in linked}
        return not links.isdisjoint({address_of(host) or host, address_of(own) or own})

    async def _ask_back(self, address: str) -> None:
        try:
            state = await ask(self._client, address)
        finally:
            self._asking.discard(address)
        if state is None or state.get("broker") != self._live.broker.name() or state.get("role") != SLAVE:
            return
        master = state.get("master")
        if isinstance(master, dict) and master.get("address") == self._address:
            self._note(address)

    def _note(self, address: str) -> None:
        if address not in self._slaves:
            _log.info("%s is a slave of this master, and may be promoted in its place one day", address)
        self._slaves.heard(address)
