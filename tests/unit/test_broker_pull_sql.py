"""Pulls with a SQL92 filter: the checks and their codes, what comes, and which parked pulls are woken."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from broker.filters.sql import SqlFilter
from remoting.bodies.registry import SubscriptionData
from remoting.codes import ResponseCode
from remoting.record import decode_records
from remoting.server import Connection
from tests.parts.broker_parts import Peer
from tests.parts.pulling import Master, Setting, pulling, turn

SQL = "SQL92"
WANTED = "n > 5"


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with pulling(tmp_path) as made:
        made.parts.config.update({"enablePropertyFilter": "true"})
        yield made


def bodies(setting: Setting) -> list[bytes]:
    return [message.body for message in decode_records(memoryview(setting.last.body))]


def put(setting: Setting, number: object, queue_id: int = 0) -> None:
    setting.parts.put("T", queue_id, b"%s" % str(number).encode(), n=str(number))


def subscribe(setting: Setting, expression: str, version: int = 1, kind: str = SQL) -> None:
    group = setting.parts.clients.consumer_group("G")
    assert group is not None
    group.subscriptions["T"] = SubscriptionData(
        topic="T", subString=expression, subVersion=version, expressionType=kind
    )


async def test_what_is_not_wanted_is_passed_over(setting: Setting) -> None:
    for number in (1, 7, 2, 8, 9, 3):
        put(setting, number)
    setting.pull(tags=WANTED, expressionType=SQL)
    assert (setting.last.code, bodies(setting), setting.last.ext["nextBeginOffset"]) == (0, [b"7", b"8", b"9"], "6")
    assert setting.parts.stats.totals.got == 3
    setting.pull(5, tags=WANTED, expressionType=SQL, suspend_ms=60_000)
    assert (setting.last.code, setting.last.remark) == (20, "NO_MATCHED_MESSAGE")
    assert setting.last.ext["nextBeginOffset"] == "6"
    setting.pull(6, tags=WANTED, expressionType=SQL)
    assert (setting.last.code, setting.last.remark) == (19, "OFFSET_OVERFLOW_ONE")
    setting.pull(7, tags=WANTED, expressionType=SQL)
    assert setting.last.code == 21


async def test_a_filter_that_comes_with_the_pull(setting: Setting) -> None:
    parsed = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    setting.refused(parsed, "unexpected '>' at line 1, column 5", expressionType=SQL, tags="a > > 3")
    setting.refused(parsed, "the expression is empty", expressionType=SQL, tags="")
    setting.refused(parsed, "of the types TAG and SQL92, not 'sql'", expressionType="sql", tags="a = 1")
    setting.parts.config.update({"enablePropertyFilter": "false"})
    refused = ResponseCode.SYSTEM_ERROR
    for expression in ("a = 1", "a > > 3"):
        setting.refused(refused, "filter message by SQL92", expressionType=SQL, tags=expression)
    setting.refused(refused, "filter message by sql", expressionType="sql", tags="a = 1")
    setting.refused(parsed, "the expression is empty", expressionType=SQL, tags="")


async def test_a_filter_of_the_heartbeat(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    subscribe(setting, WANTED)
    put(setting, 1)
    put(setting, 6)
    setting.pull(tags=None, expressionType=SQL, subVersion=1)
    assert bodies(setting) == [b"6"]
    # RocketMQ takes what cannot be read with the heartbeat, and says so when somebody pulls.
    for wrong in ("a > > 3", ""):
        subscribe(setting, wrong)
        setting.refused(ResponseCode.FILTER_DATA_NOT_EXIST, "Your expression may be wrong", tags=None)
    subscribe(setting, "a = 1", kind="sql")
    setting.refused(ResponseCode.FILTER_DATA_NOT_EXIST, "of the types", tags=None)
    setting.parts.config.update({"enablePropertyFilter": "false"})
    setting.refused(ResponseCode.FILTER_DATA_NOT_EXIST, "of the types", tags=None)
    subscribe(setting, WANTED)
    setting.refused(ResponseCode.SYSTEM_ERROR, "filter message by SQL92", tags=None)


async def test_an_older_filter_is_not_used(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    subscribe(setting, WANTED)
    put(setting, 3)
    late = ResponseCode.SUBSCRIPTION_NOT_LATEST
    setting.refused(late, "not latest", tags=None, subVersion=2, expressionType=SQL)
    setting.pull(tags=None, subVersion=2, expressionType=SQL, subscription="n = 3")
    assert bodies(setting) == [b"3"]
    subscribe(setting, "*", kind="TAG")
    setting.refused(late, "not latest", tags=None, subVersion=2, expressionType=SQL)
    # A consumer by tags looks at them itself.
    setting.pull(tags=None, subVersion=2, expressionType="TAG")
    assert bodies(setting) == [b"3"]


async def test_parked_until_a_wanted_message_arrives(setting: Setting) -> None:
    setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    for number in (1, 2, "x", 3):
        put(setting, number)
        await turn()
    put(setting, 9, queue_id=1)
    await turn()
    assert setting.pulls.parked == 1
    assert setting.consumer.answers == []
    put(setting, 6)
    await turn()
    assert (setting.last.code, bodies(setting), setting.last.ext["nextBeginOffset"]) == (0, [b"6"], "5")
    assert setting.pulls.parked == 0


async def test_a_parked_pull_looks_at_each_message_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bytes] = []
    matches = SqlFilter.matches

    def looking(self: SqlFilter, properties: bytes | memoryview) -> bool:
        shown.append(bytes(properties))
        return matches(self, properties)

    monkeypatch.setattr(SqlFilter, "matches", looking)
    setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    for number in range(5):
        put(setting, number)
        await turn()
    assert len(shown) == 5
    setting.pulls.sweep()
    assert len(shown) == 5, "the sweep moves it past them"
    assert (setting.last.code, setting.last.remark, setting.last.ext["nextBeginOffset"]) == (
        20,
        "NO_MATCHED_MESSAGE",
        "5",
    )


async def test_many_messages_are_looked_at_over_several_turns(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.messages.pull_sifting.TURN_SECONDS", -1.0)
    for _ in range(3):
        setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    for number in range(1000):
        setting.parts.put("T", 0, n="0", number=str(number))
    await turn()
    setting.pulls.sweep()
    assert setting.pulls.parked == 3, "they are busy"
    for _ in range(10):
        await turn()
    assert setting.pulls.parked == 3
    put(setting, 6)
    for _ in range(10):
        await turn()
    assert [answer.code for answer in setting.consumer.answers] == [0, 0, 0]
    assert setting.pulls.parked == 0


async def test_who_gets_something_is_not_shown_what_was_passed_over(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = 0
    matches = SqlFilter.matches

    def looking(self: SqlFilter, properties: bytes | memoryview) -> bool:
        nonlocal shown
        shown += 1
        return matches(self, properties)

    monkeypatch.setattr(SqlFilter, "matches", looking)
    setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    for number in (1, 2, 3, 6):
        put(setting, number)
    await turn()
    assert (bodies(setting), setting.last.ext["nextBeginOffset"]) == ([b"6"], "4")
    assert shown == 4 + 1


async def test_who_waits_for_all_is_woken_beside_who_does_not(setting: Setting) -> None:
    setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    setting.pull(suspend_ms=60_000, tags="*")
    put(setting, 1)
    await turn()
    assert (setting.pulls.parked, bodies(setting)) == (1, [b"1"])


async def test_a_parked_pull_is_run_again_with_the_groups_present_filter(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    subscribe(setting, WANTED)
    setting.pull(suspend_ms=60_000, tags=None)
    put(setting, 1)
    await turn()
    subscribe(setting, "n = 1 OR n = 6", 2)
    put(setting, 6)
    await turn()
    assert bodies(setting) == [b"1", b"6"], "what the former filter passed over is looked at anew"


async def test_when_filters_are_switched_off_a_parked_pull_is_told(setting: Setting) -> None:
    setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    setting.parts.config.update({"enablePropertyFilter": "false"})
    put(setting, 6)
    await turn()
    assert setting.last.code == ResponseCode.SYSTEM_ERROR
    assert setting.pulls.parked == 0


async def test_who_has_gone_looks_at_nothing(setting: Setting) -> None:
    setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    put(setting, 6)
    setting.pulls.on_close(cast("Connection", setting.consumer))
    await turn()
    assert setting.consumer.answers == []


async def test_a_slave_filters_too_and_its_parked_pulls_wake(tmp_path: Path) -> None:
    async with pulling(tmp_path, master=Master()) as slave:
        slave.role.leads = False
        slave.parts.config.update({"enablePropertyFilter": "true", "slaveReadEnable": "true"})
        put(slave, 1)
        put(slave, 6)
        slave.pull(tags=WANTED, expressionType=SQL)
        assert bodies(slave) == [b"6"]
        slave.pull(2, suspend_ms=60_000, tags=WANTED, expressionType=SQL)
        put(slave, 2)
        await turn()
        assert slave.pulls.parked == 1
        put(slave, 7)
        await turn()
        assert bodies(slave) == [b"7"]


async def test_a_look_that_fails_is_the_pulls_own_failure(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.pull(suspend_ms=60_000, tags=WANTED, expressionType=SQL)
    setting.pull(suspend_ms=60_000, tags="*")
    put(setting, 1)

    def failing(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(setting.parts.store, "sift", failing)
    await turn()
    assert setting.pulls.parked == 0
    answers = {answer.code: answer.remark or "" for answer in setting.consumer.answers}
    assert set(answers) == {0, ResponseCode.SYSTEM_ERROR}
    assert "the disk is gone" in answers[ResponseCode.SYSTEM_ERROR]
