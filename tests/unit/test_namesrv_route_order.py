"""The brokers of a group stand in a route by their ids, the master first: several clients take the first."""

import itertools

import pytest

from namesrv.routes import RouteTable
from remoting.bodies.registry import ClusterInfo, TopicConfig
from runtime.clock import ManualClock
from tests.unit.test_namesrv_routes import claim

TOPICS = {name: TopicConfig(name, 4, 4) for name in ("t", "u")}


def table() -> RouteTable:
    return RouteTable(ManualClock(), topics_per_broker_max=10, brokers_max=10, epochs_max=20)


def register(routes: RouteTable, broker_id: int, address: str) -> None:
    routes.register(claim(broker_id, address, topics=TOPICS, acting_master=True))


def shown(routes: RouteTable, *, acting_masters: bool = False) -> list[int]:
    route = routes.route("t", acting_masters=acting_masters)
    assert route is not None
    (group,) = route.brokerDatas
    at = [bytes(route.encode()).index(f'"{number}":"'.encode()) for number in group.brokerAddrs]
    assert at == sorted(at), "on the wire as well"
    return list(group.brokerAddrs)


@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 2, 10])))
def test_whoever_registers_first_the_master_stands_first(order: tuple[int, ...]) -> None:
    routes = table()
    for number in order:
        register(routes, number, f"10.0.0.{number}:10911")
    assert shown(routes) == [0, 1, 2, 10]
    info = ClusterInfo(routes.groups, {"c": sorted(routes.groups)})
    (group,) = ClusterInfo.decode(info.encode()).brokerAddrTable.values()
    assert list(group.brokerAddrs) == [0, 1, 2, 10]


def test_a_member_that_takes_the_lead_stands_first() -> None:
    """n0 leads, n2 takes over, n0 comes back as number 1."""
    routes = table()
    for number, address in ((0, "a:1"), (2, "b:1"), (3, "c:1"), (0, "c:1"), (1, "a:1")):
        register(routes, number, address)
    assert shown(routes) == [0, 1, 2]


def test_an_acting_master_stands_first() -> None:
    routes = table()
    for number in (2, 1, 3):
        register(routes, number, f"10.0.0.{number}:10911")
    routes.set_writable("a", writable=False)
    assert shown(routes, acting_masters=True) == [0, 2, 3]
