"""Transactions as RocketMQ 5.5.0 and its Java client had them: frames, records, and a store folder with halves."""

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from broker.transactions.records import over
from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.client import RemotingClient
from remoting.codec import decode
from remoting.codes import RequestCode, ResponseCode
from remoting.command import JSON, Command
from remoting.connection import Connection
from remoting.headers.registry import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from remoting.message import MessageExt
from remoting.record import decode_record
from remoting.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from runtime.clock import ManualClock
from tests.parts.transaction_parts import COMMIT, ROLLBACK, ends

DATA = Path(__file__).parent / "data"
SIZES = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "1000"}
SIZES |= {"maxIndexNum": "4000", "listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "broker-a"}
SIZES |= {"haListenPort": "-1", "httpEnable": "false"}
# Some seconds after the last half of the recorded folder.
RECORDED_MS = 1_795_380_165_000
ADDED = {"TRAN_PREPARED_QUEUE_OFFSET"}
"""What ours adds to a copy: which half it is of."""

RECORDINGS = ["JSON", "ROCKETMQ"]


def frames(recording: str, code: int, *, response: bool = False) -> list[Command]:
    rows = [json.loads(line) for line in (DATA / "transactions-frames.jsonl").read_text().splitlines()]
    wanted = [
        row for row in rows if (row["recording"], row["requestCode"], row["isResponse"]) == (recording, code, response)
    ]
    return [decode(bytes.fromhex(row["frame"])[4:]) for row in wanted]


class Peer:
    """A producer's connection to a broker."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Command] = asyncio.Queue()
        self.client = RemotingClient({RequestCode.CHECK_TRANSACTION_STATE: self._check})

    def _check(self, _connection: Connection, request: Command) -> None:
        self.asked.put_nowait(request)

    async def ask(self, broker: Broker, request: Command) -> Command:
        return await self.client.invoke(broker.address, request, 5.0)

    async def beat(self, broker: Broker, group: str) -> None:
        body = HeartbeatData(clientID="c", producerDataSet=[ProducerData(groupName=group)]).encode()
        answer = await self.ask(broker, Command.request(RequestCode.HEART_BEAT, None, body))
        assert answer.code == ResponseCode.SUCCESS


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    made = Peer()
    yield made
    await made.client.close()


async def started(folder: Path, clock: ManualClock, **values: str) -> Broker:
    settings = {**SIZES, "storePathRootDir": str(folder), **values}
    config, store_config, unknown = load_broker_config(settings)
    assert unknown == []
    broker = Broker(config, store_config, clock)
    await broker.start()
    while not broker._parts.transactions.page()["read"]:
        await asyncio.sleep(0)
    return broker


def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[MessageExt]:
    entries = broker.store.queue_entries(topic, queue_id, 0, 100)
    records = [broker.store.record_at(entry.physical_offset) for entry in entries]
    return [decode_record(record) for record in records if record is not None]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    with tarfile.open(DATA / "store-features-clean.tar.xz") as archive:
        archive.extractall(folder)
    return folder / "b0"


def in_log(folder: Path, topic: str) -> list[MessageExt]:
    """The recorded records of a topic, in their order."""
    found = []
    for file in sorted((folder / "commitlog").iterdir()):
        content, at = memoryview(file.read_bytes()), 0
        while at + 8 <= len(content) and bytes(content[at + 4 : at + 7]) == b"\xda\xa3\x20":
            message = decode_record(content, at)
            at += message.size
            found += [message] if message.topic == topic else []
    return found


@pytest.mark.parametrize("recording", RECORDINGS)
async def test_halves_are_answered_and_ended_as_recorded(
    tmp_path: Path, recorded: Path, peer: Peer, recording: str
) -> None:
    broker = await started(tmp_path, ManualClock())
    try:
        sends = frames(recording, RequestCode.SEND_MESSAGE_V2)
        answers = frames(recording, RequestCode.SEND_MESSAGE_V2, response=True)
        halves = []
        for send, expected in zip(sends, answers, strict=True):
            answer = await peer.ask(broker, send)
            assert (answer.code, answer.ext.keys()) == (expected.code, expected.ext.keys())
            same = {name: value for name, value in expected.ext.items() if name != "msgId"}
            assert {name: answer.ext[name] for name in same} == same
            halves.append(answer.ext)
        if recording == "JSON":
            await check_records(broker, recorded, peer, halves)
    finally:
        await broker.close()


async def check_records(broker: Broker, recorded: Path, peer: Peer, halves: list[Any]) -> None:
    """Compare what is in the log, field by field."""
    theirs = in_log(recorded, TRANS_HALF_TOPIC)[: len(halves)]
    for ours, other in zip(stored(broker, TRANS_HALF_TOPIC), theirs, strict=True):
        assert ours.properties == other.properties
        assert (ours.body, ours.flag, ours.sys_flag, ours.queue_id, ours.queue_offset) == (
            other.body, other.flag, other.sys_flag, other.queue_id, other.queue_offset
        )  # fmt: skip
        assert (ours.born_timestamp, ours.reconsume_times) == (other.born_timestamp, other.reconsume_times)
        assert ours.prepared_transaction_offset == other.prepared_transaction_offset
    header = ends(halves[0], COMMIT, group="FeatTxGroup")
    assert (await peer.ask(broker, Command.request(RequestCode.END_TRANSACTION, header))).code == ResponseCode.SUCCESS
    [ours], other = stored(broker, "FeatTx"), in_log(recorded, "FeatTx")[0]
    assert ours.properties == other.properties
    assert (ours.sys_flag, ours.prepared_transaction_offset) == (other.sys_flag, other.prepared_transaction_offset)
    assert (ours.body, ours.queue_id, ours.queue_offset) == (other.body, other.queue_id, other.queue_offset)
    [ours], [other] = stored(broker, TRANS_OP_HALF_TOPIC), in_log(recorded, TRANS_OP_HALF_TOPIC)
    assert (ours.properties, ours.flag, ours.sys_flag) == (other.properties, other.flag, other.sys_flag)
    assert (bytes(ours.body), bytes(other.body)) == (b"0,", b"0,1,4,7,5,6,")


@pytest.mark.parametrize("recording", RECORDINGS)
def test_recorded_ends_are_read_and_written_the_same(recording: str) -> None:
    for request in frames(recording, RequestCode.END_TRANSACTION):
        header = request.header(EndTransactionRequestHeader)
        written = Command.request(RequestCode.END_TRANSACTION, header, oneway=True).ext
        assert {**written, "bname": "broker-a"} == request.ext
        assert request.is_oneway


@pytest.mark.parametrize("recording", RECORDINGS)
async def test_a_check_is_the_recorded_one(tmp_path: Path, peer: Peer, recording: str) -> None:
    clock = ManualClock()
    broker = await started(tmp_path, clock, transactionTimeOut="2000")
    try:
        await peer.beat(broker, "FeatTxGroup")
        for send in frames(recording, RequestCode.SEND_MESSAGE_V2):
            await peer.ask(broker, send)
        clock.advance(3)
        await broker._parts.transactions.checker.round()
        asked = [await asyncio.wait_for(peer.asked.get(), 30) for _ in range(3)]
    finally:
        await broker.close()
    ours = {request.ext["msgId"]: request for request in asked}
    for theirs in frames(recording, RequestCode.CHECK_TRANSACTION_STATE):
        if (made := ours.pop(theirs.ext["msgId"], None)) is None:
            # Three sends of each kind are recorded, this is of the fourth.
            continue
        # A broker asks in JSON, unless its JVM was told otherwise, as the recorded one was.
        assert made.serialize_type == JSON
        assert made.ext.keys() == theirs.ext.keys()
        same = ("topic", "msgId", "transactionId", "bname")
        assert {name: made.ext[name] for name in same} == {name: theirs.ext[name] for name in same}
        header = made.header(CheckTransactionStateRequestHeader)
        assert header.commitLogOffset == int((header.offsetMsgId or "")[16:], 16)
        assert (made.flag, made.code) == (theirs.flag, theirs.code)
        one, other = decode_record(made.body), decode_record(theirs.body)
        assert {name: value for name, value in one.properties.items() if name not in ADDED} == other.properties
        assert (one.topic, one.queue_id, one.body, one.flag, one.sys_flag, one.born_timestamp) == (
            other.topic, other.queue_id, other.body, other.flag, other.sys_flag, other.born_timestamp
        )  # fmt: skip
        assert (one.queue_offset, one.physical_offset) == (header.tranStateTableOffset, header.commitLogOffset)
    # The one that had been rolled back was asked about too, in a check that is not recorded.
    assert len(ours) == 1


async def test_the_halves_that_rocketmq_left_are_served(tmp_path: Path, recorded: Path, peer: Peer) -> None:
    """Three are pending, two of them as copies; five others are over, by an op message that names copies."""
    with tarfile.open(DATA / "store-features-clean.tar.xz") as archive:
        archive.extractall(tmp_path)
    pending = [json.loads(line) for line in (DATA / "store-features-clean.pending.jsonl").read_text().splitlines()]
    halves = [row for row in pending if row.get("pending") == "half message"]
    clock = ManualClock(RECORDED_MS)
    broker = await started(tmp_path / "b0", clock, transactionTimeOut="2000")
    try:
        page = broker._parts.transactions.page()
        rows = page["halves"]
        assert isinstance(rows, list)
        assert sorted(row["transactionId"] for row in rows) == sorted(row["msgId"] for row in halves)
        # Two are told to be left alone for a day, one is asked about, and rolled back.
        await peer.beat(broker, "FeatHalfGroup")
        clock.advance(60)
        await broker._parts.transactions.checker.round()
        question = await asyncio.wait_for(peer.asked.get(), 30)
        assert (question.ext["msgId"], peer.asked.qsize()) == (halves[2]["msgId"], 0)
        said = {"queueOffset": question.ext["tranStateTableOffset"], "msgId": question.ext["offsetMsgId"]}
        said["transactionId"] = question.ext["msgId"]
        answered = ends(said, ROLLBACK, group="FeatHalfGroup", checked=True)
        assert (await peer.ask(broker, Command.request(RequestCode.END_TRANSACTION, answered))).code == 0
        # Their producer ends the others by the places that it was once told.
        before = len(stored(broker, "FeatTx")), len(stored(broker, "FeatTx", 1))
        for row in halves[:2]:
            place = row["inStore"][0]
            first = {"queueOffset": str(place["queueOffset"]), "transactionId": row["msgId"]}
            first["msgId"] = f"7F0000010000808F{place['physicalOffset']:016X}"
            for _ in range(2):
                header = ends(first, COMMIT, group="FeatHalfGroup")
                answer = await peer.ask(broker, Command.request(RequestCode.END_TRANSACTION, header))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
        after = [*stored(broker, "FeatTx")[before[0] :], *stored(broker, "FeatTx", 1)[before[1] :]]
        assert [bytes(message.body) for message in after] == [b"half 0", b"half 1"]
        assert broker._parts.transactions.page()["pending"] == 0
        named = [list(over(record)) for record in records(broker)]
        assert named[1:] == [[10, 13], [8, 11], [9, 12]]
    finally:
        await broker.close()
    assert recorded.exists()


def records(broker: Broker) -> list[memoryview]:
    entries = broker.store.queue_entries(TRANS_OP_HALF_TOPIC, 0, 0, 100)
    return [record for entry in entries if (record := broker.store.record_at(entry.physical_offset)) is not None]
