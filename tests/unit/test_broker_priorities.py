"""broker/messages/priorities.py: which queue a priority means, and which messages have none."""

import pytest

from broker.messages.priorities import by_priority
from remoting.codes import ResponseCode
from remoting.properties import decode_properties
from tests.parts.send_parts import Setting

NAME = "_SYS_MSG_PRIORITY_"


# As recorded from RocketMQ 5.5.0 with four queues: 0, 3, 1, 7 and a text that is no number.
@pytest.mark.parametrize(
    ("priority", "queue"),
    [
        ("0", 0),
        ("3", 3),
        ("1", 1),
        ("7", 3),
        ("+2", 2),
        ("2147483647", 3),
        ("x", 1),
        ("-2", 1),
        ("", 1),
        ("3.5", 1),
        (" 3", 1),
        ("2147483648", 1),
        ("9" * 5000, 1),
        ("\u0663", 1),
    ],
)
def test_a_priority_is_a_queue(priority: str, queue: int) -> None:
    setting = Setting()
    text = f"TAGS\x01A\x02{NAME}\x01{priority}\x02KEYS\x01k\x02"
    setting.do(properties=text, queue_id=1)
    (record,) = setting.log.records
    assert record.queue_id == queue
    assert decode_properties(record.properties).get(NAME, "") == priority
    setting.log.answers[0](ResponseCode.SUCCESS)
    assert setting.peer.answers[0].ext["queueId"] == str(queue)


@pytest.mark.parametrize("other", ["DELAY\x012", "__SHARDINGKEY\x01k", "TIMER_DELAY_SEC\x015", "TRAN_MSG\x01true"])
def test_what_is_of_another_kind_loses_its_priority(other: str) -> None:
    text, queue = by_priority(f"{NAME}\x013\x02{other}\x02KEYS\x01k\x02", 1, 4)
    assert queue == 1
    assert text == f"{other}\x02KEYS\x01k\x02"


def test_a_topic_that_is_not_written_to_any_more_has_queue_0() -> None:
    assert by_priority(f"{NAME}\x013\x02", 1, 0)[1] == 0


def test_a_message_without_a_priority_stays_as_it_is() -> None:
    for text in ("", "TAGS\x01A\x02", f"KEYS\x01{NAME}\x02"):
        assert by_priority(text, 2, 4) == (text, 2)


def test_a_dead_letter_goes_where_dead_letters_go() -> None:
    setting = Setting()
    setting.topics.create_for_retry("%RETRY%G", 4)
    setting.do(topic="%RETRY%G", properties=f"{NAME}\x013\x02", queue_id=0, reconsume_times=2)
    setting.do(topic="%RETRY%G", properties=f"{NAME}\x013\x02", queue_id=0, reconsume_times=3)
    assert [(record.topic, record.queue_id) for record in setting.log.records] == [("%RETRY%G", 3), ("%DLQ%G", 0)]
