"""Idempotent sends in front of a log of which everything is known: outcomes, repetitions, cuts, restarts, time."""

import random
from typing import Any

import pytest

from broker.messages.idempotent import WAITING_MAX
from broker.messages.recent_records import IDEMPOTENT_FLAG
from remoting.codes import ResponseCode
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.idempotent_log import HOST, NOT_LEADER, REFUSED, SERVICE_NOT_AVAILABLE, WINDOW_S, Setting, first


def test_a_repetition_has_the_first_ones_answer_whatever_queue_it_names() -> None:
    setting = Setting()
    setting.send("A", queue_id=2)
    setting.log.store()
    again = setting.send("A", queue_id=1)
    assert setting.answers[again] == (first(0, 0, 2), 0)
    assert not setting.log.flights
    other = setting.send("A", topic="U")
    assert other not in setting.answers
    assert len(setting.log.flights) == 1
    assert setting.sends.repeated == 1


def test_a_repetition_of_what_is_on_its_way_waits_for_it() -> None:
    setting = Setting()
    one, two, three = setting.send("A"), setting.send("A"), setting.send("A", queue_id=3)
    assert len(setting.log.flights) == 1
    assert not setting.answers
    setting.log.store(code=int(ResponseCode.FLUSH_SLAVE_TIMEOUT))
    assert setting.answers[one][1] == setting.answers[two][1] == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert setting.answers[two] == setting.answers[three] == (first(0, 0), ResponseCode.FLUSH_SLAVE_TIMEOUT)


@pytest.mark.parametrize("code", [0, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE])
def test_who_comes_later_is_told_how_safe_it_is_by_then(code: int) -> None:
    setting = Setting()
    setting.send("A")
    setting.send_batch(["B", "C"])
    setting.log.store(code=int(ResponseCode.FLUSH_SLAVE_TIMEOUT))
    setting.log.store(code=int(ResponseCode.FLUSH_SLAVE_TIMEOUT))
    setting.log.confirms = code
    assert setting.answers[setting.send("A")] == (first(0, 0), code)
    found, told = setting.answers[setting.send_batch(["B", "C"])]
    assert (found.queue_offset, found.msg_id.count(","), told) == (1, 1, code)


def test_who_comes_later_is_refused_by_a_broker_that_takes_nothing() -> None:
    setting = Setting()
    setting.send("A")
    setting.log.store()
    setting.log.confirms = SERVICE_NOT_AVAILABLE
    assert setting.answers[setting.send("A")] == (REFUSED, SERVICE_NOT_AVAILABLE)
    assert setting.sends.repeated == 0


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (REFUSED, 14),
        (REFUSED, NOT_LEADER),
        (PutResult(PutStatus.UNKNOWN_ERROR), 1),
        (PutResult(PutStatus.OS_PAGE_CACHE_BUSY), 2),
    ],
)
def test_who_waits_for_what_is_not_stored_is_told_the_same_and_may_come_again(result: PutResult, code: int) -> None:
    setting = Setting()
    one, two = setting.send("A"), setting.send("A")
    setting.log.refuse(result=result, code=code)
    assert setting.answers[one] == setting.answers[two] == (result, code)
    three = setting.send("A")
    assert three not in setting.answers
    assert len(setting.log.flights) == 1


def test_what_cannot_be_answered_costs_nobody_else_the_answer() -> None:
    setting = Setting()
    record = PendingRecord("T", 0, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"body", b"UNIQ_KEY\x01A\x02")

    def broken(_result: Any, _code: int) -> None:
        raise OSError("gone")

    setting.sends.append("T", "A", 0, record, broken, wait=True, until=5.0)
    setting.sends.append("T", "A", 0, record, broken, wait=True, until=5.0)
    two = setting.send("A")
    with pytest.raises(OSError, match="gone"):
        setting.log.store()
    assert setting.answers[two] == (first(0, 0), 0)


def test_repetitions_that_wait_are_bounded() -> None:
    setting = Setting()
    setting.send("A")
    for _ in range(WAITING_MAX):
        setting.send("A")
    assert not setting.answers
    over = setting.send("A")
    assert setting.answers[over] == (PutResult(PutStatus.OS_PAGE_CACHE_BUSY), ResponseCode.SYSTEM_BUSY)
    setting.log.store()
    assert len(setting.answers) == WAITING_MAX + 2


def test_the_first_one_counts_for_as_long_as_the_window_and_no_longer() -> None:
    setting = Setting()
    setting.send("A")
    setting.log.store()
    setting.clock.advance(WINDOW_S)
    assert setting.answers[setting.send("A")] == (first(0, 0), 0)
    setting.clock.advance(0.001)
    again = setting.send("A")
    assert again not in setting.answers
    setting.log.store()
    stored = setting.answers[again][0]
    assert setting.answers[setting.send("A")] == (first(stored.physical_offset, 1), 0)


def test_an_empty_key_is_none() -> None:
    setting = Setting()
    setting.send("")
    setting.send("")
    assert len(setting.log.flights) == 2


def test_a_topic_that_was_deleted_begins_anew() -> None:
    setting = Setting()
    setting.send("A")
    setting.log.store()
    setting.log.offsets.clear()
    assert setting.send("A") not in setting.answers


@pytest.mark.parametrize("seed", range(60))
def test_against_a_list_of_everything(seed: int) -> None:
    """Whatever happens: a send is appended only when no record of it, young enough, stands in the log."""
    chance = random.Random(seed)
    setting = Setting()
    flying: list[tuple[str, str]] = []
    # (topic, key, position, offset, time) of everything in the log.
    twin: list[tuple[str, str, int, int, int]] = []

    def store(number: int) -> None:
        topic, key = flying.pop(number)
        end = setting.log.end
        setting.log.store(number)
        twin.append((topic, key, end, setting.log.offsets[topic, 0] - 1, setting.clock.now_ms()))

    for _ in range(250):
        action = chance.random()
        if action < 0.6:
            topic, key = chance.choice("TU"), chance.choice("ABCDEFGH")
            before = len(setting.log.flights)
            number = setting.send(key, topic)
            oldest = setting.clock.now_ms() - WINDOW_S * 1000
            known = [entry for entry in twin if entry[:2] == (topic, key) and entry[4] >= oldest]
            if (topic, key) in flying:
                assert number not in setting.answers
                assert len(setting.log.flights) == before
            elif known:
                assert setting.answers[number] == (first(known[0][2], known[0][3]), 0)
                assert len(setting.log.flights) == before
            else:
                assert len(setting.log.flights) == before + 1
                flying.append((topic, key))
        elif action < 0.85 and flying:
            store(chance.randrange(len(flying)))
        elif action < 0.9 and flying:
            number = chance.randrange(len(flying))
            flying.pop(number)
            setting.log.refuse(number, code=chance.choice([14, NOT_LEADER]))
        elif action < 0.93:
            count = chance.randrange(4)
            setting.log.cut(count)
            del twin[len(twin) - min(count, len(twin)) :]
        elif action < 0.95:
            setting.start()
            flying.clear()
        else:
            setting.clock.advance(chance.choice([0.5, 10, 40]))
