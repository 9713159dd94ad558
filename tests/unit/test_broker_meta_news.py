"""broker/metadata/feed.py: a slave that waits is told of changes, together, and no more often than they are worth."""

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.feed import PROGRESS_SECONDS, SOON_SECONDS, WAIT_MS_MAX, WAITERS_MAX, MetaNews
from broker.metadata.operations import LocalMeta, Table
from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection
from runtime.clock import ManualClock
from store.config import StoreConfig
from tests.parts.broker_parts import Timer

FIRST = 1000


class Slave:
    def __init__(self) -> None:
        self.closed = False
        self.attachments: dict[str, Any] = {}


class Master:
    def __init__(self, folder: Path) -> None:
        clock, live = ManualClock(), LiveConfig(BrokerConfig(), StoreConfig())
        self.timers: list[Timer] = []
        self.leads = True
        self.news = MetaNews(self._later, lambda: self.leads, FIRST)
        self.meta = LocalMeta(on_change=self.news.changes, on_progress=self.news.progresses)
        self.topics = TopicTable(folder / "topics.json", live, clock, self.meta)
        self.groups = GroupTable(folder / "subscriptionGroup.json", live, clock, self.meta)
        self.offsets = OffsetTable(folder / "consumerOffset.json", clock, self.meta)

    def _later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(seconds, call))
        return self.timers[-1]

    def waiting(self) -> list[float]:
        return [timer.at for timer in self.timers if not timer.cancelled]

    def ring(self) -> None:
        """Let the next timer fire."""
        timer = min((timer for timer in self.timers if not timer.cancelled), key=lambda timer: timer.at)
        self.timers.remove(timer)
        timer.call()

    async def ask(self, slave: Slave, seen: int = -1, wait_ms: int = 0, body: bytes | None = None) -> dict[str, Any]:
        content = orjson.dumps({"seen": seen, "wait_ms": wait_ms}) if body is None else body
        request = Command.request(ClassicCode.AWAIT_METADATA, body=content)
        answer = self.news.table()[ClassicCode.AWAIT_METADATA](cast(Connection, slave), request)
        assert inspect.isawaitable(answer)
        found = await answer
        assert found is not None
        assert found.code == ResponseCode.SUCCESS
        content = orjson.loads(found.body)
        assert isinstance(content, dict)
        return content


@pytest.fixture
async def master(tmp_path: Path) -> Master:
    return Master(tmp_path)


async def close(master: Master) -> None:
    master.news.close()
    await master.topics.close()
    await master.groups.close()


async def parked(master: Master, slave: Slave, seen: int = FIRST) -> "asyncio.Task[dict[str, Any]]":
    task = asyncio.create_task(master.ask(slave, seen, 60_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_who_knows_nothing_is_answered_at_once(master: Master) -> None:
    answer = await master.ask(Slave(), -1, 60_000)
    names = ("TOPICS", "GROUPS", "OFFSETS", "DELAY", "USERS", "MODES")
    assert answer == {"seen": FIRST, "tables": dict.fromkeys(names, FIRST)}


async def test_who_waits_is_told_of_a_change_and_of_those_that_gathered_with_it(master: Master) -> None:
    waits = await parked(master, Slave())
    master.topics.update(TopicConfig("A"))
    master.topics.update(TopicConfig("B"))
    master.groups.update(SubscriptionGroupConfig("g"))
    await asyncio.sleep(0)
    assert not waits.done()
    assert master.waiting() == [SOON_SECONDS]
    master.ring()
    answer = await waits
    assert answer["seen"] == FIRST + 1
    assert answer["tables"] == {
        "TOPICS": FIRST + 1,
        "GROUPS": FIRST + 1,
        "OFFSETS": FIRST,
        "DELAY": FIRST,
        "USERS": FIRST,
        "MODES": FIRST,
    }
    await close(master)


async def test_a_change_before_the_question_is_told_at_once(master: Master) -> None:
    master.topics.update(TopicConfig("A"))
    master.ring()
    assert (await master.ask(Slave(), FIRST, 60_000))["seen"] == FIRST + 1
    await close(master)


async def test_progress_is_told_less_often_but_a_reset_at_once(master: Master) -> None:
    waits = await parked(master, Slave())
    for offset in range(50):
        master.offsets.commit("g", "T", 0, offset, 100, None)
    assert master.waiting() == [PROGRESS_SECONDS]
    master.offsets.reset("g", "T", 0, 7)
    assert master.waiting() == [PROGRESS_SECONDS, SOON_SECONDS]
    master.ring()
    assert (await waits)["tables"]["OFFSETS"] == FIRST + 1
    assert master.waiting() == [], "what was told needs no other timer"
    master.meta.noted(Table.DELAY)
    assert master.waiting() == [PROGRESS_SECONDS]
    await close(master)


async def test_the_time_is_limited_and_its_end_is_an_answer(master: Master) -> None:
    before = asyncio.get_running_loop().time()
    answer = await master.ask(Slave(), FIRST, 20)
    assert answer["seen"] == FIRST
    assert asyncio.get_running_loop().time() - before < WAIT_MS_MAX / 1000
    assert (await master.ask(Slave(), FIRST, 0))["seen"] == FIRST


async def test_too_many_that_wait_are_refused_and_those_that_left_do_not_count(master: Master) -> None:
    slaves = [Slave() for _ in range(WAITERS_MAX)]
    tasks = [await parked(master, slave) for slave in slaves]
    with pytest.raises(CommandError) as refused:
        await master.ask(Slave(), FIRST, 60_000)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    slaves[0].closed = True
    late = await parked(master, Slave())
    await asyncio.wait_for(tasks[0], 5)
    assert not late.done()
    master.news.close()
    assert all(answer["seen"] == FIRST for answer in await asyncio.gather(late, *tasks))


async def test_one_that_asks_again_has_given_up_its_first_question(master: Master) -> None:
    slave = Slave()
    first = await parked(master, slave)
    second = await parked(master, slave)
    assert (await first)["seen"] == FIRST
    assert not second.done()
    master.news.close()
    await second


async def test_only_a_master_has_news(master: Master) -> None:
    master.leads = False
    with pytest.raises(CommandError, match="no master"):
        await master.ask(Slave())


@pytest.mark.parametrize("body", [b"", b"[]", b'{"seen": "x"}', b" " * 2000])
async def test_a_bad_question_is_refused(master: Master, body: bytes) -> None:
    with pytest.raises(CommandError) as refused:
        await master.ask(Slave(), body=body)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
