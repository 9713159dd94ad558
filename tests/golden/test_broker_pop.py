"""POP as RocketMQ 5.5.0 answered its Java client, and what it left open in a store folder."""

import asyncio
import json
import re
import tarfile
from pathlib import Path

import pytest

from broker.pop.check_points import CheckPoint
from broker.pop.records import Ack, ack_record, check_point_record, read_record
from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.client import RemotingClient
from remoting.codec import decode
from remoting.command import Command
from remoting.headers.registry import PopMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.message import MessageExt
from remoting.record import RecordError, decode_record
from remoting.topics import REVIVE_LOG_PREFIX
from runtime.clock import ManualClock

DATA = Path(__file__).parent / "data"
SIZES = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "1000"}
SIZES |= {"maxIndexNum": "4000", "listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "broker-a"}
SIZES |= {"enablePropertyFilter": "true", "haListenPort": "-1", "httpEnable": "false", "brokerIP1": "127.0.0.1"}
# What no two brokers say alike: when, who asked, and which queue of check points.
VARYING = {"popTime", "reviveQid"}
PEER = re.compile(r"consumer:\[/127\.0\.0\.1:\d+\]")
RECORDED_MS = 1_795_380_165_000


async def started(folder: Path, clock: ManualClock) -> Broker:
    config, store_config, unknown = load_broker_config({**SIZES, "storePathRootDir": str(folder)})
    assert unknown == []
    broker = Broker(config, store_config, clock)
    await broker.start()
    return broker


def exchanges() -> list[tuple[Command, Command]]:
    """What the client asked, in order, and what RocketMQ answered."""
    lines = [json.loads(line) for line in (DATA / "pop-frames.jsonl").read_text().splitlines()]
    frames = [(line, decode(bytes.fromhex(line["frame"])[4:])) for line in lines]
    answers = {(line["client"], line["opaque"]): frame for line, frame in frames if line["isResponse"]}
    return [(frame, answers[line["client"], line["opaque"]]) for line, frame in frames if not line["isResponse"]]


def at(clock: ManualClock, moment_ms: int) -> None:
    clock.advance(max(0.0, (moment_ms - clock.now_ms()) / 1000))


async def test_the_java_clients_requests_are_answered_as_recorded(tmp_path: Path) -> None:
    clock = ManualClock()
    at(clock, 1_795_380_096_900)
    broker = await started(tmp_path, clock)
    client = RemotingClient()
    try:
        parts = broker._parts
        parts.topics.create_for_retry("FeatPop", 2)
        for number in range(6):
            header = SendMessageRequestHeaderV2(
                producerGroup="P", topic="FeatPop", defaultTopic="TBW102", defaultTopicQueueNums=2, queueId=0,
                sysFlag=0, bornTimestamp=1, flag=0, properties="TAGS\x01T\x02", reconsumeTimes=0,
            )  # fmt: skip
            sent = await client.invoke(broker.address, Command.request(310, header, b"pop %d" % number), 5.0)
            assert sent.code == 0
        compared = 0
        for request, expected in exchanges():
            born = int(request.ext.get("bornTime", 0))
            if "too much" not in (expected.remark or ""):
                at(clock, born + 1)
            answer = await client.invoke(broker.address, request, 10.0)
            assert answer.code == expected.code, (request.ext, answer.remark)
            said, theirs = PEER.sub("", answer.remark or ""), PEER.sub("", expected.remark or "")
            # Where an expression cannot be read ours says why, too.
            assert said.startswith(theirs) if answer.code == 23 else said == theirs, request.ext
            assert answer.ext.keys() == expected.ext.keys()
            same = expected.ext.keys() - VARYING
            assert {key: answer.ext[key] for key in same} == {key: expected.ext[key] for key in same}, request.ext
            if expected.body:
                bodies = [bytes(decode_record(record).body) for record in records(answer)]
                assert bodies == [bytes(decode_record(record).body) for record in records(expected)]
            compared += 1
        assert compared > 15
    finally:
        await client.close()
        await broker.close()


def records(answer: Command) -> list[memoryview]:
    view, found, place = memoryview(answer.body), [], 0
    while place < len(view):
        size = int.from_bytes(view[place : place + 4], "big")
        found.append(view[place : place + size])
        place += size
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    with tarfile.open(DATA / "store-features-clean.tar.xz") as archive:
        archive.extractall(folder)
    return folder / "b0"


def in_log(folder: Path) -> list[memoryview]:
    """The records of the log, in their order."""
    found = []
    for file in sorted((folder / "commitlog").iterdir()):
        content, place = memoryview(file.read_bytes()), 0
        while place + 8 <= len(content) and bytes(content[place + 4 : place + 7]) == b"\xda\xa3\x20":
            size = int.from_bytes(content[place : place + 4], "big")
            found.append(content[place : place + size])
            place += size
    return found


def test_records_are_those_of_rocketmq(recorded: Path) -> None:
    points: dict[object, CheckPoint] = {}
    compared = 0
    for view in in_log(recorded):
        record = decode_record(view)
        if not record.topic.startswith(REVIVE_LOG_PREFIX):
            continue
        found = read_record(view, record.queue_id, record.queue_offset)
        if isinstance(found, CheckPoint):
            points[found.key] = found
            assert found.of_wheel
            ours = check_point_record("R", found, bytes(8))
        else:
            assert isinstance(found, Ack)
            known = points.get(found.key)
            if known is None or (len(found.offsets) == 1 and record.properties["TAGS"] == "bAck"):
                # A batch of one is a single one of ours.
                continue
            ours = ack_record("R", known, found.offsets, 1, bytes(8))
        assert json.loads(bytes(ours.body)) == json.loads(bytes(record.body))
        told = dict(pair.split("\x01") for pair in ours.properties.decode().split("\x02") if pair)
        assert {key: record.properties[key] for key in told} == told
        compared += 1
    assert compared > 15


async def test_what_rocketmq_left_open_comes_again(recorded: Path) -> None:
    pending = [json.loads(line) for line in (DATA / "store-features-clean.pending.jsonl").read_text().splitlines()]
    wanted = sorted(each["msgId"] for each in pending if each.get("pending") == "popped, not acknowledged")
    settled = {each["msgId"] for each in pending if each.get("pending") == "popped, acknowledged"}
    assert len(wanted) >= 4
    clock = ManualClock()
    at(clock, RECORDED_MS)
    broker = await started(recorded, clock)
    try:
        async with asyncio.timeout(30):
            while len(again(broker)) < len(wanted):
                # The check points come when they are due, then their time is over.
                clock.advance(60)
                broker._parts.timers.service.arrived()
                broker._parts.pop._stirred.set()
                await asyncio.sleep(0.01)
            for _ in range(20):
                clock.advance(60)
                broker._parts.pop._stirred.set()
                await asyncio.sleep(0.01)
        came = [message.properties["UNIQ_KEY"] for message in again(broker)]
        assert sorted(came) == wanted
        assert not settled & set(came)
    finally:
        await broker.close()


def again(broker: Broker) -> list[MessageExt]:
    found = []
    for entry in broker.store.queue_entries("%RETRY%FeatPopPending_FeatPop", 0, 0, 100):
        view = broker.store.record_at(entry.physical_offset)
        if view is None:
            raise RecordError("a message is gone")
        found.append(decode_record(view))
    return found


def test_the_header_of_a_pop_is_the_official_clients() -> None:
    request = next(request for request, _ in exchanges() if request.code == 200050)
    header = request.header(PopMessageRequestHeader)
    assert (header.consumerGroup, header.maxMsgNums, header.queueId) == ("FeatPopRaw", 6, -1)
