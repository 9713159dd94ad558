"""broker/metadata/creation_rate.py: how fast a connection has topics and groups made by using them."""

import gc
from pathlib import Path

import pytest

from broker.metadata.consumer_groups import GroupTable
from broker.metadata.creation_rate import ADDRESS_BURSTS, ADDRESSES_MAX, CreationRate
from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig, load_broker_config
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.clock import ManualClock
from runtime.config import ConfigError
from store.config import StoreConfig


class Somebody:
    """A connection."""

    def __init__(self, host: str = "10.0.0.9") -> None:
        self.peer = (host, 1)


def taken(rate: CreationRate, who: object | None, wanted: int) -> int:
    """How many of so many are let."""
    for number in range(wanted):
        try:
            rate.take(who, f"t{number}")
        except CommandError:
            return number
    return wanted


def rate_of(burst: int, per_second: int, now: list[float]) -> CreationRate:
    live = LiveConfig(BrokerConfig(autoCreateBurst=burst, autoCreatePerSecond=per_second), StoreConfig())
    return CreationRate("topic", live, lambda: now[0])


def test_so_many_at_once_then_so_many_a_second_for_each() -> None:
    now = [0.0]
    rate = rate_of(100, 10, now)
    first, second = Somebody(), Somebody()
    assert taken(rate, first, 1000) == 100
    assert taken(rate, second, 1000) == 100
    for _ in range(3):
        now[0] += 1.0
        assert taken(rate, first, 1000) == 10
    now[0] += 3600
    assert taken(rate, first, 1000) == 100


def test_no_bound_and_the_broker_itself() -> None:
    assert taken(rate_of(1, 0, [0.0]), Somebody(), 1000) == 1000
    assert taken(rate_of(1, 1, [0.0]), None, 1000) == 1000


def test_a_bucket_goes_with_its_connection() -> None:
    rate = rate_of(100, 10, [0.0])
    for number in range(1000):
        rate.take(Somebody(f"10.0.1.{number % 250}"), "t")
    gc.collect()
    assert not rate._buckets


@pytest.mark.parametrize("host", ["10.0.0.9", "127.0.0.1", "::1", "2001:db8::1"])
def test_whoever_connects_again_and_again_is_held_by_his_address(host: str) -> None:
    now = [0.0]
    rate = rate_of(100, 10, now)
    assert sum(taken(rate, Somebody(host), 1000) for _ in range(50)) == 100 * ADDRESS_BURSTS
    for _ in range(3):
        now[0] += 1.0
        assert sum(taken(rate, Somebody(host), 1000) for _ in range(50)) == 10
    with pytest.raises(CommandError, match="its address may have 1000 made by using them, then 10 a second"):
        rate.take(Somebody(host), "t")
    # Nobody else pays for it, but for who is in the same network of IPv6.
    assert taken(rate, Somebody("10.0.0.10"), 1000) == 100
    assert taken(rate, Somebody("2001:db8::2"), 1000) == (0 if host == "2001:db8::1" else 100)


def test_the_addresses_are_bounded() -> None:
    rate = rate_of(1, 1, [0.0])
    for number in range(ADDRESSES_MAX + 100):
        rate.take(Somebody(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"), "t")
    assert len(rate._addresses) == ADDRESSES_MAX


async def test_topics_and_groups_obey_the_configuration(tmp_path: Path) -> None:
    clock = ManualClock()
    live = LiveConfig(BrokerConfig(brokerName="b", autoCreateBurst=3, autoCreatePerSecond=1), StoreConfig())
    topics = TopicTable(tmp_path / "topics.json", live, clock)
    groups = GroupTable(tmp_path / "subscriptionGroup.json", live, clock)
    who = Somebody()
    for number in range(3):
        assert topics.create_for_send(f"t{number}", "TBW102", 1, creator=who)
        assert groups.find(f"g{number}", who)
    with pytest.raises(CommandError, match=r"^.*\[OVERLOAD\]topic t3 is not created now.*autoCreatePerSecond") as busy:
        topics.create_for_send("t3", "TBW102", 1, creator=who)
    assert busy.value.code == ResponseCode.SYSTEM_BUSY
    with pytest.raises(CommandError, match=r"group g3 is not created now"):
        groups.find("g3", who)
    # What is there costs nothing, and what is asked for by request is made.
    assert topics.create_for_send("t0", "TBW102", 1, creator=who)
    assert groups.find("g0", who)
    topics.update(TopicConfig("t3"))
    groups.update(SubscriptionGroupConfig("g3"))
    clock.advance(1.0)
    assert topics.create_for_send("t4", "TBW102", 1, creator=who)
    assert groups.find("g4", who)
    await topics.close()
    await groups.close()


@pytest.mark.parametrize("text", ["autoCreateBurst=0", "autoCreatePerSecond=-1", "connectionsPerAddressMax=-1"])
def test_values_that_make_no_sense(text: str) -> None:
    key, _, value = text.partition("=")
    with pytest.raises(ConfigError, match=key):
        load_broker_config({key: value})
