"""broker/delay: timer messages are delivered at their time, once, over restarts and kills; recalled ones are not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts.timer_parts import TimerSetting


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[TimerSetting]:
    made = TimerSetting(tmp_path / "store")
    made.service.start()
    yield made
    made.close()


def test_a_timer_message_comes_at_its_time_as_what_it_was(setting: TimerSetting) -> None:
    out_ms = setting.send("A", TIMER_DELAY_SEC=3)
    sent = setting.clock.now_ms()
    assert sent + 2000 <= out_ms + 1000 <= sent + 3000 + 1000
    setting.pass_time(2.999)
    assert setting.delivered() == []
    setting.pass_time(1.001)
    [message] = setting.delivered()
    assert setting.came == [("T", 2)]
    assert (message.topic, message.queue_id, message.flag, message.born_timestamp) == ("T", 2, 7, 99)
    assert message.properties.pop("TIMER_ENQUEUE_MS") == str(sent)
    assert sent + 3000 <= int(message.properties.pop("TIMER_DEQUEUE_MS")) <= sent + 4000
    assert message.properties == {
        "TIMER_DELAY_SEC": "3", "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "2", "UNIQ_KEY": "A",
        "TAGS": "A",
    }  # fmt: skip
    setting.pass_time(100)
    assert setting.keys() == ["A"]


def test_restart_delivers_what_is_pending_and_nothing_twice(setting: TimerSetting) -> None:
    setting.send("A", TIMER_DELAY_SEC=3)
    setting.send("B", TIMER_DELAY_SEC=8)
    setting.pass_time(5)
    assert setting.keys() == ["A"]
    setting.restart()
    setting.service.start()
    setting.pass_time(5)
    assert setting.keys() == ["A", "B"]
    setting.kill()
    setting.service.start()
    setting.pass_time(50)
    assert setting.keys() == ["A", "B"]
