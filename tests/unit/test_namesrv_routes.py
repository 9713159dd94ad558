"""The NameServer's tables: who is registered, where topics live, who is forgotten."""

from typing import Any

import pytest

from namesrv import lists
from namesrv.routes import Address, BrokerRegistration, Registered, RouteTable
from remoting.bodies.registry import BrokerData, DataVersion, QueueData, TopicConfig
from remoting.errors import CommandError
from runtime.clock import ManualClock

V1 = DataVersion(1, 0, 100)
V2 = DataVersion(2, 0, 200)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> RouteTable:
    return RouteTable(clock, topics_per_broker_max=200_000, brokers_max=5, epochs_max=10)


def topics(*names: str, perm: int = 6, flag: int = 0) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, 4, 8, perm, topicSysFlag=flag) for name in names}


def claim(broker_id: int = 0, address: str = "", **changes: Any) -> BrokerRegistration:
    fields: dict[str, Any] = {
        "cluster": "C",
        "broker_name": "a",
        "broker_id": broker_id,
        "address": address or f"10.0.0.{broker_id}:10911",
        "ha_address": f"10.0.0.{broker_id}:10912",
        "version": V1,
        "topics": topics("t", "u"),
        "acting_master": False,
        "link": f"link-{broker_id}",
    }
    return BrokerRegistration(**{**fields, **changes})


def addresses(table: RouteTable, topic: str = "t") -> dict[int, str]:
    route = table.route(topic)
    return {} if route is None else route.brokerDatas[0].brokerAddrs


def perm(table: RouteTable, topic: str = "t") -> int:
    route = table.route(topic)
    assert route is not None
    return route.queueDatas[0].perm


def test_a_registered_topic_has_a_route(table: RouteTable) -> None:
    table.register(claim(topics=topics("t", "u", perm=7, flag=1)))
    route = table.route("t")
    assert route is not None
    assert route.brokerDatas == [BrokerData({0: "10.0.0.0:10911"}, "a", "C")]
    assert route.queueDatas == [QueueData("a", 7, 4, 1, 8)]
    assert route.filterServerTable == {}
    assert table.route("unknown") is None


def test_a_topic_on_two_groups_has_both_in_its_route(table: RouteTable) -> None:
    table.register(claim())
    table.register(claim(address="10.0.1.0:1", broker_name="b", topics=topics("t", "x")))
    route = table.route("t")
    assert route is not None
    assert sorted(group.brokerName for group in route.brokerDatas) == ["a", "b"]
    assert sorted(queue.brokerName for queue in route.queueDatas) == ["a", "b"]
    assert lists.all_topics(table).topicList == ["t", "u", "x"]


def test_the_routes_given_out_are_not_the_tables_own(table: RouteTable) -> None:
    table.register(claim())
    addresses(table).clear()
    assert addresses(table) == {0: "10.0.0.0:10911"}


def test_topics_add_up_over_the_parts_of_a_split_registration(table: RouteTable) -> None:
    table.register(claim(topics=topics("t", "u")))
    table.register(claim(topics=topics("v", "w"), version=V2))
    table.register(claim(topics=topics("x"), version=DataVersion(3, 0, 300)))
    assert lists.all_topics(table).topicList == ["t", "u", "v", "w", "x"]


def test_a_changed_table_replaces_what_was_known_of_its_topics(table: RouteTable) -> None:
    table.register(claim())
    table.register(claim(topics=topics("t", perm=4), version=V2))
    assert perm(table, "t") == 4
    assert perm(table, "u") == 6


def test_topics_that_a_registration_lacks_go_only_when_wanted(table: RouteTable) -> None:
    table.register(claim())
    table.register(claim(topics=topics("t", "v"), version=V2))
    assert table.route("u") is not None
    table.register(claim(topics=topics("t", "v"), version=V2), delete_missing=True)
    assert table.route("u") is None


def test_one_topic_of_an_unknown_broker_is_refused(table: RouteTable) -> None:
    with pytest.raises(CommandError) as refused:
        table.register(claim(topics=topics("t")))
    assert refused.value.code == 1
    assert "register broker failed" in refused.value.remark
    assert not table.groups
    assert not table.live
    assert not table.clusters


def test_a_slave_is_told_its_master(table: RouteTable) -> None:
    assert table.register(claim(1)) == Registered()
    assert table.register(claim(0)) == Registered()
    assert table.register(claim(1)) == Registered("10.0.0.0:10911", "10.0.0.0:10912")
    assert addresses(table) == {0: "10.0.0.0:10911", 1: "10.0.0.1:10911"}


def test_only_the_masters_topics_count(table: RouteTable) -> None:
    table.register(claim(0))
    table.register(claim(1, topics=topics("slave-only", "t", perm=0), version=V2))
    assert table.route("slave-only") is None
    assert perm(table) == 6


@pytest.mark.parametrize(("acting", "known"), [(None, False), (False, True), (True, True)])
def test_without_a_master_the_lowest_slaves_topics_count_since_5_0(
    table: RouteTable, acting: bool | None, known: bool
) -> None:
    table.register(claim(1, acting_master=acting))
    table.register(claim(2, acting_master=acting, topics=topics("of-2", "t")))
    assert (table.route("t") is not None) is known
    assert table.route("of-2") is None


def test_an_address_has_one_id(table: RouteTable) -> None:
    table.register(claim(1, address="x:1"))
    table.register(claim(0, address="x:1", version=V2))
    assert addresses(table) == {0: "x:1"}


def test_the_same_version_keeps_a_broker_alive(table: RouteTable, clock: ManualClock) -> None:
    table.register(claim())
    for _ in range(5):
        clock.advance(100)
        assert table.query_version(Address("C", "10.0.0.0:10911"), "a", 0, V1, "link-0") == (False, V1)
        assert table.expire() == []
    clock.advance(121)
    assert table.expire() == [(Address("C", "10.0.0.0:10911"), "link-0")]
    assert table.route("t") is None


def test_another_version_must_be_registered(table: RouteTable, clock: ManualClock) -> None:
    who = Address("C", "10.0.0.0:10911")
    assert table.query_version(who, "a", 0, V1, "link-0") == (True, None)
    table.register(claim())
    clock.advance(100)
    assert table.query_version(who, "a", 0, V2, "link-0") == (True, V1)
    clock.advance(21)
    assert table.expire()  # the differing version was no sign of life


def test_a_broker_that_lost_its_id_must_register_though_its_version_is_known(table: RouteTable) -> None:
    table.register(claim(0, address="old:1"))
    table.register(claim(0, address="new:1", version=DataVersion(1, 1, 0)))
    assert table.query_version(Address("C", "old:1"), "a", 0, V1, "link") == (True, V1)


def test_a_heartbeat_keeps_a_broker_alive_and_moves_it_to_its_new_connection(
    table: RouteTable, clock: ManualClock
) -> None:
    table.register(claim())
    clock.advance(119)
    table.heartbeat(Address("C", "10.0.0.0:10911"), "new-link")
    table.heartbeat(Address("C", "stranger:1"), "link")
    clock.advance(119)
    assert table.expire() == []
    assert table.disconnect("link-0") == []
    assert table.disconnect("new-link") == [Address("C", "10.0.0.0:10911")]
    assert table.route("t") is None


def test_silence_lasts_as_long_as_the_broker_said(table: RouteTable, clock: ManualClock) -> None:
    table.register(claim(silence_ms=10_000))
    clock.advance(10)
    assert table.expire() == []
    clock.advance(0.1)
    assert len(table.expire()) == 1


def test_a_closed_connection_takes_its_brokers_and_their_topics(table: RouteTable) -> None:
    table.register(claim(0, filter_servers=("f:1",)))
    table.register(claim(1))
    table.disconnect("link-0")
    assert addresses(table) == {1: "10.0.0.1:10911"}
    assert not table.filter_servers
    table.disconnect("link-1")
    assert (table.groups, table.live, table.clusters, table.queues) == ({}, {}, {}, {})


def test_a_late_close_of_the_old_connection_costs_nothing(table: RouteTable) -> None:
    table.register(claim(link="old"))
    table.register(claim(link="new"))
    assert table.disconnect("old") == []
    assert addresses(table) == {0: "10.0.0.0:10911"}


def test_unregistering_is_matched_by_address(table: RouteTable) -> None:
    table.register(claim(0, address="old:1"))
    table.register(claim(0, address="new:1", version=DataVersion(1, 1, 0)))
    table.unregister(Address("C", "old:1"), "a")
    assert addresses(table) == {0: "new:1"}
    table.unregister(Address("C", "new:1"), "a")
    assert table.route("t") is None
    table.unregister(Address("C", "new:1"), "a")


def test_a_lower_term_cannot_take_an_id_back(table: RouteTable) -> None:
    leader = claim(0, address="new:1", version=DataVersion(1, 6, 0), topics=topics("t", "u"))
    table.register(leader)
    deposed = claim(0, address="old:1", version=DataVersion(9, 5, 0), topics=topics("t", "lost"))
    # It is told who holds the id, which is how a deposed master of a classic pair learns of it.
    assert table.register(deposed) == Registered("new:1", leader.ha_address)
    assert addresses(table) == {0: "new:1"}
    assert table.route("lost") is None
    assert Address("C", "old:1") not in table.live


def test_the_same_or_a_higher_term_takes_the_id(table: RouteTable) -> None:
    table.register(claim(0, address="one:1", version=DataVersion(1, 6, 0)))
    table.register(claim(0, address="two:1", version=DataVersion(1, 6, 0)))
    assert addresses(table) == {0: "two:1"}
    table.register(claim(0, address="one:1", version=DataVersion(1, 7, 0)))
    assert addresses(table) == {0: "one:1"}


def test_a_late_claim_of_a_deposed_leader_leaves_it_registered_as_follower(table: RouteTable) -> None:
    table.register(claim(0, address="new:1", version=DataVersion(1, 6, 0)))
    table.register(claim(1, address="old:1", version=DataVersion(1, 6, 0)))
    table.register(claim(0, address="old:1", version=DataVersion(1, 5, 0)))
    assert addresses(table) == {0: "new:1", 1: "old:1"}
    assert table.live[Address("C", "old:1")].version.stateVersion == 6


def test_wiped_write_permission_lasts_until_the_version_changes(table: RouteTable) -> None:
    table.register(claim(topics=topics("t", "u", perm=7)))
    assert table.set_writable("a", writable=False) == 2
    assert perm(table) == 5
    table.register(claim(topics=topics("t", "u", "v", perm=7)))
    assert (perm(table), perm(table, "v")) == (5, 7)
    assert table.set_writable("a", writable=True) == 3
    assert perm(table) == 6
    table.set_writable("a", writable=False)
    table.register(claim(topics=topics("t", "u", perm=7), version=V2))
    assert perm(table) == 7
    assert table.set_writable("unknown", writable=False) == 0


def test_a_deleted_topic_is_gone_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    table.register(claim())
    table.register(claim(address="10.0.1.0:1", broker_name="b", cluster="D"))
    table.delete_topic("t", "D")
    route = table.route("t")
    assert route is not None
    assert [queue.brokerName for queue in route.queueDatas] == ["a"]
    table.delete_topic("t", "unknown")
    table.delete_topic("u")
    assert table.route("u") is None
    assert table.route("t") is not None


def test_topics_are_added_on_registered_brokers_only(table: RouteTable) -> None:
    table.register(claim())
    table.register_topic("new", [QueueData("a", 6, 1, 0, 1)])
    assert perm(table, "new") == 6
    table.register_topic("other", [QueueData("a", 6, 1, 0, 1), QueueData("unknown", 6, 1, 0, 1)])
    assert table.route("other") is None


def test_filter_servers_stand_by_address(table: RouteTable) -> None:
    table.register(claim(filter_servers=("f:1", "f:2")))
    route = table.route("t")
    assert route is not None
    assert route.filterServerTable == {"10.0.0.0:10911": ["f:1", "f:2"]}
    table.register(claim())
    assert not table.filter_servers


def test_mappings_of_static_topics_stand_in_the_route(table: RouteTable) -> None:
    table.register(claim(mappings={"t": {"topic": "t", "totalQueues": 2}}))
    route = table.route("t")
    assert route is not None
    assert route.topicQueueMappingByBroker == {"a": {"topic": "t", "totalQueues": 2}}
    other = table.route("u")
    assert other is not None
    assert other.topicQueueMappingByBroker is None


def test_an_acting_master_stands_as_0_without_write_permission(table: RouteTable) -> None:
    table.register(claim(0, acting_master=True))
    table.register(claim(1, acting_master=True))
    table.register(claim(2, acting_master=True))
    table.disconnect("link-0")
    assert perm(table) == 4
    route = table.route("t", acting_masters=True)
    assert route is not None
    assert route.brokerDatas[0].brokerAddrs == {0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
    assert addresses(table) == {1: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
    table.register(claim(1, acting_master=True, version=V2))
    assert perm(table) == 4


def test_without_acting_masters_a_lost_master_leaves_slaves_only(table: RouteTable) -> None:
    table.register(claim(0))
    table.register(claim(1))
    table.disconnect("link-0")
    route = table.route("t", acting_masters=True)
    assert route is not None
    assert route.brokerDatas[0].brokerAddrs == {1: "10.0.0.1:10911"}
    assert perm(table) == 6


def test_the_limit_of_brokers(table: RouteTable) -> None:
    for number in range(5):
        table.register(claim(address=f"{number}:1", broker_name=f"b{number}"))
    with pytest.raises(CommandError, match="brokersMax") as refused:
        table.register(claim(address="6:1", broker_name="b6"))
    assert refused.value.code == 1
    assert "b6" not in table.groups
    table.register(claim(address="0:1", broker_name="b0", version=V2))


def test_the_limit_of_topics(clock: ManualClock) -> None:
    table = RouteTable(clock, topics_per_broker_max=3, brokers_max=5, epochs_max=10)
    table.register(claim(topics=topics("a", "b", "c")))
    for refused_claim in (claim(topics=topics("d"), version=V2), claim(topics=topics(*"abcd"), version=V2)):
        with pytest.raises(CommandError, match="topicsPerBrokerMax"):
            table.register(refused_claim)
    with pytest.raises(CommandError, match="topicsPerBrokerMax"):
        table.register_topic("d", [QueueData("a", 6, 1, 0, 1)])
    assert lists.all_topics(table).topicList == ["a", "b", "c"]
    table.register(claim(topics=topics("d", "e", "f"), version=V2), delete_missing=True)
    assert lists.all_topics(table).topicList == ["d", "e", "f"]


@pytest.mark.parametrize("changes", [{"cluster": ""}, {"broker_name": " "}, {"filter_servers": ("f:1",) * 65}])
def test_nonsense_is_refused(table: RouteTable, changes: dict[str, Any]) -> None:
    with pytest.raises(CommandError):
        table.register(claim(**changes))
    assert not table.live


def test_topic_lists(table: RouteTable) -> None:
    table.register(claim(topics={**topics("unit", flag=1), **topics("both", flag=3), **topics("sub", flag=2)}))
    table.register(claim(address="10.0.1.0:1", broker_name="b", cluster="D", topics=topics("x", "sub")))
    assert lists.topics_of_cluster(table, "D").topicList == ["sub", "x"]
    assert lists.topics_of_cluster(table, "unknown").topicList == []
    system = lists.system_topics(table)
    assert system.topicList == ["C", "D", "a", "b"]
    assert system.brokerAddr == "10.0.0.0:10911"
    assert lists.unit_topics(table).topicList == ["both", "unit"]
    assert lists.unit_subscription_topics(table).topicList == ["both", "sub"]
    assert lists.unit_subscription_only_topics(table).topicList == ["sub"]


def test_cluster_information(table: RouteTable) -> None:
    table.register(claim(0))
    table.register(claim(1))
    info = lists.cluster_info(table)
    assert info.clusterAddrTable == {"C": ["a"]}
    assert info.brokerAddrTable["a"].brokerAddrs == {0: "10.0.0.0:10911", 1: "10.0.0.1:10911"}
    assert lists.member_group(table, "C", "a").brokerAddrs == info.brokerAddrTable["a"].brokerAddrs
    assert lists.member_group(table, "C", "unknown").brokerAddrs == {}


def test_a_zone_keeps_its_groups_and_those_without_a_master(table: RouteTable) -> None:
    table.register(claim(zone="East"))
    table.register(claim(address="w:1", broker_name="west", zone="west", filter_servers=("f:1",)))
    table.register(claim(1, address="s:1", broker_name="headless", zone="west"))
    route = table.route("t")
    assert route is not None
    near = lists.within_zone(route, "east")
    assert sorted(group.brokerName for group in near.brokerDatas) == ["a", "headless"]
    assert sorted(queue.brokerName for queue in near.queueDatas) == ["a", "headless"]
    assert near.filterServerTable == {}
