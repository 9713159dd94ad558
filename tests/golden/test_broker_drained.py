"""A store folder of RocketMQ 5.5.0 with something of everything pending is opened once, and all of it is delivered."""

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.topics import SCHEDULE_TOPIC
from runtime.clock import ManualClock
from tests.golden.test_broker_transactions import DATA, RECORDED_MS, Peer, started, stored
from tests.parts.transaction_parts import COMMIT, ROLLBACK, ends

LEVEL_18_MS = 7_200_000
PATIENCE_S = 20.0
# Longer than everything waits: with the defaults the files of what was delivered would be gone.
KEPT = {"fileReservedTime": "1000", "transactionTimeOut": "2000"}


def pending(kind: str) -> list[dict[str, Any]]:
    rows = map(json.loads, (DATA / "store-features-clean.pending.jsonl").read_text().splitlines())
    return [row for row in rows if row.get("pending") == kind]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder; whoever waits for a time looks at the clock that the test turns."""
    for module in ("broker.messages.delay_levels", "broker.delay.timers"):
        monkeypatch.setattr(f"{module}.TIMER_SECONDS_MAX", 0.02)
    with tarfile.open(DATA / "store-features-clean.tar.xz") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "b0"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    made = Peer()
    yield made
    await made.client.close()


class Draining:
    """One broker, and the time that passes for it."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker, self.clock = broker, clock

    def came(self, topic: str) -> list[str]:
        queues = self.broker.store.topics().get(topic, [])
        found = [message for queue_id in queues for message in stored(self.broker, topic, queue_id)]
        return [one.properties["UNIQ_KEY"] for one in sorted(found, key=lambda one: one.physical_offset)]

    def at(self, moment_ms: int) -> None:
        self.clock.advance(max(0.0, (moment_ms - self.clock.now_ms()) / 1000))
        self.broker._parts.pop._stirred.set()

    def nothing_waits(self) -> bool:
        parts = self.broker._parts
        done = parts.transactions.page()["pending"] == 0 and parts.schedule.progress()[18] == 1
        return done and parts.timers.service.index.count == 0

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self.broker._parts.pop._stirred.set()
                await asyncio.sleep(0.01)


async def halves_are_checked(draining: Draining, peer: Peer, wanted: list[str]) -> list[Command]:
    """Have the checker ask, and return the questions."""
    await peer.beat(draining.broker, "FeatHalfGroup")
    await draining.broker._parts.transactions.checker.round()
    asked = [await asyncio.wait_for(peer.asked.get(), 5) for _ in wanted]
    assert sorted(one.ext["msgId"] for one in asked) == sorted(wanted)
    assert peer.asked.empty()
    return asked


async def told(draining: Draining, peer: Peer, question: Command, state: int) -> None:
    said = {"queueOffset": question.ext["tranStateTableOffset"], "msgId": question.ext["offsetMsgId"]}
    said["transactionId"] = question.ext["msgId"]
    header = ends(said, state, group="FeatHalfGroup", checked=True)
    answer = await peer.ask(draining.broker, Command.request(RequestCode.END_TRANSACTION, header))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_everything_that_rocketmq_left_is_delivered_once(folder: Path, peer: Peer) -> None:
    clock = ManualClock(RECORDED_MS)
    broker = await started(folder, clock, **KEPT)
    draining = Draining(broker, clock)
    timers = sorted((row["deliverMs"], row["msgId"]) for row in pending("timer"))
    (level,) = pending("delay level 18")
    popped = sorted(row["msgId"] for row in pending("popped, not acknowledged"))
    halves = [row["msgId"] for row in pending("half message")]
    assert (len(timers), len(popped), len(halves)) == (4, 4, 3)
    try:
        before = draining.came("FeatTimer")
        transactions = draining.came("FeatTx")
        # One half is asked about now, and rolled back; two are to be left alone for a day.
        clock.advance(60)
        (question,) = await halves_are_checked(draining, peer, halves[2:])
        await told(draining, peer, question, ROLLBACK)

        (waiting,) = stored(broker, SCHEDULE_TOPIC, 17)
        level_due = waiting.store_timestamp + LEVEL_18_MS
        due = sorted([*timers, (level_due, level["msgId"])])
        for number, (due_ms, key) in enumerate(due):
            draining.at(due_ms - 1)
            # Nothing is early: everybody looks at the clock once more.
            await asyncio.sleep(0.1)
            assert draining.came("FeatTimer") == [*before, *[one for _, one in due[:number]]]
            # A timer message may be late by its precision.
            draining.at(due_ms + 1001)
            await draining.until(lambda key=key: key in draining.came("FeatTimer"))  # type: ignore[misc]
            if key == timers[2][1]:
                # That was a day; the halves came a second after it.
                clock.advance(60)
                asked = await halves_are_checked(draining, peer, halves[:2])
                for one in asked:
                    await told(draining, peer, one, COMMIT)
        await draining.until(lambda: len(draining.came("%RETRY%FeatPopPending_FeatPop")) >= len(popped))

        draining.at(clock.now_ms() + 10 * 24 * 3_600_000)
        # What is done with is noted behind its delivery.
        await draining.until(draining.nothing_waits)
        await asyncio.sleep(0.2)
        assert draining.came("FeatTimer") == [*before, *[key for _, key in due]], "none twice, and not the recalled one"
        assert sorted(draining.came("%RETRY%FeatPopPending_FeatPop")) == popped
        assert draining.came("FeatTx") == [*transactions, *halves[:2]]
        assert draining.nothing_waits()
        ends_before = {topic: len(draining.came(topic)) for topic in broker.store.topics() if topic.startswith("Feat")}
    finally:
        await broker.close()

    # Opened once more there is nothing left to do.
    broker = await started(folder, clock, **KEPT)
    draining = Draining(broker, clock)
    try:
        draining.at(clock.now_ms() + 24 * 3_600_000)
        await asyncio.sleep(0.2)
        assert {topic: len(draining.came(topic)) for topic in ends_before} == ends_before
    finally:
        await broker.close()
