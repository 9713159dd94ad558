"""broker/messages/pull.py at a slave: whom it serves while its master lives, and when it is away."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoting.codes import ResponseCode
from remoting.record import decode_records
from tests.parts.pulling import Master, Setting, pulling, turn


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
async def slave(tmp_path: Path, master: Master) -> AsyncIterator[Setting]:
    async with pulling(tmp_path, master=master) as made:
        made.role.leads, made.role.broker_id = False, 1
        made.parts.put("T", 0, b"0")
        yield made


def allow_reads(slave: Setting) -> None:
    slave.parts.config.update({"slaveReadEnable": "true"})


async def test_while_the_master_lives_pulls_are_sent_there(slave: Setting) -> None:
    for offset, topic in ((0, "T"), (7, "T"), (3, "Unknown")):
        slave.pull(offset, topic=topic, suspend_ms=60_000)
        assert (slave.last.code, slave.last.ext["nextBeginOffset"]) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            str(offset),
        )
        assert slave.last.ext["suggestWhichBrokerId"] == "0"
    assert slave.pulls.parked == 0


async def test_slaveReadEnable_serves_what_is_here_and_parks_at_the_end(slave: Setting) -> None:
    allow_reads(slave)
    slave.pull(0)
    assert slave.last.code == ResponseCode.SUCCESS
    slave.pull(1, suspend_ms=60_000)
    assert slave.pulls.parked == 1
    slave.parts.put("T", 0, b"1")
    await turn()
    assert [message.body for message in decode_records(memoryview(slave.last.body))] == [b"1"]


@pytest.mark.parametrize("offset", [-1, 5, 2**40])
async def test_R14_what_lies_outside_is_the_masters_at_once_while_it_lives(slave: Setting, offset: int) -> None:
    allow_reads(slave)
    slave.pull(offset, suspend_ms=60_000)
    assert (slave.last.code, slave.last.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(offset))
    assert slave.last.ext["suggestWhichBrokerId"] == "0"
    assert slave.pulls.parked == 0


async def test_what_is_not_known_here_the_master_may_know(slave: Setting, master: Master) -> None:
    allow_reads(slave)
    slave.pull(0, topic="Unknown")
    assert slave.last.code == ResponseCode.PULL_NOT_FOUND
    master.master_alive = False
    slave.refused(ResponseCode.TOPIC_NOT_EXIST, "Unknown", offset=0, topic="Unknown")


async def test_without_its_master_it_serves_what_it_has(slave: Setting, master: Master) -> None:
    master.master_alive = False
    slave.pull(0)
    assert (slave.last.code, slave.last.ext["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, "0")


@pytest.mark.parametrize("offset", [-1, 5])
async def test_R14_without_its_master_it_calls_no_offset_wrong_and_keeps_nobody_asking(
    slave: Setting, master: Master, offset: int
) -> None:
    master.master_alive = False
    slave.pull(offset)
    assert (slave.last.code, slave.last.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(offset))
    slave.pull(offset, suspend_ms=60_000)
    assert slave.pulls.parked == 1
    master.master_alive = True
    slave.pulls.wake_all()
    assert (slave.last.code, slave.last.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(offset))


async def test_a_consumer_ahead_of_this_log_is_woken_when_it_gets_there(slave: Setting, master: Master) -> None:
    master.master_alive = False
    slave.pull(2, suspend_ms=60_000)
    assert slave.pulls.parked == 1
    slave.parts.put("T", 0, b"1")
    slave.parts.put("T", 0, b"2")
    await turn()
    assert [message.body for message in decode_records(memoryview(slave.last.body))] == [b"2"]
