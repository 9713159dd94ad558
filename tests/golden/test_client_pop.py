"""POP as RocketMQ 5.5.0's Java client did it: from the same answers come the same handles, and the same requests."""

import json
from pathlib import Path
from typing import Any

from client.consume.popapi import PopApi, PopRequest, PopStatus
from client.consume.pophandle import batch_body, read_pop_handle
from client.consume.subscription import subscribe_by_tags
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.command import Command

ROWS = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "pop-client.jsonl").read_text("utf-8").splitlines()
]
FRAMES = [
    (row["client"], row["requestCode"], row["isResponse"], decode(bytes.fromhex(row["frame"])[4:]))
    for row in ROWS
    if "frame" in row
]
TOLD = [row for row in ROWS if "what" in row]


class Recorded:
    """Answers each request as the recorded broker did, and keeps what was asked."""

    def __init__(self, answer: Command) -> None:
        self.answer = answer
        self.asked: list[Command] = []
        self.remoting = self

    async def invoke(self, _address: str, request: Command, _timeout: float) -> Command:
        self.asked.append(request)
        return self.answer

    async def call(self, _address: str, code: int, header: Any = None, body: bytes = b"") -> Command:
        return await self.invoke("", Command.request(code, header, body), 0.0)

    def look_at_way(self, _address: str, _answer: Command) -> None:
        pass


def pairs(code: int) -> list[tuple[Command, Command]]:
    """Recorded requests of a code with their answers."""
    asked = {(client, command.opaque): command for client, number, answers, command in FRAMES if not answers}
    return [
        (asked[client, command.opaque], command)
        for client, number, answers, command in FRAMES
        if number == code and answers and (client, command.opaque) in asked
    ]


async def popped(request: Command, answer: Command) -> tuple[Recorded, Any]:
    recorded, ext = Recorded(answer), request.ext
    api: Any = recorded
    wanted = PopRequest(
        ext["consumerGroup"], subscribe_by_tags(ext["topic"], ext["exp"], 1), int(ext["maxMsgNums"]),
        int(ext["invisibleTime"]), int(ext["pollTime"]), int(ext["bornTime"]), ext["initMode"] == "1",
    )  # fmt: skip
    return recorded, await PopApi(api).pop("address", "broker-a", wanted)


async def test_of_every_recorded_pop_the_handles_are_the_java_client_s() -> None:
    compared = set()
    for request, answer in pairs(RequestCode.POP_MESSAGE):
        if answer.code:
            continue
        _, (status, messages, pop_ms) = await popped(request, answer)
        assert status is PopStatus.FOUND
        assert pop_ms == int(answer.ext["popTime"])
        theirs = {row["msgId"]: row for row in TOLD if row.get("popCk", "").split(" ")[1:2] == [str(pop_ms)]}
        for message, handle in messages:
            if not theirs:
                continue
            told = theirs[message.msg_id]
            assert handle.text == message.properties["POP_CK"] == told["popCk"]
            assert message.reconsume_times == told.get("reconsumeTimes", 0)
            if "properties" in told:
                assert f"1ST_POP_TIME={message.properties['1ST_POP_TIME']}," in told["properties"]
            compared.add(told["popCk"])
        assert len(messages) == len(theirs or messages)
    assert len(compared) >= 16
    assert any(read_pop_handle(text).retry == "1" for text in compared)


async def test_a_pop_says_what_the_java_client_said() -> None:
    seen = 0
    for request, answer in pairs(RequestCode.POP_MESSAGE):
        if request.ext["queueId"] != "-1" or request.ext["order"] == "true" or request.ext["expType"] != "TAG":
            continue
        if answer.code and answer.code != 210:
            continue
        recorded, _ = await popped(request, answer)
        theirs = {name: value for name, value in request.ext.items() if name != "bname"}
        assert recorded.asked[0].ext == theirs
        seen += 1
    assert seen >= 5


async def test_nothing_there_and_too_late_are_told_apart() -> None:
    answers = [(await popped(*pair))[1] for pair in pairs(RequestCode.POP_MESSAGE) if pair[1].code == 210]
    assert {answer.status for answer in answers} == {PopStatus.NOTHING, PopStatus.LATE}
    assert all(bool(answer.pop_ms) == (answer.status is PopStatus.NOTHING) for answer in answers)


async def test_acknowledgements_say_what_the_java_client_said() -> None:
    seen = set()
    for request, answer in pairs(RequestCode.ACK_MESSAGE):
        ext = request.ext
        handle = read_pop_handle(ext["extraInfo"])
        if answer.code or int(ext["offset"]) != handle.offset:
            continue
        recorded = Recorded(answer)
        api: Any = recorded
        topic = ext["topic"].removeprefix("%RETRY%").removeprefix(ext["consumerGroup"] + "_")
        await PopApi(api).acknowledge("address", ext["consumerGroup"], topic, handle)
        assert recorded.asked[0].ext == {name: value for name, value in ext.items() if name != "bname"}
        seen.add(ext["topic"])
    assert "%RETRY%FeatPopPushGroup_FeatPopPush" in seen
    assert "FeatPop" in seen


async def test_a_changed_invisible_time_has_the_handle_of_the_java_client_s() -> None:
    told = {row["extraInfo"] for row in TOLD if "extraInfo" in row}
    made = set()
    for request, answer in pairs(RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        ext = request.ext
        handle = read_pop_handle(ext["extraInfo"])
        if answer.code:
            continue
        recorded = Recorded(answer)
        api: Any = recorded
        changed = await PopApi(api).change_invisible(
            "address", ext["consumerGroup"], ext["topic"], handle, int(ext["invisibleTime"])
        )
        assert recorded.asked[0].ext == {name: ext[name] for name in ext if name not in {"bname", "suspend"}}
        made.add(changed.text)
    assert told <= made


def test_a_batch_has_the_body_of_the_java_client_s() -> None:
    bodies = [bytes(request.body) for request, _ in pairs(RequestCode.BATCH_ACK_MESSAGE) if request.body]
    first = read_pop_handle("0 1795380096990 6000 5 0 broker-a 0 1")
    ours = [
        batch_body("broker-a", "FeatPopRaw", [("FeatPop", first), ("FeatPop", first._replace(offset=2))]),
        batch_body("broker-a", "FeatPopRaw", [("FeatPop", first._replace(offset=4))]),
    ]
    assert ours == bodies[:2]
