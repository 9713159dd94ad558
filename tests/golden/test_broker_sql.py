"""SQL92 as RocketMQ 5.5.0 was recorded with it: checks (46), and pulls by a filter of the heartbeat (11)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.bodies.registry import CheckClientConfigBody, ConsumerData, HeartbeatData
from remoting.codec import decode, encode
from remoting.codes import RequestCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.record import decode_records
from tests.golden.test_broker_answers import Wire

FRAMES = Path(__file__).parent / "data" / "sql.jsonl"
KINDS = pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
GROUP = "FeatSqlGroup"


def exchanges(kind: int, code: int) -> list[tuple[bytes, Command]]:
    """The recorded requests of a code with their answers."""
    entries = [json.loads(line) for line in FRAMES.read_text().splitlines()]
    mine = [entry for entry in entries if (entry["serializeType"], entry["requestCode"]) == (kind, code)]
    answers = {entry["opaque"]: bytes.fromhex(entry["frame"]) for entry in mine if entry["isResponse"]}
    requests = [bytes.fromhex(entry["frame"]) for entry in mine if not entry["isResponse"]]
    return [(frame, decode(answers[decode(frame[4:]).opaque][4:])) for frame in requests]


@pytest.fixture
async def filtering(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    values = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "httpEnable": "false",
        "namesrvAddr": "",
        "storePathRootDir": str(tmp_path),
        "mappedFileSizeCommitLog": "1048576",
        "longPollingEnable": "false",
        "shortPollingTimeMills": "1",
        "enablePropertyFilter": getattr(request, "param", "true"),
    }
    config, store_config, unknown = load_broker_config(values)
    assert unknown == []
    broker = Broker(config, store_config)
    await broker.start()
    wire = Wire(*await asyncio.open_connection("127.0.0.1", broker.port))
    yield wire
    wire.writer.close()
    await wire.writer.wait_closed()
    await broker.close()


@KINDS
async def test_a_filter_is_checked(filtering: Wire, kind: int) -> None:
    recorded = exchanges(kind, RequestCode.CHECK_CLIENT_CONFIG)
    assert [answer.code for _, answer in recorded] == [0, 23]
    for request, expected in recorded:
        answer = await filtering.ask(request)
        assert (answer.code, answer.ext, bytes(answer.body)) == (expected.code, expected.ext, bytes(expected.body))
        # What is wrong is said in other words, of the same word at the same place.
        assert ("at line 1, column 5" in (answer.remark or "")) == ("at line 1, column 5" in (expected.remark or ""))
        assert ("'>'" in (answer.remark or "")) == ('">"' in (expected.remark or ""))


@KINDS
@pytest.mark.parametrize("filtering", ["false"], indirect=True)
async def test_without_the_switch_filters_are_refused(filtering: Wire, kind: int) -> None:
    for request, _ in exchanges(kind, RequestCode.CHECK_CLIENT_CONFIG):
        answer = await filtering.ask(request)
        # RocketMQ's words in its source; it was recorded with the switch on.
        assert (answer.code, answer.remark) == (
            1,
            "The broker does not support consumer to filter message by SQL92",
        )


@KINDS
async def test_pulls_by_the_filter_of_the_heartbeat(filtering: Wire, kind: int) -> None:
    ((create, created),) = exchanges(kind, RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert (await filtering.ask(create)).code == created.code == 0
    # One of the eight sends was recorded; of the others one had no name, and every other one the other tag and queue.
    ((send, sent),) = exchanges(kind, RequestCode.SEND_MESSAGE_V2)
    for number in range(8):
        ext = dict(decode(send[4:]).ext)
        properties = ext["i"].replace("a\x010", f"a\x01{number}")
        properties = properties.replace("name\x01n0\x02", f"name\x01n{number}\x02" if number != 4 else "")
        if number % 2:
            properties, ext["e"] = properties.replace("TagA", "TagB"), str(1 - int(ext["e"]))
        ext["i"] = properties
        again = Command.request(RequestCode.SEND_MESSAGE_V2, body=b"sql %d" % number, ext=ext)
        again.serialize_type = kind
        assert (await filtering.ask(encode(again))).code == sent.code == 0
    recorded = exchanges(kind, RequestCode.PULL_MESSAGE)
    assert sorted(answer.code for _, answer in recorded) == [0, 19, 20]
    check = decode(exchanges(kind, RequestCode.CHECK_CLIENT_CONFIG)[0][0][4:])
    subscription = CheckClientConfigBody.decode(check.body).subscriptionData
    subscription.subVersion = int(decode(recorded[0][0][4:]).ext["subVersion"])
    consumer = ConsumerData(groupName=GROUP, subscriptionDataSet=[subscription])
    beat = Command.request(RequestCode.HEART_BEAT, body=HeartbeatData("c", [consumer]).encode())
    assert (await filtering.ask(encode(beat))).code == 0
    for request, expected in recorded:
        answer = await filtering.ask(request)
        assert (answer.code, answer.remark, answer.ext) == (expected.code, expected.remark, expected.ext)
        assert bodies(answer) == bodies(expected)
    assert [bodies(expected) for _, expected in recorded if expected.code == 0] == [[b"sql 6"]]


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(memoryview(bytes(answer.body)))]
