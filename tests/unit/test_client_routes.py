import asyncio
import gc

import pytest

from client.errors import RouteError
from client.nameservers import parse_addresses
from client.routes import ORDERED_QUEUES_MAX, Routes, topic_route
from remoting.bodies.registry import BrokerData, MessageQueue, QueueData, TopicRouteData


def data(*, perm: int = 6, addresses: dict[int, str] | None = None, queues: int = 2) -> TopicRouteData:
    where = {0: "h:1"} if addresses is None else addresses
    return TopicRouteData(
        brokerDatas=[BrokerData(brokerAddrs=where, brokerName="b", cluster="c")],
        queueDatas=[QueueData(brokerName="b", perm=perm, readQueueNums=queues + 1, writeQueueNums=queues)],
    )


class NameServer:
    """Answers from a table; None stands for a NameServer that cannot be reached."""

    def __init__(self, **topics: TopicRouteData) -> None:
        self.topics: dict[str, TopicRouteData] | None = topics
        self.asked: list[str] = []

    async def ask(self, topic: str) -> TopicRouteData | None:
        self.asked.append(topic)
        await asyncio.sleep(0)
        if self.topics is None:
            raise RouteError("nobody answered", retriable=True)
        return self.topics.get(topic)


def routes(server: NameServer) -> Routes:
    return Routes(server.ask, lambda: "ns:9876")


def test_queues_follow_permission_and_master() -> None:
    route = topic_route("T", data())
    assert route.write_queues == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))
    assert len(route.read_queues) == 3
    assert topic_route("T", data(perm=4)).write_queues == ()
    assert topic_route("T", data(perm=2)).read_queues == ()
    follower = topic_route("T", data(addresses={2: "h:2"}))
    assert (follower.write_queues, len(follower.read_queues)) == (route.write_queues, 3)
    assert (follower.master("b"), follower.address("b")) == (None, "h:2")
    assert topic_route("T", data(addresses={})).write_queues == ()


def test_queues_without_a_master_are_written_to_only_when_there_are_no_others() -> None:
    both = data(addresses={1: "h:2"})
    both.brokerDatas.append(BrokerData(brokerAddrs={0: "i:1"}, brokerName="a", cluster="c"))
    both.queueDatas.append(QueueData(brokerName="a", perm=6, readQueueNums=1, writeQueueNums=1))
    route = topic_route("T", both)
    assert route.write_queues == (MessageQueue("T", "a", 0),)
    assert route.masterless


def test_an_order_configuration_names_the_queues_that_are_written_to() -> None:
    ordered = data()
    ordered.orderTopicConf = "gone:1; b:3;nonsense;:4;b:x"
    route = topic_route("T", ordered)
    assert [(queue.brokerName, queue.queueId) for queue in route.write_queues] == [
        ("gone", 0), ("b", 0), ("b", 1), ("b", 2),
    ]  # fmt: skip
    assert (route.for_writing("gone"), len(route.read_queues)) == (None, 3)
    assert len(topic_route("T", ordered, assumed_queues=1).write_queues) == 1
    ordered.orderTopicConf = "b:9999999999"
    assert len(topic_route("T", ordered).write_queues) == ORDERED_QUEUES_MAX
    ordered.orderTopicConf = ""
    assert topic_route("T", ordered).write_queues == topic_route("T", data()).write_queues


def test_where_to_send_prefers_the_master() -> None:
    route = topic_route("T", data(addresses={3: "h:3", 0: "h:1", 2: "h:2"}))
    assert route.for_writing("b") == "h:1"
    assert route.for_writing("b", "h:2") == "h:1"
    assert route.for_writing("b", "h:1") == "h:2"
    assert route.for_writing("nobody") is None
    assert topic_route("T", data()).for_writing("b", "h:1") == "h:1"
    assert topic_route("T", data(addresses={2: "h:2"})).for_writing("b") == "h:2"


def test_another_replica_is_named_when_one_is_to_be_left_alone() -> None:
    route = topic_route("T", data(addresses={3: "h:3", 0: "h:1", 2: "h:2"}))
    assert (route.address("b"), route.address("b", 3), route.address("b", 7)) == ("h:1", "h:3", "h:2")
    assert (route.address("b", avoid="h:1"), route.address("b", 3, "h:3")) == ("h:2", "h:2")
    assert topic_route("T", data()).address("b", avoid="h:1") == "h:1"


async def test_questions_asked_at_the_same_time_are_one() -> None:
    server = NameServer(T=data())
    table = routes(server)
    found = await asyncio.gather(*(table.find("T") for _ in range(5)))
    assert len({id(route) for route in found}) == 1
    assert server.asked == ["T"]


async def test_a_topic_that_is_not_there_is_refused_with_the_addresses() -> None:
    with pytest.raises(RouteError, match=r"No topic route info for topic T .*ns:9876.*raftmq topic create T") as caught:
        await routes(NameServer()).find("T")
    assert not caught.value.retriable


async def test_a_new_topic_is_sent_to_the_brokers_of_the_default_topic() -> None:
    server = NameServer(TBW102=data(perm=7, queues=8))
    table = routes(server)
    route = await table.find_for_send("New", 4)
    assert [queue.queueId for queue in route.write_queues] == [0, 1, 2, 3]
    assert {queue.topic for queue in route.write_queues} == {"New"}
    assert route.assumed
    assert server.topics is not None
    server.topics["New"] = data(queues=6)
    assert (await table.refresh("New")) is table.cached("New")
    known = table.cached("New")
    assert known is not None
    assert (known.assumed, len(known.write_queues)) == (False, 6)


async def test_the_old_route_is_kept_when_nobody_knows_better() -> None:
    server = NameServer(T=data())
    table = routes(server)
    route = await table.find("T")
    server.topics = {}
    assert await table.refresh("T") is route
    server.topics = None
    assert await table.refresh("T") is route
    with pytest.raises(RouteError, match="nobody answered"):
        await table.find("Other")


async def test_a_topic_that_nobody_takes_is_asked_for_again() -> None:
    server = NameServer(T=data(perm=4))
    table = routes(server)
    with pytest.raises(RouteError, match="no write permission") as caught:
        await table.find_for_send("T", 4)
    assert caught.value.retriable
    server.topics = {"T": data(addresses={0: "h:2"})}
    assert (await table.find_for_send("T", 4)).master("b") == "h:2"


async def test_the_elected_one_is_sought_with_one_question_at_a_time() -> None:
    server = NameServer(T=data(addresses={2: "h:2"}), U=data(addresses={2: "h:2"}), V=data())
    table = routes(server)
    for topic in "TUV":
        await table.find(topic)
    server.asked.clear()
    assert not await table.seek_masters()
    assert server.asked == ["T"]
    assert server.topics is not None
    server.topics.update(T=data(), U=data())
    assert await table.seek_masters()
    assert server.asked == ["T", "U", "T"]
    assert await table.seek_masters()
    assert server.asked == ["T", "U", "T"]


async def test_a_topic_that_the_elected_one_does_not_know_is_in_nobodys_way() -> None:
    server = NameServer(T=data(addresses={2: "h:2"}), U=data(addresses={2: "h:2"}))
    table = routes(server)
    for topic in "TU":
        await table.find(topic)
    server.topics = {"U": data()}
    for _ in range(2):
        assert not await table.seek_masters()
    found = table.cached("U")
    assert found is not None
    assert found.master("b") == "h:1"


async def test_changes_are_told_once() -> None:
    server = NameServer(T=data())
    table = routes(server)
    told: list[str] = []
    table.on_change.append(lambda route: told.append(route.topic))
    await table.find("T")
    await table.poll()
    assert told == ["T"]
    server.topics = {"T": data(queues=5)}
    await table.poll()
    assert told == ["T", "T"]


async def test_only_routes_that_use_an_address_are_refreshed_for_it() -> None:
    server = NameServer(T=data(), U=data(addresses={0: "other:1"}))
    table = routes(server)
    await table.find("T")
    await table.find("U")
    await table.refresh_using("h:1")
    assert server.asked == ["T", "U", "T"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1;b:2", ("a:1", "b:2")),
        ("a", ("a:9876",)),
        (["a:1", "a:1", "[::1]:5"], ("a:1", "[::1]:5")),
        ("[::1]", ("[::1]:9876",)),
    ],
)
def test_addresses_are_read(text: str | list[str], expected: tuple[str, ...]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", ";", [], "host:port"])
def test_addresses_that_are_none_are_refused(text: str | list[str]) -> None:
    with pytest.raises(ValueError, match="NameServer address"):
        parse_addresses(text)


async def test_an_error_that_nobody_waits_for_any_more_is_no_complaint_of_the_loop() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    answer: asyncio.Future[TopicRouteData | None] = asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(Routes(lambda _topic: answer, lambda: "nobody").refresh("T"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    answer.set_exception(RouteError("no NameServer answered", retriable=True))
    for _turn in range(3):
        await asyncio.sleep(0)
    del asking
    gc.collect()
    assert complaints == []
