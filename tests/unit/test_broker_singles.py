"""broker/registration/singles.py: of many topics only those that changed are told."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.registration import singles
from remoting.bodies.registry import QueueData, TopicConfig
from remoting.codes import RequestCode
from tests.parts.register_parts import NameServer, Setting, told


@pytest.fixture
async def name_servers() -> AsyncIterator[list[NameServer]]:
    made = [NameServer(), NameServer()]
    for each in made:
        await each.server.start("127.0.0.1", 0)
    yield made
    for each in made:
        await each.server.close()


async def many(folder: Path, name_servers: list[NameServer], **values: str) -> Setting:
    """A broker with many topics that is registered."""
    setting = Setting(folder, name_servers, **values)
    setting.topics.update(*(TopicConfig(f"old-{number}", 1, 1) for number in range(singles.SINGLES_FROM)))
    await setting.registration.start()
    return setting


async def change(setting: Setting, *topics: TopicConfig) -> None:
    setting.topics.update(*topics)
    await setting.registration.announce()


async def test_of_many_topics_only_those_that_changed_are_told(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = await many(tmp_path, name_servers, brokerPermission="4")
    await change(setting, TopicConfig("T", 3, 2, perm=6, topicSysFlag=1))
    await change(setting, *(TopicConfig(f"old-{number}", 1, 1, perm=4) for number in range(singles.FEW)))
    for server in name_servers:
        assert len(server.bodies) == 1
        assert server.routes[0] == ("T", QueueData("b", 4, 3, 1, 2))
        assert {name for name, _ in server.routes[1:]} == {f"old-{number}" for number in range(singles.FEW)}
    await change(setting, *(TopicConfig(f"old-{number}", 2, 2) for number in range(singles.FEW + 1)))
    for server in name_servers:
        assert len(server.bodies) == 2
        assert server.bodies[1].topicConfigSerializeWrapper.topicConfigTable["T"].perm == 4
        assert len(server.routes) == 1 + singles.FEW
    await setting.close()


async def test_a_sign_of_life_after_single_topics_brings_the_whole_table(
    tmp_path: Path, name_servers: list[NameServer]
) -> None:
    setting = await many(tmp_path, name_servers)
    await change(setting, TopicConfig("T", 1, 1))
    await setting.registration.refresh()
    assert "T" in name_servers[0].bodies[-1].topicConfigSerializeWrapper.topicConfigTable
    await setting.close()


async def test_deletions_of_many_topics_are_told_together(
    tmp_path: Path, name_servers: list[NameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(singles, "OWED_SECONDS", 0.2)
    setting = await many(tmp_path, name_servers)
    for number in range(10):
        setting.topics.delete(f"old-{number}")
        await setting.registration.announce()
    assert len(name_servers[0].bodies) == 1
    await told(name_servers[0], 2)
    table = name_servers[0].bodies[-1].topicConfigSerializeWrapper.topicConfigTable
    assert "old-9" not in table
    assert "old-10" in table
    await setting.close()


async def test_a_name_server_that_knows_no_single_topics_gets_all(
    tmp_path: Path, name_servers: list[NameServer]
) -> None:
    setting = await many(tmp_path, name_servers)
    name_servers[0].knows_singles = False
    for number in range(2):
        await change(setting, TopicConfig(f"T{number}", 1, 1))
        assert f"T{number}" in name_servers[0].bodies[-1].topicConfigSerializeWrapper.topicConfigTable
    assert name_servers[0].codes.count(RequestCode.REGISTER_TOPIC_IN_NAMESRV) == 1
    assert [name for name, _ in name_servers[1].routes] == ["T0", "T1"]
    assert setting.registration.registered == {server.address for server in name_servers}
    await setting.close()


async def test_one_that_was_lost_gets_all(tmp_path: Path, name_servers: list[NameServer]) -> None:
    setting = await many(tmp_path, name_servers)
    setting.registration.lost(name_servers[0].address)
    await change(setting, TopicConfig("T", 1, 1))
    assert "T" in name_servers[0].bodies[-1].topicConfigSerializeWrapper.topicConfigTable
    assert [len(server.routes) for server in name_servers] == [0, 1]
    await setting.close()


async def test_R15_a_follower_tells_no_single_topics(
    tmp_path: Path, name_servers: list[NameServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(singles, "OWED_SECONDS", 0.05)
    setting = await many(tmp_path, name_servers)
    setting.role.set(8, "n2")
    await told(name_servers[0], 2)
    await change(setting, TopicConfig("T", 1, 1))
    await told(name_servers[0], 3)
    assert name_servers[0].routes == []
    await setting.close()
