"""Idempotent batches: repeated, torn, and of which a part is stored or on its way."""

import random

import pytest

from broker.messages.idempotent import FirstResult
from broker.messages.recent_records import IDEMPOTENT_FLAG
from remoting.codes import ResponseCode
from remoting.msgid import offset_msg_id
from store.log.dispatch import dispatched_from_record
from store.types import PendingRecord
from tests.parts.idempotent_log import HOST, NOT_LEADER, REFUSED, SERVICE_NOT_AVAILABLE, Setting, first


def test_a_batch_is_repeated_as_a_whole() -> None:
    setting = Setting()
    one = setting.send_batch(["A", "B", "C"])
    two = setting.send_batch(["A", "B", "C"], queue_id=3)
    setting.log.store()
    results = setting.answers[one][0]
    ids = ",".join(offset_msg_id(HOST, result.physical_offset) for result in results)
    assert setting.answers[two] == (FirstResult(0, 0, ids), 0)
    setting.start()
    assert setting.answers[setting.send_batch(["A", "B", "C"])] == (FirstResult(0, 0, ids), 0)
    assert not setting.log.flights


@pytest.mark.parametrize(
    "keys", [["A", "B", "X"], ["A", "B", "C", "D"], ["X", "B", "C"], ["X", "B", "Y"], ["C", "X"], ["X", "Y", "A", "Z"]]
)
@pytest.mark.parametrize("singly", [False, True])
def test_a_batch_of_which_a_part_is_stored_is_refused(keys: list[str], singly: bool) -> None:
    setting = Setting()
    if singly:
        for key in "ABC":
            setting.send(key)
            setting.log.store()
    else:
        setting.send_batch(["A", "B", "C"])
        setting.log.store()
    text, code = setting.answers[setting.send_batch(keys)]
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert "some messages of this batch" in text
    assert not setting.log.flights


def test_a_batch_whose_messages_were_all_stored_one_by_one_is_answered_with_theirs() -> None:
    setting = Setting()
    for key in ("B", "other", "A"):
        setting.send(key)
        setting.log.store()
    ids = ",".join(offset_msg_id(HOST, setting.answers[number][0].physical_offset) for number in (3, 1))
    assert setting.answers[setting.send_batch(["A", "B"])] == (FirstResult(0, 2, ids), 0)
    assert not setting.log.flights


def test_a_batch_with_a_message_that_is_on_its_way_is_looked_at_when_that_has_ended() -> None:
    setting = Setting()
    setting.send("B")
    refused = setting.send_batch(["X", "B", "Y"])
    assert len(setting.log.flights) == 1
    setting.log.store()
    assert setting.answers[refused][1] == ResponseCode.MESSAGE_ILLEGAL
    setting.send("C")
    stored = setting.send_batch(["X", "C", "Y"])
    setting.log.refuse()
    assert len(setting.log.flights) == 1, "nothing of it is stored: it is a batch as any other"
    setting.log.store()
    results, code = setting.answers[stored]
    assert (len(results), code) == (3, 0)


def test_a_message_waits_for_the_batch_that_it_is_in_and_has_its_own_place() -> None:
    setting = Setting()
    one = setting.send_batch(["A", "", "B"], queue_id=2)
    two, three = setting.send("B", queue_id=1), setting.send_batch(["B", "A"])
    assert len(setting.log.flights) == 1
    setting.log.store()
    results = setting.answers[one][0]
    assert setting.answers[two] == (first(results[2].physical_offset, 2, 2), 0)
    found, code = setting.answers[three]
    assert (found.queue_offset, found.msg_id.count(","), code) == (2, 1, 0)
    assert not setting.log.flights
    assert not setting.sends._flying


async def test_a_batch_that_the_end_of_this_broker_tore_is_completed_when_it_comes_again() -> None:
    setting = Setting()
    keys = ["A", "B", "C", "D"]
    setting.send("other")
    setting.log.store()
    setting.send_batch(keys, queue_id=1)
    setting.log.store()
    for lost, left in ((2, 2), (1, 3)):
        # Torn, and the rest of it once more.
        setting.log.cut(lost)
        await setting.restart()
        assert setting.answers[setting.send_batch(["A", "X", "C", "D"])][1] == ResponseCode.MESSAGE_ILLEGAL
        one = setting.send_batch(keys, queue_id=3)
        two = setting.send_batch(keys)
        assert [record.queue_id for record in setting.log.flights[0][0]] == [1] * (4 - left)
        setting.log.store()
        assert setting.answers[one] == setting.answers[two]
        result, code = setting.answers[one]
        assert (result.queue_id, result.queue_offset, result.msg_id.count(","), code) == (1, 0, 3, 0)
    assert setting.log.offsets["T", 1] == 4
    setting.log.cut(1)
    await setting.restart()
    setting.send_batch(keys)
    setting.log.refuse()
    last = setting.answers[setting.number]
    assert last == ([REFUSED], SERVICE_NOT_AVAILABLE)
    # What was sent since does not stand between the parts of a torn one.
    setting.send("later")
    setting.log.store()
    setting.send_batch(keys)
    setting.log.store()
    again = setting.send_batch(keys)
    assert (setting.answers[again][0].msg_id.count(","), setting.answers[again][1]) == (3, 0)


async def test_a_part_that_was_no_part_of_a_torn_batch_is_no_beginning_of_one() -> None:
    setting = Setting()
    setting.send_batch(["A", "B"])
    setting.log.store()
    setting.send("last")
    setting.log.store()
    await setting.restart()
    assert setting.answers[setting.send_batch(["A", "B", "C"])][1] == ResponseCode.MESSAGE_ILLEGAL


def test_a_batch_without_keys_is_stored_as_ever() -> None:
    setting = Setting()
    records = [PendingRecord("T", 0, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"b", b"") for _ in range(2)]
    for _ in range(2):
        setting.sends.append_batch("T", 0, records, setting._done(), wait=True, until=5.0)
    assert len(setting.log.flights) == 2


@pytest.mark.parametrize("seed", range(60))
async def test_no_key_is_stored_twice_whatever_is_sent_together(seed: int) -> None:
    """Singles and batches of few keys, stored, refused, torn and sent again in any order; each has one answer."""
    chance = random.Random(seed)
    setting = Setting()
    for _ in range(120):
        action = chance.random()
        flights = setting.log.flights
        if action < 0.3:
            setting.send(chance.choice("ABCDEFGH"), queue_id=chance.randrange(2))
        elif action < 0.65:
            setting.send_batch(chance.sample("ABCDEFGH", chance.randrange(1, 5)), queue_id=chance.randrange(2))
        elif action < 0.9 and flights:
            setting.log.store(chance.randrange(len(flights)))
        elif action < 0.95 and flights:
            setting.log.refuse(chance.randrange(len(flights)), code=chance.choice([14, NOT_LEADER]))
        elif action > 0.97:
            # Torn, perhaps; who waited for it is gone with it.
            setting.log.cut(chance.randrange(3))
            await setting.restart()
            setting.answers = dict.fromkeys(range(1, setting.number + 1), (None, 0))
        stored = [dispatched_from_record(view).uniq_key for view in setting.log.records.values()]
        assert len(stored) == len(set(stored))
    while setting.log.flights:
        setting.log.store()
    assert setting.answers.keys() == set(range(1, setting.number + 1))
    assert not setting.sends._flying
    stored = [dispatched_from_record(view).uniq_key for view in setting.log.records.values()]
    assert len(stored) == len(set(stored))
