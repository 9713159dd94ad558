"""broker/pop/assignment.py and broker/metadata/request_modes.py: who reads which queues, and how."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.metadata.meta_entry import decode as read
from broker.metadata.operations import Table
from broker.metadata.request_modes import RequestMode, RequestModes
from broker.pop.assignment import STRATEGIES, AssignmentHandlers, average, average_by_circle, popped_by
from broker.registration.topic_routes import TopicRoutes
from broker.settings.config import BrokerConfig
from remoting.bodies.registry import (
    MessageQueue,
    QueryAssignmentBody,
    QueryAssignmentResponseBody,
    QueueData,
    SetMessageRequestModeBody,
    TopicConfig,
    TopicRouteData,
)
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, RemotingServer
from runtime.clock import ManualClock
from tests.parts.meta_parts import Member, leader

QUEUES = [MessageQueue("T", "a", number) for number in range(5)] + [MessageQueue("T", "b", 0)]
MEMBERS = ["m0", "m1", "m2", "m3"]
NOBODY = cast(Connection, None)


def numbers(queues: list[MessageQueue]) -> list[int]:
    return [QUEUES.index(queue) for queue in queues]


def test_the_strategies_are_rocketmqs() -> None:
    assert set(STRATEGIES) == {"AVG", "AVG_BY_CIRCLE"}
    assert [numbers(average(me, QUEUES, MEMBERS)) for me in MEMBERS] == [[0, 1], [2, 3], [4], [5]]
    assert [numbers(average_by_circle(me, QUEUES, MEMBERS)) for me in MEMBERS] == [[0, 4], [1, 5], [2], [3]]
    # More members than queues: the last ones have nothing.
    assert [len(average(f"{n:02d}", QUEUES, [f"{n:02d}" for n in range(8)])) for n in range(8)] == [1] * 6 + [0, 0]


def test_who_pops_shares_the_queues_of_those_that_follow() -> None:
    everything = [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]
    for others in (-1, 0, 3, 4, 100):
        assert popped_by("m1", average, QUEUES, MEMBERS, others) == everything
    assert numbers(popped_by("m1", average, QUEUES, MEMBERS, 1)) == [2, 3, 4]
    assert numbers(popped_by("m3", average, QUEUES, MEMBERS, 2)) == [0, 1, 2, 3, 5]
    assert popped_by("stranger", average, QUEUES, MEMBERS, 1) == []
    many = [f"{number:02d}" for number in range(8)]
    assert [numbers(popped_by(me, average, QUEUES, many, 2)) for me in many] == [[0], [1], [2], [3], [4], [5], [0], [1]]


class Site:
    """Handlers over a table of modes, and members that a test names."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.modes = RequestModes(folder / "messageRequestMode.json")
        self.members = list(MEMBERS)
        self.queues = list(QUEUES)
        live: Any = SimpleNamespace(broker=BrokerConfig(**config))
        clients: Any = SimpleNamespace(consumer_ids=lambda _group: self.members)

        async def queues(_topic: str) -> list[MessageQueue]:
            return self.queues

        self.handlers = AssignmentHandlers(live, self.modes, clients, queues)

    async def ask(self, **changes: str) -> tuple[set[str], list[int] | None]:
        """The modes of the answer, and the queues."""
        fields = {"clientId": "m1", "consumerGroup": "G", "topic": "T", "strategyName": "AVG", **changes}
        body = QueryAssignmentBody(**fields).encode()
        answer = await self.handlers.query(NOBODY, Command(code=RequestCode.QUERY_ASSIGNMENT, body=body))
        assert answer.code == 0
        found = QueryAssignmentResponseBody.decode(b"".join(answer.parts or [bytes(answer.body)]))
        if found.messageQueueAssignments is None:
            return set(), None
        modes = {each.mode for each in found.messageQueueAssignments}
        return modes, sorted(each.messageQueue.queueId for each in found.messageQueueAssignments)

    async def set(self, mode: str, share: int = 0, topic: str = "T", group: str = "G") -> int:
        body = SetMessageRequestModeBody(consumerGroup=group, mode=mode, popShareQueueNum=share, topic=topic).encode()
        request = Command(code=RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
        return (await self.handlers.set_mode(NOBODY, request)).code


async def test_a_member_has_its_share_by_the_mode_that_was_set(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert await site.ask() == ({"PULL"}, [2, 3])
    assert await site.ask(strategyName="AVG_BY_CIRCLE") == ({"PULL"}, [0, 1])
    assert await site.set("POP") == 0
    assert await site.ask() == ({"POP"}, [-1, -1])
    assert await site.set("POP", 1) == 0
    assert await site.ask() == ({"POP"}, [2, 3, 4])
    assert await site.ask(consumerGroup="Other") == ({"PULL"}, [2, 3])
    assert await site.ask(messageModel="BROADCASTING") == ({"POP"}, [0, 0, 1, 2, 3, 4])
    # What cannot be said changes nothing at the client; a stranger has nothing.
    assert await site.ask(strategyName="CONSISTENT_HASH") == (set(), None)
    assert await site.ask(clientId="stranger") == (set(), [])
    site.members = []
    assert await site.ask() == (set(), None)
    site.members, site.queues = MEMBERS, []
    assert await site.ask() == (set(), None)
    await site.modes.close()


async def test_the_configuration_says_what_nobody_set(tmp_path: Path) -> None:
    site = Site(tmp_path, defaultMessageRequestMode="pop", defaultPopShareQueueNum=1)
    assert await site.ask() == ({"POP"}, [2, 3, 4])
    assert await site.ask(topic="%RETRY%G") == ({"PULL"}, [2, 3])
    whole = Site(tmp_path / "whole", serverLoadBalancerEnable=False)
    assert await whole.ask() == ({"PULL"}, [0, 0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("code", "mode", "share", "topic", "group"),
    [
        (ResponseCode.INVALID_PARAMETER, "PUSH", 0, "T", "G"),
        (ResponseCode.INVALID_PARAMETER, "POP", 1 << 40, "T", "G"),
        (ResponseCode.INVALID_PARAMETER, "POP", 0, "", "G"),
        (ResponseCode.INVALID_PARAMETER, "POP", 0, "T", "a b"),
        (ResponseCode.NO_PERMISSION, "POP", 0, "%RETRY%G", "G"),
    ],
)
async def test_what_is_no_mode_is_refused(
    tmp_path: Path, code: int, mode: str, share: int, topic: str, group: str
) -> None:
    site = Site(tmp_path)
    with pytest.raises(CommandError) as refused:
        await site.set(mode, share, topic, group)
    assert refused.value.code == code
    assert site.modes.get(topic, group) is None


async def test_modes_outlive_a_restart_in_rocketmqs_form(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert await site.set("POP", 2) == 0
    row = {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2, "topic": "T"}
    stored = json.loads((tmp_path / "messageRequestMode.json").read_bytes())
    assert stored == {"messageRequestModeMap": {"T": {"G": row}}}
    await site.modes.close()
    assert RequestModes(tmp_path / "messageRequestMode.json").get("T", "G") == RequestMode("POP", 2)
    # What another version wrote and nobody can read counts as not set.
    stored["messageRequestModeMap"]["T"]["G"] = {"mode": "TELEPATHY"}
    (tmp_path / "messageRequestMode.json").write_text(json.dumps(stored))
    assert RequestModes(tmp_path / "messageRequestMode.json").get("T", "G") is None


async def test_there_is_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.metadata.request_modes.MODES_MAX", 2)
    site = Site(tmp_path)
    assert await site.set("POP") == await site.set("POP", group="H") == 0
    with pytest.raises(CommandError, match="at most 2"):
        await site.set("POP", group="I")
    assert await site.set("PULL", group="H") == 0


def test_a_group_agrees_on_modes(tmp_path: Path) -> None:
    clock = ManualClock()
    first, second = leader(tmp_path / "n0", clock), Member(tmp_path / "n1", clock)
    first.settle()
    first.modes.put(SetMessageRequestModeBody(consumerGroup="G", mode="POP", popShareQueueNum=1, topic="T"))
    # Shown at once, and everywhere when it is applied.
    assert first.modes.get("T", "G") == RequestMode("POP", 1)
    assert second.modes.get("T", "G") is None
    payloads = first.settle()
    assert [operation[1] for payload in payloads for operation in read(payload)] == [Table.MODES]
    for payload in payloads:
        second.meta.apply(second.meta.index + 1, payload)
    assert second.modes.get("T", "G") == RequestMode("POP", 1)
    # What was proposed by one that loses the lead is taken back.
    first.modes.put(SetMessageRequestModeBody(consumerGroup="G", mode="PULL", topic="T"))
    first.meta.drop()
    assert first.modes.get("T", "G") == RequestMode("POP", 1)


async def test_queues_of_other_brokers_are_asked_for_once_in_a_while() -> None:
    asked: list[str] = []
    data = [QueueData(brokerName=name, readQueueNums=2, writeQueueNums=2, perm=perm) for name, perm in
            (("a", 6), ("b", 4), ("c", 2))]  # fmt: skip

    async def route(_connection: Connection, request: Command) -> Command:
        asked.append(request.ext["topic"])
        if request.ext["topic"] != "T":
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, "no")
        return Command.response(0, body=TopicRouteData(queueDatas=data).encode())

    server = RemotingServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: route}, name="name server")
    await server.start("127.0.0.1", 0)
    client, clock = RemotingClient(), ManualClock()
    live: Any = SimpleNamespace(broker=BrokerConfig(brokerName="a", namesrvAddr=f"127.0.0.1:1;127.0.0.1:{server.port}"))
    own: dict[str, TopicConfig] = {"T": TopicConfig("T", 3, 3)}
    routes = TopicRoutes(live, cast(Any, own), client, clock.monotonic)
    try:
        # Of its own queues it knows more than the NameServer.
        wanted = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
        for _ in range(3):
            assert [(queue.brokerName, queue.queueId) for queue in await routes.queues("T")] == wanted
        assert asked == ["T"]
        clock.advance(10)
        del own["T"]
        assert [(queue.brokerName, queue.queueId) for queue in await routes.queues("T")] == [("b", 0), ("b", 1)]
        assert await routes.queues("U") == []
        assert asked == ["T", "T", "U"]
    finally:
        await routes.close()
        await client.close()
        await server.close()
