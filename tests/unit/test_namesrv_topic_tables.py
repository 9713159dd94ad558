"""namesrv/topic_tables.py and names: what a registration may make a NameServer keep, in bytes."""

import random
from dataclasses import replace
from typing import Any

import pytest

from namesrv.routes import NAME_CHARS_MAX, Address, BrokerRegistration, RouteTable
from namesrv.topic_tables import BYTES_MAX, TopicTables, size_of, topic_bytes
from remoting.bodies.registry import DataVersion, QueueData, TopicConfig
from remoting.errors import CommandError
from runtime.clock import ManualClock

MEBIBYTE = 1024 * 1024


def table_of(broker_bytes_max: int = MEBIBYTE, bytes_max: int = BYTES_MAX, brokers_max: int = 10) -> RouteTable:
    return RouteTable(
        ManualClock(),
        topics_per_broker_max=200_000,
        brokers_max=brokers_max,
        epochs_max=1000,
        broker_bytes_max=broker_bytes_max,
        bytes_max=bytes_max,
    )


def claim(name: str = "a", count: int = 0, length: int = 1000, **changes: Any) -> BrokerRegistration:
    topics = {f"{number:0{length}}": TopicConfig(f"{number:0{length}}") for number in range(count)}
    fields = {"cluster": "C", "broker_name": name, "broker_id": 0, "address": f"{name}:1", "topics": topics}
    return BrokerRegistration(**{**fields, **changes})


def test_long_names_of_topics_have_a_bound_for_each_broker() -> None:
    table = table_of()
    table.register(claim(count=900))
    with pytest.raises(CommandError, match="for the topics of a are more than brokerBytesMax") as refused:
        table.register(claim(count=1000, version=DataVersion(2)))
    assert refused.value.code == 1
    assert len(table.queues["a"]) == 900
    table.register(claim("b", count=900))
    with pytest.raises(CommandError, match="brokerBytesMax"):
        table.register_topic("x" * MEBIBYTE, [QueueData("b", 4, 6, 0, 4)])


def test_all_together_have_one_too() -> None:
    table = table_of(bytes_max=2 * MEBIBYTE)
    table.register(claim("a", count=900))
    table.register(claim("b", count=900))
    with pytest.raises(CommandError, match="of all brokers are more than routeBytesMax"):
        table.register(claim("c", count=900))
    table.unregister(Address("C", "a:1"), "a")
    table.register(claim("c", count=900))


def test_what_is_dropped_makes_room() -> None:
    table = table_of()
    table.register(claim(count=900))
    others = {f"{number:01001}": TopicConfig("") for number in range(900)}
    with pytest.raises(CommandError, match="brokerBytesMax"):
        table.register(claim(topics=others, version=DataVersion(2)))
    table.register(claim(topics=others, version=DataVersion(2)), delete_missing=True)
    assert table.queues["a"].keys() == others.keys()


def test_mappings_of_static_topics_are_counted() -> None:
    table = table_of()
    small = {"t": {"topic": "t", "currIdMap": {"0": 1}}}
    table.register(claim(mappings=small))
    # 3 bytes of JSON for each, 64 and more of memory.
    large: dict[str, Any] = {"u": {"topic": "u", "currIdMap": [[] for _ in range(20_000)]}}
    with pytest.raises(CommandError, match="brokerBytesMax"):
        table.register(claim(mappings=large, version=DataVersion(2)))
    assert table.topics.mappings["a"] == small


def test_counting_what_is_far_too_large_ends() -> None:
    assert 1000 < size_of([[[]] * 1000] * 1000, 1000) < 20_000


@pytest.mark.parametrize("field", ["cluster", "broker_name", "address", "ha_address", "zone", "filter_servers"])
def test_names_and_addresses_have_a_length(field: str) -> None:
    table = table_of()
    text = "x" * (NAME_CHARS_MAX + 1)
    changes: dict[str, Any] = {field: (text,) if field == "filter_servers" else text}
    with pytest.raises(CommandError, match=f"more than {NAME_CHARS_MAX} characters"):
        table.register(replace(claim(), **changes))
    assert not table.groups


def test_a_process_has_one_name_and_the_old_one_is_forgotten() -> None:
    table = table_of()
    for number in range(100):
        table.register(claim(f"name-{number}", count=2, address="10.0.0.1:1"))
    assert list(table.groups) == list(table.queues) == ["name-99"]
    assert len(table.live) == 1
    assert table.topics.total_bytes == table.topics.bytes_of("name-99")


def test_clusters_have_a_bound() -> None:
    table = table_of(brokers_max=3)
    for number in range(3):
        table.register(claim(cluster=f"c{number}", address="10.0.0.1:1"))
    table.unregister(Address("c0", "10.0.0.1:1"), "b")
    with pytest.raises(CommandError, match="brokersMax"):
        table.register(claim(cluster="c3", address="10.0.0.1:1"))


def test_the_count_is_what_is_there_whatever_happens() -> None:
    chance = random.Random(7)
    tables = TopicTables(topics_max=1000)
    for _ in range(3000):
        broker, topic = chance.choice("ab"), chance.choice(["t", "tt", "ttt", "tttt"])
        act = chance.randrange(6)
        if act == 0:
            tables.drop(broker, topic)
        elif act == 1:
            tables.drop_queues(broker, [topic])
        elif act == 2 and chance.random() < 0.1:
            tables.forget(broker)
        elif act == 3:
            tables.put_mappings(broker, {topic: {"n": "x" * chance.randrange(5)}})
        elif act == 4:
            tables.change_perm(broker, lambda perm: perm ^ 2)
        else:
            tables.put(broker, topic, QueueData(broker, 6, chance.randrange(3), 0, 1))
        for name in "ab":
            queues, mappings = tables.queues.get(name, {}), tables.mappings.get(name, {})
            expected = sum(map(topic_bytes, [*queues, *mappings]))
            expected += sum(size_of(mapping, 10**9) for mapping in mappings.values())
            assert tables.bytes_of(name) == expected
        assert tables.total_bytes == tables.bytes_of("a") + tables.bytes_of("b")
