"""introductions.py: who calls himself a slave is known as one only when he is (R15)."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker.master_slave import introductions
from broker.master_slave.introductions import Introductions
from broker.settings.pair_proof import SLAVE_FIELD, PairProof, Question
from remoting.codes import ClassicCode
from remoting.command import Command
from tests.parts.decisions import OTHER, OWN, THIRD, Setting

SLAVE_HOST = "10.0.0.4"
# What a slave of this broker says of itself.
SLAVE: dict[str, Any] = {"broker": "b", "role": "SLAVE", "master": {"address": OWN}}


class Door:
    """What hears slaves, of one broker."""

    def __init__(self, setting: Setting, *linked: str, secrets: tuple[bytes, ...] = ()) -> None:
        self.setting = setting
        self.slaves = setting.fencing.slaves
        proof = PairProof(secrets)
        links = SimpleNamespace(hosts=lambda: linked, connected=lambda: linked)
        self.introductions = Introductions(setting.live, setting.net, OWN, self.slaves, proof, "cafe", links)

    async def known(self, address: str, host: str) -> bool:
        """Whether an address is known once somebody at a host has said that it is a slave's."""
        self.introductions.heard(Question(1, address), host)
        async with asyncio.timeout(20):
            while self.introductions._asking:
                await asyncio.sleep(0)
        return address in self.slaves

    async def close(self) -> None:
        await self.introductions.close()
        await self.slaves.close()


@pytest.mark.parametrize(
    ("linked", "host", "keys", "known"),
    [
        # Two frames of a stranger, where there is no slave; and where there is one.
        ((), "10.0.0.66", {}, False),
        (("10.0.0.7",), "10.0.0.66", {}, False),
        # It asks from where its link comes, or is there by its address.
        ((SLAVE_HOST,), SLAVE_HOST, {}, True),
        (("::ffff:10.0.0.4",), "10.0.0.66", {}, True),
        (("10.0.0.7",), "10.0.0.7", {}, True),
        # The HA port has a network of its own: where a link comes from says nothing.
        (("192.168.0.4",), SLAVE_HOST, {"brokerIP2": "192.168.0.1"}, True),
        ((), SLAVE_HOST, {"brokerIP2": "192.168.0.1"}, False),
    ],
)
async def test_R15_a_slave_without_a_secret_must_have_a_link_from_its_host(
    tmp_path: Path, linked: tuple[str, ...], host: str, keys: dict[str, str], known: bool
) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2, **keys)
    setting.net.states[OTHER] = SLAVE
    door = Door(setting, *linked)
    assert await door.known(OTHER, host) is known
    # Who cannot be a slave is not even asked.
    assert setting.net.asked[OTHER] == int(known)
    await door.close()


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {**SLAVE, "broker": "another"},
        {**SLAVE, "role": "ASYNC_MASTER"},
        {**SLAVE, "master": None},
        {**SLAVE, "master": {"address": THIRD}},
    ],
)
async def test_R15_the_address_itself_must_say_that_it_follows(tmp_path: Path, state: dict[str, Any] | None) -> None:
    setting = Setting(tmp_path, slave=False)
    if state is not None:
        setting.net.states[OTHER] = state
    door = Door(setting, SLAVE_HOST)
    assert not await door.known(OTHER, SLAVE_HOST)
    # It says it again, and is one by then.
    setting.net.states[OTHER] = SLAVE
    assert await door.known(OTHER, SLAVE_HOST)
    asked = setting.net.asked[OTHER]
    assert await door.known(OTHER, SLAVE_HOST)
    assert setting.net.asked[OTHER] == asked, "whom it knows it does not ask"
    await door.close()


async def test_R15_with_a_secret_the_proof_is_enough(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    door = Door(setting, secrets=(b"x" * 16,))
    assert await door.known(OTHER, "10.0.0.66")
    assert not setting.net.asked
    assert not await door.known(OWN, "10.0.0.66")
    await door.close()


async def test_strangers_cannot_have_everybody_asked_at_once(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    door = Door(setting, SLAVE_HOST)
    for number in range(3 * introductions.ASKED_MAX):
        door.introductions.heard(Question(1, f"10.0.1.{number}:1"), SLAVE_HOST)
    assert len(door.introductions._asking) == introductions.ASKED_MAX
    assert not await door.known("no address", "10.0.0.66")
    await door.close()
    assert setting.net.asked.total() <= introductions.ASKED_MAX


@pytest.mark.parametrize(
    ("secrets", "linked", "host", "proof", "taken"),
    [
        ((), (), SLAVE_HOST, None, False),
        ((), ("10.0.0.7",), SLAVE_HOST, None, True),
        ((b"x" * 16,), (), SLAVE_HOST, None, False),
        ((b"x" * 16,), ("10.0.0.7",), SLAVE_HOST, None, False),
        ((b"x" * 16,), (SLAVE_HOST,), SLAVE_HOST, None, True),
        ((b"x" * 16,), (), SLAVE_HOST, b"x" * 16, True),
        ((b"x" * 16,), (), SLAVE_HOST, b"y" * 16, False),
    ],
)
async def test_who_may_have_the_log_read(
    tmp_path: Path, secrets: tuple[bytes, ...], linked: tuple[str, ...], host: str, proof: bytes | None, taken: bool
) -> None:
    door = Door(Setting(tmp_path, slave=False), *linked, secrets=secrets)
    told = Question(1, OTHER, PairProof((proof,)).introduce("cafe", 1, OTHER) if proof else "")
    request = Command.request(ClassicCode.DIGEST, ext={SLAVE_FIELD: msgspec.json.encode(told).decode()})
    why = door.introductions.refusal(host, request)
    assert (why is None) is taken
    if why is not None:
        assert why.startswith(f"{host} is no slave: ")
    await door.close()
