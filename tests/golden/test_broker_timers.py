"""Timer messages against RocketMQ 5.5.0: its folder with pending ones is served, its frames are answered alike."""

import asyncio
import json
import operator
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.delay.feed import Base
from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.codec import decode, encode
from remoting.codes import RequestCode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.topics import REVIVE_LOG_PREFIX
from runtime.clock import ManualClock
from store.timerwheel import read_check
from tests.cluster.broker_peer import v2
from tests.golden.test_broker_answers import Wire
from tests.parts.timer_parts import DAY_MS, LIMITS, SIZES, TimerSetting

DATA = Path(__file__).parent / "data"
# What the folder was made with.
RECORDED = replace(
    SIZES, mappedFileSizeCommitLog=16384, mappedFileSizeConsumeQueue=2000, maxHashSlotNum=1000, maxIndexNum=4000
)


def pending() -> list[dict[str, Any]]:
    text = (DATA / "store-features-clean.pending.jsonl").read_text("utf-8")
    return [line for line in map(json.loads, text.splitlines()) if line.get("pending", "").startswith("timer")]


@pytest.fixture
def left(tmp_path: Path) -> Iterator[TimerSetting]:
    with tarfile.open(DATA / "store-features-clean.tar.xz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name != "b0/timerwheel" else None
            if content is not None:
                path = tmp_path / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    check = read_check(tmp_path / "b0")
    assert check is not None
    clock = ManualClock()
    clock.advance((check.delivered_ms - clock.now_ms()) / 1000)
    made = TimerSetting(tmp_path / "b0", clock=clock, base=Base(check.delivered_ms - 1, check.taken), sizes=RECORDED)
    made.service.start()
    yield made
    made.close()


def test_what_rocketmq_left_pending_is_delivered_in_time_and_what_was_recalled_is_not(left: TimerSetting) -> None:
    before = left.keys("FeatTimer")
    assert len(before) == 4
    due = sorted((each["deliverMs"], each["msgId"]) for each in pending() if each["deliverMs"] is not None)
    assert len(due) == 4
    for number, (deliver_ms, key) in enumerate(due):
        left.pass_time((deliver_ms - 1 - left.clock.now_ms()) / 1000)
        assert left.keys("FeatTimer")[4:] == [key for _, key in due[:number]], "none early"
        left.pass_time(2)
        assert left.keys("FeatTimer")[4:] == [key for _, key in due[: number + 1]]
        # The index goes on where it was, is built anew, or the broker was only stopped.
        (left.restart, lambda: left.kill(index=False), left.kill)[number % 3]()
        left.service.start()
    left.pass_time(10 * 24 * 3600)
    assert left.keys("FeatTimer") == [*before, *[key for _, key in due]]
    assert left.service.rolled == 0
    [recalled] = [each["msgId"] for each in pending() if each["deliverMs"] is None]
    assert recalled not in left.keys("FeatTimer")


def test_what_waits_is_counted_by_topic_as_rocketmq_counts_it(left: TimerSetting) -> None:
    with tarfile.open(DATA / "store-features-clean.tar.xz") as archive:
        file = archive.extractfile("b0/config/timermetrics")
        assert file is not None
        said = json.loads(file.read())["timingCount"]
    left.pass_time(0)
    assert left.service.index.pending_topics().count() == {topic: one["count"] for topic, one in said.items()}


def test_pops_check_points_come_into_their_topic(left: TimerSetting) -> None:
    topic = f"{REVIVE_LOG_PREFIX}DefaultCluster"
    before = sum(left.store.max_offset(topic, queue) for queue in range(8))
    left.pass_time(10 * 24 * 3600)
    assert sum(left.store.max_offset(topic, queue) for queue in range(8)) > before


class Recording(NamedTuple):
    """Frames of timer messages in one serialization."""

    file: str
    serialize_type: int
    first_ms: int
    """When the first of them was sent."""
    last_ms: int
    """When the last recall came, some time after the others."""
    last_handle: str
    """How that one's handle begins."""


RECORDINGS = [
    Recording(
        "timer-frames.jsonl", JSON, 1_795_380_100_827, 1_795_380_132_865,
        "djEgRmVhdFRpbWVyIGJyb2tlci1hIDE3OTUzODU1",
    ),
    Recording(
        "timer-frames-ROCKETMQ.jsonl", ROCKETMQ, 1_795_380_372_651, 1_795_380_435_865,
        "djEgRmVhdFRpbWVyIGJyb2tlci1hIDE3OTUzODU4",
    ),
]  # fmt: skip


def exchanges(file: str) -> list[tuple[bytes, Command]]:
    """Requests of the official client, and RocketMQ's answers."""
    text = (DATA / file).read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    key = operator.itemgetter("client", "opaque")
    answers = {key(line): decode(bytes.fromhex(line["frame"])[4:]) for line in lines if line["isResponse"]}
    return [(bytes.fromhex(line["frame"]), answers[key(line)]) for line in lines if not line["isResponse"]]


@pytest.mark.parametrize("recording", RECORDINGS, ids=["JSON", "ROCKETMQ"])
async def test_sends_recalls_and_refusals_are_answered_as_by_rocketmq(tmp_path: Path, recording: Recording) -> None:
    clock = ManualClock()
    clock.advance((recording.first_ms - clock.now_ms()) / 1000)
    values = {
        "brokerName": "broker-a", "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "listenPort": "0",
        "httpEnable": "false", "storePathRootDir": str(tmp_path), "mappedFileSizeCommitLog": "1048576",
        "haListenPort": "-1", "recallMessageEnable": "true",
    }  # fmt: skip
    config, store_config, unknown = load_broker_config(values)
    assert unknown == []
    broker = Broker(config, store_config, clock)
    await broker.start()
    wire = Wire(*await asyncio.open_connection("127.0.0.1", broker.port))
    codes = []
    # A topic that a recall names must be there; that of the others is made by the first send.
    await wire.ask(encode(Command.request(RequestCode.SEND_MESSAGE_V2, v2(topic="FeatTx"), b"x")))
    for frame, expected in exchanges(recording.file):
        if decode(frame[4:]).ext.get("recallHandle", "").startswith(recording.last_handle):
            clock.advance((recording.last_ms - clock.now_ms()) / 1000)
        answer = await wire.ask(frame)
        assert answer.serialize_type == expected.serialize_type == recording.serialize_type
        assert (answer.code, answer.remark) == (expected.code, expected.remark)
        assert set(answer.ext) == set(expected.ext)
        places = {"msgId", "queueOffset"} if "queueOffset" in expected.ext else set()
        assert {k: v for k, v in answer.ext.items() if k not in places} == {
            k: v for k, v in expected.ext.items() if k not in places
        }
        codes.append(answer.code)
    assert sorted(codes) == [0, 0, 0, 13, 17, 604, 604, 604]
    wire.writer.close()
    await wire.writer.wait_closed()
    await broker.close()


def test_what_rocketmq_was_about_to_store_anew_is_not_forgotten(tmp_path: Path) -> None:
    """A message of three days waits two in RocketMQ's wheel; whether it was stored anew just before the end is open."""
    clock = ManualClock()
    sent = clock.now_ms()
    for number, (behind_ms, comes) in enumerate(((1000, True), (4000, True), (6000, False))):
        setting = TimerSetting(tmp_path / f"store{number}", clock=clock)
        # As RocketMQ's: its record does not say when it is stored anew.
        setting.limits = LIMITS._replace(window_ms=40 * DAY_MS)
        setting.store_timer("A", sent + 3 * DAY_MS)
        setting.close()
        setting.base = Base(clock.now_ms() // 1000 * 1000 + 2 * DAY_MS + behind_ms, 1)
        shutil.rmtree(setting.root / "timerindex", ignore_errors=True)
        setting.open()
        setting.service.start()
        setting.pass_time(0)
        assert bool(setting.service.index.count) == comes
        setting.close()


def test_what_rocketmq_delivered_of_a_folder_of_ours_does_not_come_once_more(tmp_path: Path) -> None:
    setting = TimerSetting(tmp_path / "store")
    setting.service.start()
    for key, seconds in (("A", 5), ("B", 50), ("C", 500)):
        setting.send(key, TIMER_DELAY_SEC=seconds)
    setting.pass_time(10)
    assert setting.keys() == ["A"]
    # RocketMQ runs, delivers B, and stops; its timer had read all three.
    setting.close()
    setting.clock.advance(100)
    setting.base = Base(setting.clock.now_ms() // 1000 * 1000 - 1, 3)
    for _ in range(3):
        setting.open()
        setting.service.start()
        setting.pass_time(1)
        setting.store_timer("old", setting.clock.now_ms() - 20_000)
        setting.pass_time(20)
        setting.close()
    setting.open()
    setting.service.start()
    setting.pass_time(500)
    assert setting.keys() == ["A", "old", "old", "old", "C"]
    setting.close()
