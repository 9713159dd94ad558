"""How many timer messages wait for each topic (61): over files, restarts, deliveries and recalls."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from broker.delay import index as index_module
from broker.delay import pending_topics
from broker.delay.figures import COUNTED_MS, TimerFigures
from broker.delay.index import MANIFEST, TimerIndex
from broker.delay.pending_topics import TimerTopicNumbers
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection
from store import timertopics
from store.timerruns import DELETES, ROLLS, TOPIC_SHIFT, TimerEntry, TimerRun
from tests.parts.timer_parts import TimerSetting
from tests.unit.test_broker_timer_index import fill

ASKED = Command(code=RequestCode.GET_TIMER_METRICS)
NOBODY = cast(Connection, None)


def entry(index: TimerIndex, slot: int, topic: str, flags: int = 0) -> TimerEntry:
    return TimerEntry(slot, slot, 1000 + slot * 200, 200, flags | index.topics.number(topic) << TOPIC_SHIFT, slot)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TimerIndex:
    monkeypatch.setattr(index_module, "BUFFER_MAX", 10)
    monkeypatch.setattr(index_module, "MERGE_AT", 4)
    monkeypatch.setattr(timertopics, "COUNT_CHUNK", 3)
    made = TimerIndex(tmp_path / "index")
    made.open()
    return made


def test_what_waits_is_counted_wherever_it_stands(index: TimerIndex) -> None:
    fill(index, [entry(index, slot, "ABC"[slot % 3]) for slot in range(95)])
    assert len(index.runs) > 1
    assert index.pending_topics().count() == {"A": 32, "B": 32, "C": 31}
    # Forty are delivered, of runs; others come meanwhile.
    index.move(index.stamp._replace(slot=39, offset=39))
    counting = index.pending_topics()
    fill(index, [entry(index, slot, "D") for slot in range(95, 120)])
    assert counting.count() == {"A": 18, "B": 19, "C": 18}
    assert index.pending_topics().count() == {"A": 18, "B": 19, "C": 18, "D": 25}
    index.close()
    # What was in memory is read from the queue again; who is who stands in the manifest.
    again = TimerIndex(index.folder)
    again.open()
    again.move(again.stamp._replace(slot=39, offset=39))
    kept = 120 - 120 % 10
    assert again.pending_topics().count() == {"A": 18, "B": 19, "C": 18, "D": 25 - (120 - kept)}
    assert again.topics.names == ["A", "B", "C", "D"]
    again.close()


def test_a_recall_counts_off_what_it_recalls_and_what_is_stored_anew_still_waits(index: TimerIndex) -> None:
    fill(index, [entry(index, 1, "A"), entry(index, 2, "A"), entry(index, 3, "A", ROLLS)])
    fill(index, [entry(index, 4, "A", DELETES), entry(index, 5, "B", DELETES)])
    assert index.pending_topics().count() == {"A": 2}


def test_an_index_of_an_older_program_has_no_topics(index: TimerIndex) -> None:
    fill(index, [TimerEntry(slot, slot, 1000 + slot, 200, 0, slot) for slot in range(10)])
    path = index.folder / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["topics"]
    path.write_text(json.dumps(manifest))
    index.close()
    again = TimerIndex(index.folder)
    again.open()
    assert again.pending_topics().count() == {"rmq_sys_wheel_timer": 10}
    again.close()


def test_topics_beyond_the_limit_count_together(index: TimerIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_topics, "TOPICS_MAX", 2)
    fill(index, [entry(index, slot, "ABCD"[slot]) for slot in range(4)])
    assert index.pending_topics().count() == {"A": 1, "B": 1, "rmq_sys_wheel_timer": 2}
    assert TimerTopicNumbers(["A", "B"]).number("B") == 2


def test_a_run_that_goes_meanwhile_is_counted_all_the_same(index: TimerIndex) -> None:
    fill(index, [entry(index, slot, "A") for slot in range(20)])
    counting = index.pending_topics()
    index.reset()
    index.close_gone()
    assert counting.count() == {"A": 20}


def test_what_cannot_be_opened_leaves_nothing_open(index: TimerIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(index, [entry(index, slot, "A") for slot in range(20)])
    opened: list[int] = []
    genuine = TimerRun.another_file

    def another(run: TimerRun) -> int:
        if opened:
            raise OSError("too many open files")
        opened.append(genuine(run))
        return opened[0]

    monkeypatch.setattr(TimerRun, "another_file", another)
    with pytest.raises(OSError, match="too many"):
        index.pending_topics()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


class Aside:
    """Another thread, whose work is done when the test says so."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def __call__(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.work.append((work, then))

    def do(self) -> None:
        work, then = self.work.pop()
        try:
            found = work()
        except OSError as error:
            found = error
        then(found)


async def test_many_who_ask_cost_one_count(tmp_path: Path) -> None:
    setting, aside = TimerSetting(tmp_path / "store"), Aside()
    told = TimerFigures(setting.service, setting.clock, aside)
    slots = [setting.send(f"K{number}", topic=topic, TIMER_DELAY_SEC=60) for number, topic in enumerate("AAB")]
    setting.recall("K1", slots[1], topic="A")
    setting.pass_time(1)

    async def ask() -> dict[str, Any]:
        body: dict[str, Any] = orjson.loads(bytes((await told.metrics(NOBODY, ASKED)).body))
        return {topic: one["count"] for topic, one in body["timingCount"].items()}

    asking = [asyncio.create_task(ask()) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(aside.work) == 1
    # Who gives up takes nothing from the others.
    asking.pop().cancel()
    await asyncio.sleep(0)
    aside.do()
    assert await asyncio.gather(*asking) == [{"A": 1, "B": 1}] * 2
    assert await ask() == {"A": 1, "B": 1}
    assert aside.work == []
    setting.send("K4", topic="B", TIMER_DELAY_SEC=60)
    setting.pass_time(COUNTED_MS / 1000)
    later = asyncio.create_task(ask())
    await asyncio.sleep(0)
    aside.do()
    assert await later == {"A": 1, "B": 2}
    setting.close()


async def test_a_count_that_fails_is_told_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, aside = TimerSetting(tmp_path / "store"), Aside()
    told = TimerFigures(setting.service, setting.clock, aside)

    def fails() -> None:
        raise OSError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(setting.service.index, "pending_topics", fails)
        with pytest.raises(CommandError, match="cannot be counted: no more"):
            await told.metrics(NOBODY, ASKED)
    asking = asyncio.create_task(told.metrics(NOBODY, ASKED))
    await asyncio.sleep(0)
    aside.do()
    assert orjson.loads(bytes((await asking).body))["timingCount"] == {}
    setting.close()
