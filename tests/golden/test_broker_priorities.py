"""A message of priority 0 that a client of RocketMQ 5.5.0 sent to queue 2: our broker too puts it into queue 0."""

import json
from pathlib import Path

import pytest

from remoting.codec import decode, encode
from remoting.codes import RequestCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.headers.registry import CreateTopicRequestHeader, SendMessageRequestHeaderV2
from remoting.properties import decode_properties
from tests.golden.test_broker_answers import Wire, wire

__all__ = ["wire"]

FRAMES = Path(__file__).parent / "data" / "priorities.jsonl"
TOPIC = "FeatPriority"
QUEUES = 4


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
async def test_a_priority_chooses_the_queue(wire: Wire, kind: int) -> None:
    entries = [json.loads(line) for line in FRAMES.read_text().splitlines()]
    asked, answered = [bytes.fromhex(entry["frame"]) for entry in entries if entry["serializeType"] == kind]
    topic = CreateTopicRequestHeader(
        topic=TOPIC,
        defaultTopic="TBW102",
        readQueueNums=QUEUES,
        writeQueueNums=QUEUES,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
        attributes="+message.type=PRIORITY",
    )
    assert (await wire.ask(encode(Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)))).code == 0
    header = decode(asked[4:]).header(SendMessageRequestHeaderV2)
    assert header.queueId == 2
    assert decode_properties((header.properties or "").encode())["_SYS_MSG_PRIORITY_"] == "0"
    expected, answer = decode(answered[4:]), await wire.ask(asked)
    assert (answer.code, answer.ext.keys()) == (expected.code, expected.ext.keys())
    assert answer.ext["queueId"] == expected.ext["queueId"] == "0"
