"""Replies that a client of RocketMQ 5.5.0 sent, put to our broker byte for byte: pushes and answers are RocketMQ's.

Pushed (326) is what REPLY_TO_CLIENT names, with the same fields and properties; answers have the same codes, remarks
and fields, also when the client is not there.
"""

import asyncio
import json
from pathlib import Path

import pytest

from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.codec import decode, encode
from remoting.codes import RequestCode, ResponseCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.framing import FrameReader
from remoting.properties import decode_properties
from tests.golden.test_broker_answers import Wire, wire

__all__ = ["wire"]

FRAMES = Path(__file__).parent / "data" / "replies.jsonl"
# The client that the recorded replies are for.
ASKER = "127.0.0.1@p1"
# What depends on when and where it was pushed.
OF_THE_MOMENT = {"storeTimestamp", "bornHost", "storeHost", "properties"}


class Asker:
    """The client that asked: takes what is pushed to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader()

    async def beat(self) -> None:
        body = HeartbeatData(clientID=ASKER, producerDataSet=[ProducerData(groupName="P")]).encode()
        self.writer.write(encode(Command.request(RequestCode.HEART_BEAT, None, body)))
        assert (await self.next()).code == ResponseCode.SUCCESS

    async def next(self) -> Command:
        async with asyncio.timeout(30):
            while True:
                data = await self._reader.read(1 << 16)
                assert data, "the broker closed the connection"
                for command in self._frames.feed(data):
                    return command

    def answer(self, pushed: Command) -> None:
        answer = Command.response(ResponseCode.SUCCESS)
        answer.opaque = pushed.opaque
        self.writer.write(encode(answer))


def recorded(kind: int) -> list[tuple[bytes, Command, Command | None]]:
    """Each reply, the answer to it, and what was pushed of it."""
    entries = [json.loads(line) for line in FRAMES.read_text().splitlines()]
    entries = [entry for entry in entries if entry["serializeType"] == kind]
    frames = [(entry, decode(bytes.fromhex(entry["frame"])[4:])) for entry in entries]
    pushes = [command for entry, command in frames if entry["requestCode"] == 326 and not entry["isResponse"]]
    found: list[tuple[bytes, Command, Command | None]] = []
    for entry, _ in frames:
        if entry["requestCode"] == 326 or entry["isResponse"]:
            continue
        (answer,) = [
            command
            for other, command in frames
            if other["isResponse"] and other["opaque"] == entry["opaque"] and other["requestCode"] != 326
        ]
        found.append((bytes.fromhex(entry["frame"]), answer, None if answer.code else pushes.pop(0)))
    return found


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
async def test_a_reply_is_pushed_and_answered_as_by_rocketmq(wire: Wire, kind: int) -> None:
    asker = Asker(*await asyncio.open_connection(*wire.writer.get_extra_info("peername")))
    await asker.beat()
    exchanges = recorded(kind)
    assert [decode(frame[4:]).code for frame, _, _ in exchanges] == [325, 325, 324]
    for frame, expected, push in exchanges:
        asked = asyncio.ensure_future(wire.ask(frame))
        if push is not None:
            pushed = await asker.next()
            _compare(pushed, push)
            own = wire.writer.get_extra_info("sockname")
            assert pushed.ext["bornHost"] == f"{own[0]}:{own[1]}"
            assert not asked.done(), "the client has not answered"
            asker.answer(pushed)
        answer = await asked
        assert (answer.code, answer.remark, answer.opaque) == (expected.code, expected.remark, expected.opaque)
        assert answer.ext.keys() == expected.ext.keys()
        for name in answer.ext.keys() - {"msgId", "queueOffset"}:
            assert answer.ext[name] == expected.ext[name], name
        assert len(answer.ext["msgId"]) == len(expected.ext["msgId"])
    asker.writer.close()
    await asker.writer.wait_closed()


def _compare(pushed: Command, push: Command) -> None:
    assert pushed.code == push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert not pushed.is_oneway
    assert bytes(pushed.body) == bytes(push.body)
    assert pushed.ext.keys() == push.ext.keys()
    for name in push.ext.keys() - OF_THE_MOMENT:
        assert pushed.ext[name] == push.ext[name], name
    ours = decode_properties(pushed.ext["properties"].encode())
    theirs = decode_properties(push.ext["properties"].encode())
    assert ours.keys() == theirs.keys()
    for name in theirs.keys() - {"PUSH_REPLY_TIME"}:
        assert ours[name] == theirs[name], name
