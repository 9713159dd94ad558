"""POP in order from within: what is stored while others ask, what is read late, and what nobody asks for any more."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.pop.check_points import CheckPoint, CheckPointKey, CheckPointTable, PutOff, TakenInOrder
from broker.pop.held import HeldQueue
from broker.pop.records import check_point_record, put_off_record, read_record
from broker.pop.service import RENEW_MS
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.msgid import pack_host
from remoting.record import RecordError, encode_record
from store.types import PutStatus
from tests.parts.broker_parts import broker_parts
from tests.parts.popping import Popped, popped
from tests.properties.test_broker_pop import PopRun

KEY = CheckPointKey("T", "G", 0, 5, 1000)
FIRST = TakenInOrder("", (0, 0, 0))
HOST = pack_host("127.0.0.1", 1)


def made(at: int = -1) -> CheckPoint:
    point = CheckPoint(KEY, 500, "broker-a", 2, (5, 6, 9), order=FIRST)
    point.at = at
    return point


class OneQueue(PopRun):
    """A broker of whose first queue messages are taken in order."""

    async def take(self, most: int = 32, **changes: Any) -> list[Popped]:
        answer = await self.ask(
            RequestCode.POP_MESSAGE,
            {"consumerGroup": "G", "topic": "T", "queueId": 0, "maxMsgNums": most, "invisibleTime": 1000,
             "pollTime": 0, "bornTime": self.now_ms, "initMode": 0, "order": "true", **changes},
        )  # fmt: skip
        return popped(answer) if answer.code == 0 else []

    async def settle(self, code: int, each: Popped, **changes: Any) -> Command:
        return await self.ask(
            code,
            {"consumerGroup": "G", "topic": each.message.topic, "queueId": 0, "extraInfo": each.handle,
             "offset": each.message.queue_offset, "invisibleTime": 0, **changes},
        )  # fmt: skip

    async def ack(self, each: Popped, **changes: Any) -> int:
        return (await self.settle(RequestCode.ACK_MESSAGE, each, **changes)).code


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[OneQueue]:
    async with broker_parts(tmp_path) as parts:
        run = OneQueue(parts, random.Random(1))
        await run.begin()
        for number in range(6):
            parts.put("T", 0, b"%d" % number)
        yield run
        await run.service.close()


def said(taken: list[Popped]) -> list[bytes]:
    return [each.body for each in taken]


async def test_what_is_being_acknowledged_is_not_taken_anew(one: OneQueue) -> None:
    (taken,) = await one.take(1)
    one.log.held = []
    acknowledging = asyncio.ensure_future(one.ack(taken))
    await asyncio.sleep(0)
    # Its time is over, and the acknowledgement on its way.
    one.parts.clock.advance(5)
    assert await one.take(1, attemptId="x") == []
    one.log.release()
    assert await acknowledging == 0
    assert said(await one.take(1)) == [b"1"]


async def test_an_acknowledgement_that_comes_while_it_is_taken_anew_is_too_late(one: OneQueue) -> None:
    (taken,) = await one.take(1)
    one.parts.clock.advance(5)
    one.log.held = []
    taking = asyncio.ensure_future(one.take(1))
    await asyncio.sleep(0)
    assert await one.ack(taken) == 0
    one.log.release()
    (again,) = await taking
    assert again.body == b"0"
    assert await one.take(1) == []
    # Others' queues were not held up by it, and the new handle is good.
    assert await one.ack(again) == 0
    assert said(await one.take(1)) == [b"1"]


async def test_a_refused_append_leaves_everything_as_it_was(one: OneQueue) -> None:
    taken = await one.take(2)
    one.parts.clock.advance(5)
    one.log.refuses = (PutStatus.SERVICE_NOT_AVAILABLE, 14)
    with pytest.raises(CommandError, match="try again"):
        await one.take(2)
    with pytest.raises(CommandError, match="try again"):
        await one.ack(taken[0])
    with pytest.raises(CommandError, match="try again"):
        await one.settle(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, taken[0])
    one.log.refuses = None
    assert await one.ack(taken[0]) == 0
    assert said(await one.take(2)) == [b"1"]


async def test_who_pops_without_order_takes_what_is_over_and_it_comes_by_the_retry_topic(one: OneQueue) -> None:
    assert said(await one.take(2)) == [b"0", b"1"]
    assert await one.pop() == []
    one.parts.clock.advance(5)
    assert said(await one.take(2, order="false")) == [b"0", b"1"]
    one.parts.clock.advance(5)
    await one.service.round()
    # A group that goes back to order has these first.
    found = await one.take(3)
    assert {each.message.topic for each in found[:2]} == {"%RETRY%G_T"}
    assert said(found) == [b"0", b"1", b"2"]


async def test_what_was_not_taken_then_is_refused(one: OneQueue) -> None:
    taken = await one.take(2)
    with pytest.raises(CommandError) as refused:
        await one.ack(taken[0], offset=5)
    assert refused.value.code == 13


async def test_an_offset_that_is_set_back_ends_what_is_held_behind_it(one: OneQueue) -> None:
    assert said(await one.take(4)) == [b"0", b"1", b"2", b"3"]
    one.parts.offsets.assign("G", "T", 0, 2)
    # The first two are still somebody's; then they come, then what the offset says, once.
    assert await one.take() == []
    one.parts.clock.advance(5)
    first = await one.take()
    assert said(first) == [b"0", b"1"]
    for each in first:
        assert await one.ack(each) == 0
    rest = await one.take()
    assert said(rest) == [b"2", b"3", b"4", b"5"]
    assert len(one.service._feed.table) == 1


async def test_two_changes_of_the_lead_within_a_moment_leave_each_taking_its_own_time(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        one = OneQueue(parts, random.Random(1), shared=True)
        await one.begin()
        for number in range(3):
            parts.put("T", 0, b"%d" % number)
        # Its offset is not agreed upon: the next leader gives it back, and the one after it reads no more than that.
        (lost, *_) = await one.take()
        await one.kill()
        one.service.commit()
        await one.persist()
        await one.kill()
        (taken, *_) = await one.take()
        assert taken.body == lost.body
        assert taken.handle.split(" ")[1] != lost.handle.split(" ")[1]
        await one.persist()
        await one.kill()
        parts.clock.advance(5)
        assert said(await one.take()) == [b"0", b"1", b"2"]
        await one.service.close()


async def test_what_nobody_asks_for_is_written_anew_and_goes_with_its_topic(one: OneQueue) -> None:
    taken = await one.take(3)
    assert await one.ack(taken[1]) == 0
    await one.service.round()
    (before,) = one.service._feed.table
    one.parts.clock.advance(RENEW_MS / 1000 - 10)
    await one.service.round()
    assert list(one.service._feed.table) == [before]
    one.parts.clock.advance(20)
    await one.service.round()
    await one.service.round()
    (after,) = one.service._feed.table
    assert (after.offsets, after.at > before.at) == ((0, 2), True)
    assert one.service._feed.low(after.revive_queue) == after.at
    await one.kill()
    answer = await one.ask(
        RequestCode.POP_MESSAGE,
        {"consumerGroup": "G", "topic": "T", "queueId": 0, "maxMsgNums": 9, "invisibleTime": 1, "pollTime": 0,
         "bornTime": one.now_ms, "initMode": 0, "order": "true"},
    )  # fmt: skip
    assert answer.ext["orderCountInfo"] == "0 qo0%0 1;0 qo0%2 1;0 0 1"
    one.parts.topics.delete("T")
    one.parts.clock.advance(RENEW_MS / 1000 + 1)
    for _ in range(2):
        await one.service.round()
        one.parts.clock.advance(2)
    assert len(one.service._feed.table) == 0


async def test_messages_that_are_gone_hold_up_nothing(one: OneQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    await one.take(2)
    one.parts.clock.advance(5)
    right = one.parts.store.get

    def get(topic: str, queue: int, offset: int, *rest: Any) -> Any:
        return right(topic, queue, 99 if offset < 2 else offset, *rest)

    monkeypatch.setattr(one.parts.store, "get", get)
    assert await one.take() == []
    assert said(await one.take()) == [b"2", b"3", b"4", b"5"]


def test_a_check_point_that_is_read_when_it_is_over_opens_nothing() -> None:
    table = CheckPointTable()
    table.add(made())
    table.acknowledge(KEY, [5, 6, 9])
    table.add(made(at=3))
    assert (len(table), table.in_order("T", "G", 0), table._over) == (0, [], set())
    # One that was read first is not remembered.
    table.add(made(at=4))
    table.acknowledge(KEY, [5, 6, 9])
    assert table._over == set()


def test_the_last_change_of_a_time_counts_in_whatever_order_they_are_read() -> None:
    table = CheckPointTable()
    table.add(made())
    for number, until in ((2, 9000), (1, 100), (3, 50)):
        table.put_off(PutOff(KEY, 6, number, until))
    (point,) = table.in_order("T", "G", 0)
    assert [point.until_ms(offset) for offset in point.offsets] == [1500, 50, 1500]
    assert point.changes == 3
    table.put_off(PutOff(KEY._replace(pop_ms=1), 6, 1, 1))


def test_what_is_taken_anew_has_a_later_time() -> None:
    table = CheckPointTable()
    table.add(made())
    for now_ms, wanted in ((10, 1001), (1000, 1001), (1001, 1001), (5000, 5000)):
        (key,) = table.fresh([KEY._replace(pop_ms=now_ms)])
        assert key.pop_ms == wanted


def test_what_a_kill_cut_in_two_is_taken_as_one() -> None:
    older, newer = made(), CheckPoint(KEY._replace(start=6, pop_ms=1100), 500, "b", 1, (6, 9),
                                      order=TakenInOrder("a", (1, 1)))  # fmt: skip
    held = HeldQueue([older, newer], 20)
    assert held.coming() == [5, 6, 9]
    assert (held.free("", 1550), held.free("", 1600), held.free("a", 1550)) == (False, True, True)
    assert held.times([5, 6, 9], "b") == (1, 2, 2)
    assert held.times([6], "a") == (1,)
    assert [(point.key.pop_ms, offsets) for point, offsets in held.ended([6])] == [(1000, [6]), (1100, [6])]
    assert not HeldQueue([older], 5)
    assert HeldQueue([older], 5).moot() == ((older, [5, 6, 9]),)


def test_records_say_the_same_again() -> None:
    point = CheckPoint(KEY, 500, "broker-a", 2, (5, 6, 9), order=TakenInOrder("attempt", (0, 3, 1)))
    change = PutOff(KEY, 6, 7, 12345)
    for record, wanted in (
        (check_point_record("R", point, HOST), point),
        (put_off_record("R", point, change, 1, HOST), change),
    ):
        view = memoryview(
            encode_record("R", 2, record.body, record.properties, queue_offset=4, physical_offset=0, born_host=HOST,
                          store_host=HOST)
        )  # fmt: skip
        found = read_record(view, 2, 4)
        if isinstance(found, CheckPoint) and isinstance(wanted, CheckPoint):
            assert (found.key, found.offsets, found.order) == (wanted.key, wanted.offsets, wanted.order)
        else:
            assert found == wanted
    torn = check_point_record("R", point, HOST)
    body = bytes(torn.body).replace(b"[0,3,1]", b"[0]")
    broken = encode_record("R", 2, body, torn.properties, queue_offset=4, physical_offset=0, born_host=HOST,
                           store_host=HOST)  # fmt: skip
    with pytest.raises(RecordError, match="1 counts of 3"):
        read_record(memoryview(broken), 2, 4)
