"""Lite topics, and POP with the binary header, as the Java client asked RocketMQ 5.5.0: what is refused, and how."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.messages.send_checks import LITE_CHARS_MAX
from broker.server import Broker
from remoting.client import RemotingClient
from remoting.codec import decode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2
from runtime.clock import ManualClock
from tests.golden.test_broker_pop import started

DATA = Path(__file__).parent / "data"
SEND, CREATE = 310, 17


def exchanges(recording: str) -> list[tuple[Command, Command]]:
    """What the client asked, in order, and what RocketMQ answered, with enableLmq=true."""
    rows = [json.loads(line) for line in (DATA / "lite-frames.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["recording"] == recording]
    frames = [(row, decode(bytes.fromhex(row["frame"])[4:])) for row in rows]
    answers = {(row["client"], row["opaque"]): frame for row, frame in frames if row["isResponse"]}
    return [(frame, answers[row["client"], row["opaque"]]) for row, frame in frames if not row["isResponse"]]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = await started(tmp_path, ManualClock())
    yield made
    await made.close()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def test_the_java_clients_requests_are_refused_by_name(broker: Broker, client: RemotingClient) -> None:
    """Every answer differs from RocketMQ's."""
    asked = exchanges("JSON")
    assert {request.code for request, _ in asked} == {CREATE, SEND, 200_070, 200_071, *range(200_074, 200_080)}
    for request, recorded in asked:
        answer = await client.invoke(broker.address, request, 5.0)
        if request.code == CREATE:
            assert (recorded.code, answer.code) == (0, 1)
            assert "message.type" in (answer.remark or "")
        elif request.code == SEND:
            assert (recorded.code, answer.code) == (0, 13)
            assert (answer.remark or "").startswith("__LITE_TOPIC=room-1: lite topics")
        else:
            said = f" request type {request.code} not supported: lite topics are not available"
            assert (answer.code, answer.remark, answer.body) == (3, said, b"")
    assert broker.store.queue_entries("FeatLite", 0, 0, 10) == []


async def test_with_the_binary_header_codes_do_not_fit_and_are_refused_alike(
    broker: Broker, client: RemotingClient
) -> None:
    same = 0
    for request, recorded in exchanges("ROCKETMQ"):
        answer = await client.invoke(broker.address, request, 5.0)
        if request.code == SEND:
            assert answer.code == 13
        elif request.code != CREATE:
            assert (answer.code, answer.remark) == (recorded.code, recorded.remark)
            same += 1
    assert same > 15


async def send(broker: Broker, client: RemotingClient, properties: str, *, topic: str = "T", again: int = 0) -> Command:
    header = SendMessageRequestHeaderV2(
        producerGroup="P", topic=topic, defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0,
        sysFlag=0, bornTimestamp=1, flag=0, properties=properties, reconsumeTimes=again,
    )  # fmt: skip
    return await client.invoke(broker.address, Command.request(SEND, header, b"body"), 5.0)


async def test_sends_to_light_message_queues_are_refused_and_what_comes_back_is_not(
    broker: Broker, client: RemotingClient
) -> None:
    queues = "%LMQ%a,%LMQ%" + "b" * 500
    refused = await send(broker, client, f"A\x01b\x02INNER_MULTI_DISPATCH\x01{queues}\x02")
    assert refused.code == 13
    assert f"INNER_MULTI_DISPATCH={queues[:LITE_CHARS_MAX]}:" in (refused.remark or "")
    # Names that only begin alike, and nothing named, are the sender's own.
    for properties in ("INNER_MULTI_DISPATCH_X\x01a\x02", "__LITE_TOPIC\x01\x02", "X\x01__LITE_TOPIC\x02"):
        assert (await send(broker, client, properties)).code == 0
    broker._parts.groups.find("G", None)
    back = await send(broker, client, f"INNER_MULTI_DISPATCH\x01{queues}\x02", topic="%RETRY%G", again=1)
    assert back.code == 0
