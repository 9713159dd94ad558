"""What RocketMQ 5.5.0 answered about consumers (locks, resets, statuses, figures), and what it asked its own for that.

The frames are of one afternoon: a consumer (CONSUMER) that had read two messages of each queue of a topic, an
administrator, and an orderly consumer.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.bodies.registry import ConsumerData, HeartbeatData, SubscriptionData
from remoting.client import RemotingClient
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.fastjson import loads
from remoting.headers.registry import SendMessageRequestHeaderV2, UpdateConsumerOffsetRequestHeader
from remoting.record import decode_record
from remoting.server import Connection

DATA = Path(__file__).parent / "data" / "consumers.jsonl"
SETTINGS = {"listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "broker-a", "haListenPort": "-1"}
SETTINGS |= {"httpEnable": "false", "brokerIP1": "127.0.0.1", "mappedFileSizeCommitLog": "65536"}
GROUP, TOPIC, CONSUMER = "FeatResetGroup", "FeatReset", "127.0.0.1@c8"
# What no two runs say alike: moments, rates, ports.
VARYING = {"lastUpdateTimestamp", "lastTimestamp", "topicPutTps", "consumeTps", "clientAddr", "subVersion", "timestamp"}


@dataclass
class Exchange:
    """A question and its answer; `by_broker`: the broker asked."""

    by_broker: bool
    request: Command
    answer: Command | None


def exchanges(code: int) -> list[Exchange]:
    lines = [json.loads(line) for line in DATA.read_text().splitlines()]
    frames = [(line, decode(bytes.fromhex(line["frame"])[4:])) for line in lines]
    answers = {
        (line["towardsServer"], line["client"], line["opaque"]): frame for line, frame in frames if line["isResponse"]
    }
    return [
        Exchange(
            not line["towardsServer"], frame, answers.get((not line["towardsServer"], line["client"], line["opaque"]))
        )
        for line, frame in frames
        if not line["isResponse"] and frame.code == code
    ]


def asked(code: int) -> list[Exchange]:
    """What clients asked, without what was not answered for its length (running information with stacks)."""
    return [each for each in exchanges(code) if not each.by_broker and each.answer is not None]


def plain(value: Any) -> Any:
    """Return a body without what varies, in one order."""
    if isinstance(value, dict):
        found = {str(key): plain(each) for key, each in value.items() if key not in VARYING}
        return dict(sorted(found.items()))
    if isinstance(value, list):
        return sorted((plain(each) for each in value), key=str)
    return value


def body_of(command: Command) -> Any:
    return plain(loads(bytes(command.body))) if command.body else None


class Site:
    """A broker with the recorded topic, and its consumer, which answers what the recorded one did."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.pushed: list[Command] = []
        self.sent: list[str] = []
        self.admin = RemotingClient()
        codes = (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        codes += (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY)  # type: ignore[assignment]
        self.consumer = RemotingClient(dict.fromkeys(map(int, codes), self._push))

    async def ask(self, request: Command, client: RemotingClient | None = None) -> Command:
        return await (client or self.admin).invoke(self.broker.address, request, 5.0)

    async def compare(self, each: Exchange) -> Command:
        """Ask what was asked, and look for what was answered; returns ours."""
        assert each.answer is not None
        answer = await self.ask(each.request)
        # One of its sentences begins with "THe".
        assert (answer.code, (answer.remark or "").lower()) == (each.answer.code, (each.answer.remark or "").lower())
        assert answer.ext.keys() == each.answer.ext.keys()
        assert body_of(answer) == body_of(each.answer)
        return answer

    def _push(self, _connection: Connection, request: Command) -> Command | None:
        self.pushed.append(request)
        recorded = next(each for each in exchanges(request.code) if each.by_broker)
        if recorded.answer is None:
            return None
        return Command(code=recorded.answer.code, remark=recorded.answer.remark, body=recorded.answer.body)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    config, store_config, unknown = load_broker_config({**SETTINGS, "storePathRootDir": str(tmp_path)})
    assert unknown == []
    broker = Broker(config, store_config)
    await broker.start()
    made = Site(broker)
    try:
        broker._parts.topics.create_for_retry(TOPIC, 2)
        for number in range(4):
            header = SendMessageRequestHeaderV2(
                producerGroup="P", topic=TOPIC, defaultTopic="TBW102", defaultTopicQueueNums=2, queueId=number % 2,
                sysFlag=0, bornTimestamp=1, flag=0, properties=f"UNIQ_KEY\x01U{number}\x02", reconsumeTimes=0,
            )  # fmt: skip
            sent = await made.ask(Command.request(310, header, b"reset %d" % number))
            assert sent.code == 0
            made.sent.append(sent.ext["msgId"])
        yield made
    finally:
        await made.admin.close()
        await made.consumer.close()
        await broker.close()


async def join(site: Site) -> None:
    """Have the consumer join its group, with two messages of each queue consumed."""
    topics = (TOPIC, f"%RETRY%{GROUP}")
    consumer = ConsumerData(
        groupName=GROUP,
        consumeType="CONSUME_PASSIVELY",
        messageModel="CLUSTERING",
        consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
        subscriptionDataSet=[SubscriptionData(topic=topic, subString="*") for topic in topics],
    )
    beat = HeartbeatData(clientID=CONSUMER, consumerDataSet=[consumer])
    request = Command.request(RequestCode.HEART_BEAT, None, beat.encode())
    request.version = 513
    assert (await site.ask(request, site.consumer)).code == 0
    for queue in range(2):
        header = UpdateConsumerOffsetRequestHeader(consumerGroup=GROUP, topic=TOPIC, queueId=queue, commitOffset=2)
        assert (await site.ask(Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header), site.consumer)).code == 0


async def test_locks_are_granted_refused_and_given_back_as_recorded(site: Site) -> None:
    site.broker._parts.topics.create_for_retry("FeatOrder", 1)
    locks, unlocks = asked(41), asked(42)
    # The consumer's own, one by another client of its group, and one of a group that nobody else is in; unlocked by who
    # has it not, by who has it, and by the consumer.
    assert [bool(body_of(each.answer)["lockOKMQSet"]) for each in locks if each.answer] == [True, False, True]
    for each in (*locks, unlocks[0], locks[2], *unlocks[1:]):
        await site.compare(each)
    other = locks[1].request
    assert body_of(await site.ask(other))["lockOKMQSet"], "it was given back"


async def test_a_reset_by_the_broker_alone_is_answered_as_recorded(site: Site) -> None:
    await join(site)
    server_side, _client_side, _absent, nobody = asked(222)
    await site.compare(server_side)
    await site.compare(nobody)
    assert site.pushed == [], "nobody is told: the next pull is"


async def test_a_reset_by_the_clients_is_answered_and_pushed_as_recorded(site: Site) -> None:
    await join(site)
    site.broker.live.update({"useServerSideResetOffset": "false"})
    _server_side, client_side, absent, _nobody = asked(222)
    await site.compare(client_side)
    await site.compare(absent)
    (push,) = [each for each in exchanges(220) if each.by_broker]
    # One-way, on a connection of its own: the answers may come before it.
    async with asyncio.timeout(20):
        while not site.pushed:
            await asyncio.sleep(0.01)
    (ours,) = site.pushed
    same = push.request.ext.keys() - VARYING
    assert ours.ext.keys() == push.request.ext.keys()
    assert {key: ours.ext[key] for key in same} == {key: push.request.ext[key] for key in same}
    assert body_of(ours) == body_of(push.request)
    assert ours.flag == push.request.flag, "one-way"


async def test_a_message_is_consumed_directly_as_recorded(site: Site) -> None:
    await join(site)
    (each,) = asked(309)
    (push,) = [known for known in exchanges(309) if known.by_broker]
    # A message of this broker's, not of the recorded one's.
    own = {"msgId": site.sent[0]}
    each.request.ext.update(own)
    await site.compare(each)
    (ours,) = site.pushed
    assert ours.ext == push.request.ext | own
    mine, theirs = decode_record(memoryview(ours.body)), decode_record(memoryview(push.request.body))
    assert (mine.topic, bytes(mine.body)) == (theirs.topic, bytes(theirs.body)) == (TOPIC, b"reset 0")


@pytest.mark.parametrize("code", [223, 307])
async def test_what_is_asked_of_a_consumer_reaches_it_and_comes_back_as_recorded(site: Site, code: int) -> None:
    await join(site)
    for each in asked(code):
        assert each.answer is not None
        if each.answer.code == 1 and "NullPointerException" in (each.answer.remark or ""):
            # Ours says who is missing.
            answer = await site.ask(each.request)
            assert (answer.code, answer.body) == (1, b"")
            continue
        await site.compare(each)
    pushes = [each for each in exchanges({223: 221}.get(code, code)) if each.by_broker and each.answer is not None]
    assert len(site.pushed) == len(pushes)
    for ours, push in zip(site.pushed, pushes, strict=True):
        assert ours.ext == push.request.ext


@pytest.mark.parametrize("code", [202, 203, 208, 351, 200055])
async def test_figures_of_consumers_are_answered_as_recorded(site: Site, code: int) -> None:
    await join(site)
    site.broker._parts.topics.create_for_retry("FeatPopPush", 4)
    compared = 0
    for each in asked(code):
        await site.compare(each)
        compared += 1
    assert compared
