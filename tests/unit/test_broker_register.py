"""broker/registration/registration.py: who is told what, how often, and what is suspicious about an address."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.master_slave.role import ClassicRole
from broker.registration import body as register_body
from broker.registration import registration as register
from broker.registration.addresses import address_warnings, listening_warnings
from broker.registration.registration import Registration
from broker.settings.config import load_broker_config
from remoting.bodies.registry import TopicConfig
from remoting.codes import Perm, RequestCode
from remoting.server import RemotingServer
from tests.parts.register_parts import NameServer, Setting, told


@pytest.fixture
async def name_servers() -> AsyncIterator[list[NameServer]]:
    made = [NameServer(), NameServer()]
    for each in made:
        await each.server.start("127.0.0.1", 0)
    yield made
    for each in made:
        await each.server.close()


async def test_all_are_told_at_start_and_at_the_end(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers)
    await setting.registration.start()
    await setting.close()
    for server in name_servers:
        assert server.codes == [RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER]
        assert (server.headers[0].brokerAddr, server.headers[0].brokerName) == ("192.0.2.1:10911", "b")
        assert "TBW102" in server.bodies[0].topicConfigSerializeWrapper.topicConfigTable


async def test_nobody_is_told_before_the_broker_can_be_reached(tmp_path: Path, name_servers: list[NameServer]) -> None:
    """A member replays its topics before it listens."""
    setting = Setting(tmp_path, name_servers)
    setting.topics.update(TopicConfig("T", 1, 1))
    await asyncio.sleep(0.05)
    assert [server.codes for server in name_servers] == [[], []]
    await setting.registration.start()
    assert "T" in name_servers[0].bodies[0].topicConfigSerializeWrapper.topicConfigTable
    await setting.close()


async def test_changes_are_told_at_once_and_together(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers)
    await setting.registration.start()
    for number in range(50):
        setting.topics.update(TopicConfig(f"T{number}", 1, 1))
    await setting.registration.announce()
    server = name_servers[0]
    assert "T49" in server.bodies[-1].topicConfigSerializeWrapper.topicConfigTable
    assert len(server.bodies) < 10
    await setting.close()


async def test_compression_and_the_brokers_permission(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers, compressedRegister="true", brokerPermission="4")
    setting.topics.update(TopicConfig("T", 1, 1, 6))
    await setting.registration.start()
    assert name_servers[0].headers[-1].compressed
    assert name_servers[0].bodies[-1].topicConfigSerializeWrapper.topicConfigTable["T"].perm == Perm.READ
    await setting.close()


async def test_an_unchanged_table_is_not_sent_again(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers, forceRegister="false")
    await setting.registration.start()
    await setting.registration.refresh()
    assert name_servers[0].codes == [RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION]
    name_servers[0].changed = True
    await setting.registration.refresh()
    assert name_servers[0].codes[-1] == RequestCode.REGISTER_BROKER
    await setting.close()


async def test_a_forced_registration_sends_everything(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers)
    await setting.registration.start()
    await setting.registration.refresh()
    assert name_servers[0].codes == [RequestCode.REGISTER_BROKER] * 2
    await setting.close()


async def test_a_large_table_goes_by_its_version(
    tmp_path: Path, name_servers: list[NameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "LARGE_TABLE", 2)
    monkeypatch.setattr(register_body, "COMPRESS_BYTES", 100)
    setting = Setting(tmp_path, name_servers)
    await setting.registration.start()
    assert name_servers[0].headers[0].compressed
    await setting.registration.refresh()
    assert name_servers[0].codes == [RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION]
    await setting.close()


async def test_a_name_server_that_was_lost_is_chased(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers)
    await setting.registration.start()
    await setting.registration.chase()
    assert len(name_servers[0].codes) == 1
    setting.registration.lost(name_servers[0].address)
    await setting.registration.chase()
    assert [len(server.codes) for server in name_servers] == [2, 1]
    await setting.close()


async def test_one_that_does_not_answer_does_not_hold_up_the_start(
    tmp_path: Path, name_servers: list[NameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "START_SECONDS", 0.3)
    silent = RemotingServer({RequestCode.REGISTER_BROKER: lambda *_: None}, name="silent")
    await silent.start("127.0.0.1", 0)
    setting = Setting(tmp_path, [])
    setting.live.update({"namesrvAddr": f"127.0.0.1:{silent.port};{name_servers[0].address}"})
    await setting.registration.start()
    # On a busy machine the other one may hear of it only when the start has given up waiting.
    async with asyncio.timeout(20):
        while not setting.registration.registered:
            await asyncio.sleep(0.001)
    assert setting.registration.registered == {name_servers[0].address}
    await setting.close()
    await silent.close()


@pytest.mark.parametrize(
    ("address", "name_server", "suspicious"),
    [
        ("127.0.0.1:10911", "192.0.2.5:9876", True),
        ("172.17.0.2:10911", "192.0.2.5:9876", True),
        ("192.0.2.1:10911", "192.0.2.5:9876", False),
        ("127.0.0.1:10911", "127.0.0.1:9876", False),
        ("127.0.0.1:10911", "localhost:9876", False),
        ("broker.example:10911", "192.0.2.5:9876", False),
    ],
)
def test_suspicious_addresses(address: str, name_server: str, suspicious: bool) -> None:
    assert bool(address_warnings(address, (name_server,))) is suspicious


async def test_R15_a_change_of_role_is_told_at_once_with_id_and_term(
    tmp_path: Path, name_servers: list[NameServer]
) -> None:
    setting = Setting(tmp_path, name_servers)
    setting.role.set(2, "n0")
    await setting.registration.start()
    for name_server in name_servers:
        await told(name_server, 1)
    setting.role.set(7, "n1")
    for name_server in name_servers:
        await told(name_server, 2)
        assert [header.brokerId for header in name_server.headers[-1:]] == [0]
        assert name_server.bodies[-1].topicConfigSerializeWrapper.dataVersion.stateVersion == 7
    setting.role.set(8, "n2")
    for name_server in name_servers:
        await told(name_server, 3)
        assert name_server.headers[-1].brokerId == 2
    await setting.close()


async def test_R15_a_term_that_changes_nothing_for_clients_is_not_told_at_once(
    tmp_path: Path, name_servers: list[NameServer]
) -> None:
    setting = Setting(tmp_path, name_servers)
    setting.role.set(2, "n0")
    await setting.registration.start()
    before = [len(name_server.codes) for name_server in name_servers]
    setting.role.set(3, "n2")
    await asyncio.sleep(0)
    assert [len(name_server.codes) for name_server in name_servers] == before
    await setting.close()


async def test_R15_a_leader_without_a_lease_does_not_unregister(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers)
    await setting.registration.start()
    setting.role.node.lease = False
    await setting.close()
    assert all(RequestCode.UNREGISTER_BROKER not in name_server.codes for name_server in name_servers)


async def test_R15_a_deposed_master_registers_nowhere_any_more(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers)
    role = ClassicRole(0, epoch=2)
    registration = Registration(setting.live, role, setting.topics, setting.client, "192.0.2.1:10911")
    setting.registration = registration
    await registration.start()
    assert registration.registered
    before = [len(name_server.codes) for name_server in name_servers]
    role.fence("192.0.2.2:10911 was promoted")
    setting.topics.update(TopicConfig("T", 1, 1))
    await registration.announce()
    await registration.refresh()
    await registration.chase(seeks=True)
    await registration.close()
    assert [len(name_server.codes) for name_server in name_servers] == before
    assert registration.registered == set()
    await setting.close()


async def test_the_version_never_falls_when_a_broker_leaves_its_group(
    tmp_path: Path, name_servers: list[NameServer]
) -> None:
    setting = Setting(tmp_path, name_servers)
    setting.topics.data_version.stateVersion = 9
    await setting.registration.start()
    assert name_servers[0].bodies[-1].topicConfigSerializeWrapper.dataVersion.stateVersion == 9
    await setting.close()


async def test_the_master_is_the_one_that_the_first_name_server_with_an_answer_names(
    tmp_path: Path, name_servers: list[NameServer]
) -> None:
    setting = Setting(tmp_path, name_servers)
    heard = setting.heard
    await setting.registration.start("192.0.2.1:10912")
    assert heard == [(None, None)]
    assert name_servers[0].headers[-1].haServerAddr == "192.0.2.1:10912"
    name_servers[1].master = ("192.0.2.9:10911", "192.0.2.9:10912")
    await setting.registration.refresh()
    assert heard[-1] == name_servers[1].master
    name_servers[0].master = ("192.0.2.8:10911", "192.0.2.8:10912")
    await setting.registration.refresh()
    assert heard[-1] == name_servers[0].master
    # What a NameServer said that does not answer any more is worth nothing.
    await name_servers[0].server.close()
    await setting.registration.refresh()
    assert heard[-1] == name_servers[1].master
    await setting.close()


async def test_who_seeks_its_master_asks_all_name_servers_again(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = Setting(tmp_path, name_servers)
    await setting.registration.start()
    await setting.registration.chase()
    assert [len(server.bodies) for server in name_servers] == [1, 1]
    await setting.registration.chase(seeks=True)
    assert [len(server.bodies) for server in name_servers] == [2, 2]
    await setting.close()


FAR = {
    "enableDLegerCommitLog": "true",
    "dLegerPeers": "n0-192.0.2.1:40911;n1-192.0.2.2:40911;n2-192.0.2.3:40911",
    "dLegerSelfId": "n1",
    "raftSecretFile": "secret",
}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, []),
        ({"brokerIP1": "127.0.0.1"}, []),
        ({"brokerIP1": "192.0.2.1"}, ["brokerIP1=192.0.2.1 is told to others, but only this machine reaches bind"]),
        ({"brokerIP1": "broker.example", "bindAddress": "::1"}, ["brokerIP1=broker.example is told to others"]),
        ({"brokerIP2": "192.0.2.1"}, ["brokerIP2=192.0.2.1 is told to others"]),
        ({"brokerIP1": "192.0.2.1", "bindAddress": "0.0.0.0"}, []),
        ({"bindAddress": "192.0.2.1"}, []),
        (FAR, ["dLegerPeers has this member at 192.0.2.2, but its port for the others is opened at 127.0.0.1"]),
        ({**FAR, "bindAddress": "192.0.2.2"}, []),
        ({**FAR, "raftBindAddress": "0.0.0.0"}, []),
    ],
)
def test_what_is_told_to_others_and_reached_by_nobody_is_said_at_start(keys: dict[str, str], said: list[str]) -> None:
    config, _, _ = load_broker_config(keys)
    found = list(listening_warnings(config))
    assert len(found) == len(said)
    assert all(words.startswith(begin) for words, begin in zip(found, said, strict=True))
    assert all("set bindAddress to that address, or to 0.0.0.0" in words for words in found)
