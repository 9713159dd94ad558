"""Metadata between brokers as a RocketMQ 5.5.0 master answers for it, byte for byte, and as its store folder holds it.

metadata-JSON.jsonl: what such a master was asked (the requests of our slave) and what it answered, frames in hex. It
has the topic Copied, eight messages and a delayed one in it, the group CopiedGroup with an offset and a request mode.
"""

import json
import tarfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.master_slave.table_requests import MasterTables
from remoting import fastjson
from remoting.bodies.registry import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    SubscriptionGroupTable,
    TopicConfigTable,
)
from remoting.client import RemotingClient
from remoting.codec import decode
from remoting.codes import ClassicCode, RequestCode
from remoting.command import Command
from remoting.errors import ResponseError
from remoting.server import Connection, RemotingServer
from tests.parts.slave_parts import NEVER_MS, MasterBroker, SlaveBroker, Tables, copying, serving

DATA = Path(__file__).parent / "data"


class Exchange(NamedTuple):
    request: Command
    answer: Command


def exchanges() -> dict[str, Exchange]:
    """What was recorded, by name."""
    rows = map(json.loads, (DATA / "metadata-JSON.jsonl").read_text().splitlines())
    return {
        row["name"]: Exchange(decode(bytes.fromhex(row["request"])[4:]), decode(bytes.fromhex(row["answer"])[4:]))
        for row in rows
    }


RECORDED = exchanges()


class RecordedMaster:
    """Answers as the recorded master did; a request that it was never asked is the test's failure."""

    def __init__(self) -> None:
        codes = {exchange.request.code for exchange in RECORDED.values()}
        self.server = RemotingServer(dict.fromkeys(codes, self._answer), name="recorded")
        self.strange: list[Command] = []

    def _answer(self, _connection: Connection, request: Command) -> Command:
        for asked, answer in RECORDED.values():
            # The recorder asked for all that is left at once, as the slave does; what it has seen of news is its own.
            news = request.code == ClassicCode.AWAIT_METADATA
            if asked.code == request.code and (news or asked.ext == request.ext):
                return Command.response(answer.code, answer.remark, None, answer.body, answer.ext)
        self.strange.append(request)
        raise AssertionError(f"never asked: {request!r} {request.ext}")


async def copy_recorded(folder: Path) -> SlaveBroker:
    """Return a slave that has copied the recorded master, closed again."""
    master = RecordedMaster()
    await master.server.start("127.0.0.1", 0)
    try:
        async with copying(SlaveBroker(folder, f"127.0.0.1:{master.server.port}", NEVER_MS)) as slave:
            await slave.copied()
            assert slave.copies.status()["news"] is False
    finally:
        await master.server.close()
    assert master.strange == []
    return slave


async def test_a_slave_takes_what_rocketmq_answers(tmp_path: Path) -> None:
    slave = await copy_recorded(tmp_path)
    topics = TopicConfigTable.decode(RECORDED["topics whole"].answer.body)
    assert slave.topics.tables == topics.topicConfigTable
    assert len(slave.topics.tables) == 16
    assert slave.topics.data_version == topics.dataVersion
    groups = SubscriptionGroupTable.decode(RECORDED["groups rest"].answer.body)
    assert len(slave.groups.tables) == 9
    assert slave.groups.tables["CopiedGroup"] == groups.subscriptionGroupTable["CopiedGroup"]
    assert slave.groups.tables["CopiedGroup"].retryMaxTimes == 5
    assert slave.groups.data_version == groups.dataVersion
    assert slave.offsets.offsets("CopiedGroup", "Copied") == {1: 2}
    assert slave.schedule.progress() == {1: 1}
    modes = json.loads((tmp_path / "messageRequestMode.json").read_bytes())
    assert modes == json.loads(bytes(RECORDED["modes"].answer.body))


async def test_our_master_answers_as_rocketmq_does(tmp_path: Path) -> None:
    await copy_recorded(tmp_path)
    async with serving(MasterBroker(tmp_path)) as master:
        client = RemotingClient()
        for name in ("topics whole", "topics first", "groups first", "delays", "modes"):
            request, recorded = RECORDED[name]
            answer = await client.invoke(master.address, Command.request(request.code, ext=request.ext))
            assert answer.code == recorded.code
            assert recorded.ext.items() <= answer.ext.items()
            ours, theirs = fields_of(answer), fields_of(recorded)
            assert ours.keys() - theirs.keys() <= {"topicQueueMappingInfoMap"}
            if not name.endswith("first"):
                # Who asks for no pages is older than the queues' mappings.
                for key in (key for key in theirs if "apping" not in key):
                    assert ours[key] == theirs[key], f"{name}: {key}"
        offsets = ConsumerOffsetTable.decode((await client.call(master.address, RECORDED["offsets"].request.code)).body)
        assert offsets.offsetTable == ConsumerOffsetTable.decode(RECORDED["offsets"].answer.body).offsetTable
        await client.close()


def fields_of(answer: Command) -> dict[str, Any]:
    content = fastjson.loads(answer.body)
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("name", ["commit", "commit unknown group", "commit unknown topic"])
async def test_an_offset_that_is_sent_to_the_master_is_answered_alike(tmp_path: Path, name: str) -> None:
    await copy_recorded(tmp_path)
    request, recorded = RECORDED[name]
    async with serving(MasterBroker(tmp_path)) as master:
        client = RemotingClient()
        answer = await client.invoke(master.address, Command.request(request.code, ext=request.ext))
        await client.close()
    if name == "commit unknown group":
        assert (recorded.code, answer.code) == (26, 0), "this broker creates groups by itself (autoCreate…)"
    else:
        assert answer.code == recorded.code


async def test_rocketmq_knows_no_news() -> None:
    master, client = RecordedMaster(), RemotingClient()
    await master.server.start("127.0.0.1", 0)
    tables = MasterTables(client, f"127.0.0.1:{master.server.port}")
    assert await tables.news(-1, 0) is None
    with pytest.raises(ResponseError):
        await tables.commit(("Nothing", "CopiedGroup", 1), 2)
    await client.close()
    await master.server.close()


async def test_the_recorded_store_of_a_master_is_copied_whole(tmp_path: Path) -> None:
    folder = tmp_path / "b0" / "config"
    folder.mkdir(parents=True)
    with tarfile.open(DATA / "store-sync-slave-clean.tar.xz") as archive:
        for name in ("topics", "subscriptionGroup", "consumerOffset", "delayOffset"):
            member = archive.extractfile(f"b0/config/{name}.json")
            assert member is not None
            (folder / f"{name}.json").write_bytes(member.read())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(folder)))
        delays = DelayOffsetTable.decode(before["delayOffset.json"])
        master.schedule.take_over(delays)
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        await slave.copied()
    again = Tables(tmp_path / "slave", leads=False)
    topics = TopicConfigTable.decode(before["topics.json"])
    assert again.topics.tables == topics.topicConfigTable
    assert again.topics.data_version == topics.dataVersion
    groups = SubscriptionGroupTable.decode(before["subscriptionGroup.json"])
    assert again.groups.tables == groups.subscriptionGroupTable
    offsets = ConsumerOffsetTable.decode(before["consumerOffset.json"])
    assert offsets.offsetTable
    for key, queues in offsets.offsetTable.items():
        topic, _, group = key.rpartition("@")
        assert again.offsets.offsets(group, topic) == queues
    written = json.loads((tmp_path / "slave" / "delayOffset.json").read_bytes())
    assert written["offsetTable"] == {str(level): offset for level, offset in delays.offsetTable.items()}
    assert RequestCode.GET_ALL_DELAY_OFFSET in master.asked
