"""broker/delay: timer messages are delivered at their time, once, over restarts and kills; recalled ones are not."""

import base64
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.delay import index
from broker.delay.marks import MARK_QUEUE, MarkKind, read_mark
from broker.messages.timed_record import read_handle, recall_handle, slot_of
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from remoting.topics import TIMER_TOPIC
from store.events import EVERYTHING_MAY_GO
from store.timerruns import TimerRun, write_run
from store.types import PutStatus
from tests.parts.timer_parts import DAY_MS, LIMITS, SIZES, TimerSetting


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


def test_messages_of_one_slot_keep_their_order_over_batches_and_runs(
    setting: TimerSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUFFER_MAX", 16)
    keys = [f"K{number}" for number in range(150)]
    for key in keys:
        setting.send(key, TIMER_DELAY_SEC=5)
    setting.pass_time(1)
    assert len(setting.service.index.runs) > 4
    setting.pass_time(20)
    assert setting.keys() == keys


def test_a_time_that_is_over_is_no_timer_and_one_too_far_is_refused(setting: TimerSetting) -> None:
    now = setting.clock.now_ms()
    over: list[dict[str, Any]] = [
        {"TIMER_DELIVER_MS": now - 1},
        {"TIMER_DELIVER_MS": now},
        {"TIMER_DELAY_SEC": 0},
        {"TIMER_DELAY_MS": -5},
    ]
    for properties in over:
        assert setting.send("K", **properties) == 0
    assert len(setting.keys()) == 4
    wrong: list[dict[str, Any]] = [
        {"TIMER_DELAY_SEC": 41 * 86_400},
        {"TIMER_DELAY_MS": "soon"},
        {"TIMER_DELAY_SEC": "9" * 30},
    ]
    for properties in wrong:
        with pytest.raises(CommandError) as refused:
            setting.send("K", **properties)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert str(refused.value.remark).startswith("timer message illegal, the delay time should not be bigger than")


@pytest.mark.parametrize(("deliver", "slot"), [(5000, 4000), (5001, 5000), (5999, 5000), (6000, 5000)])
def test_a_slot_is_over_at_the_time_or_up_to_a_slot_later(deliver: int, slot: int) -> None:
    assert slot_of({"TIMER_DELIVER_MS": str(deliver)}, 1000, LIMITS) == slot
    assert deliver <= slot + LIMITS.precision_ms < deliver + LIMITS.precision_ms


def test_while_timers_are_switched_off_they_are_refused() -> None:
    with pytest.raises(CommandError, match="timerWheelEnable") as refused:
        slot_of({"TIMER_DELAY_SEC": "3"}, 1000, LIMITS._replace(enabled=False))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


def test_a_recalled_message_never_comes_and_another_topics_handle_recalls_nothing(setting: TimerSetting) -> None:
    first, second = setting.send("A", TIMER_DELAY_SEC=5), setting.send("B", TIMER_DELAY_SEC=5)
    verdicts = setting.recall("A", first)
    setting.recall("B", second, topic="Other")
    setting.pass_time(1)
    assert verdicts == [True]
    setting.kill(index=False)
    setting.service.start()
    setting.pass_time(20)
    assert setting.keys() == ["B"]
    assert setting.service.recalled == 1


def test_a_recall_that_comes_after_its_slot_was_closed_is_told_so(setting: TimerSetting) -> None:
    slot = setting.send("A", TIMER_DELAY_SEC=2)
    setting.pass_time(10)
    verdicts = setting.recall("A", slot)
    setting.pass_time(1)
    assert verdicts == [False]
    assert setting.keys() == ["A"]


def test_who_waits_for_long_is_stored_anew_before_its_file_expires_and_can_be_recalled(setting: TimerSetting) -> None:
    for key, days in (("A", 5), ("B", 5), ("C", 39)):
        setting.send(key, TIMER_DELAY_SEC=days * 86_400)
    slots = [setting.send(key, TIMER_DELAY_SEC=5 * 86_400) for key in ("D", "E")]
    assert setting.recall("D", slots[0]) == []
    oldest = setting.service.needed_from()
    setting.pass_time(2.1 * 86_400)
    assert setting.service.rolled == 6
    assert setting.service.needed_from() > oldest
    verdict = setting.recall("E", slots[1])
    setting.pass_time(0)
    setting.restart()
    setting.service.start()
    setting.pass_time(3.1 * 86_400)
    assert setting.keys() == ["A", "B"]
    assert verdict == [True]
    setting.pass_time(33.7 * 86_400)
    assert setting.keys() == ["A", "B"]
    setting.pass_time(86_400)
    assert setting.keys() == ["A", "B", "C"]
    assert setting.delivered()[-1].properties["TIMER_ROLL_TIMES"] == "19"
    assert "TIMER_ROLL_MS" not in setting.delivered()[-1].properties


def test_catching_up_after_a_downtime_goes_in_order_of_time(setting: TimerSetting) -> None:
    for key, seconds in (("late", 9 * 86_400), ("C", 3000), ("A", 10), ("B", 2000)):
        setting.send(key, TIMER_DELAY_SEC=seconds)
    setting.service.stop()
    setting.pass_time(20 * 86_400)
    assert setting.keys() == []
    setting.service.start()
    setting.pass_time(5)
    assert setting.keys() == ["A", "B", "C", "late"]


def test_what_is_refused_is_tried_again_and_never_stored_twice(setting: TimerSetting) -> None:
    setting.send("A", TIMER_DELAY_SEC=1)
    setting.refusals += [PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.OS_PAGE_CACHE_BUSY]
    setting.pass_time(2.5)
    assert setting.keys() == []
    setting.pass_time(3)
    assert setting.keys() == ["A"]


def test_after_an_unknown_outcome_nothing_is_tried_before_the_log_has_told(setting: TimerSetting) -> None:
    setting.send("A", TIMER_DELAY_SEC=1)
    setting.refusals += [PutStatus.UNKNOWN_ERROR]
    setting.pass_time(50)
    assert setting.keys() == []
    setting.service.stop()
    setting.service.start()
    setting.pass_time(1)
    assert setting.keys() == ["A"]


def test_a_message_without_room_for_its_times_comes_without_them(setting: TimerSetting) -> None:
    """Properties take 32,767 bytes: what is added at the delivery may be too much."""
    setting.send("A", TIMER_DELAY_SEC=1)
    setting.send("B", TIMER_DELAY_SEC=1, filler="x" * (32_767 - 110))
    setting.send("C", TIMER_DELAY_SEC=1)
    setting.pass_time(5)
    assert setting.keys() == ["A", "B", "C"]
    assert ["TIMER_DEQUEUE_MS" in message.properties for message in setting.delivered()] == [True, False, True]


def test_a_message_whose_time_was_closed_when_it_came_is_delivered_next(setting: TimerSetting) -> None:
    setting.send("A", TIMER_DELAY_MS=1500)
    setting.service.stop()
    setting.pass_time(10)
    setting.service.start()
    setting.pass_time(0.5)
    # As one that was on its way for long: its slot is over.
    setting.store_timer("B", setting.clock.now_ms() - 9000)
    setting.pass_time(2)
    assert setting.keys() == ["A", "B"]
    setting.kill(index=False)
    setting.service.start()
    setting.pass_time(2)
    assert setting.keys() == ["A", "B"]


def test_a_group_begins_with_a_look_at_the_log(tmp_path: Path) -> None:
    """A new leader may not have read its predecessor's last mark when it begins: here it stands in front of its own."""
    setting = TimerSetting(tmp_path / "store", shared=True)
    setting.send("A", TIMER_DELAY_SEC=1)
    setting.pass_time(5)
    before = setting.store.max_offset(TIMER_TOPIC, MARK_QUEUE)
    setting.service.start()
    setting.pass_time(0)
    view = setting.store.record_at(setting.store.queue_entries(TIMER_TOPIC, MARK_QUEUE, before, 1)[0].physical_offset)
    assert view is not None
    assert read_mark(view).kind is MarkKind.LOOK
    setting.pass_time(1)
    assert setting.keys() == ["A"]
    setting.close()


def test_an_unreadable_index_is_built_anew(setting: TimerSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BUFFER_MAX", 4)
    for number in range(30):
        setting.send(f"K{number}", TIMER_DELAY_SEC=5 + number % 3)
    setting.pass_time(1)
    for damage in ("manifest.json", "*.run"):
        setting.close()
        for path in (setting.root / "timerindex").glob(damage):
            path.write_bytes(b"damaged")
        setting.open()
    setting.service.start()
    setting.pass_time(20)
    assert sorted(setting.keys()) == sorted(f"K{number}" for number in range(30))


def test_files_that_hold_what_waits_do_not_expire(tmp_path: Path) -> None:
    sizes = replace(SIZES, mappedFileSizeCommitLog=4096, fileReservedTime=1, deleteWhen="00;23", maxMessageSize=1024)
    setting = TimerSetting(tmp_path / "store", sizes=sizes, stepped=True)
    setting.limits = LIMITS._replace(window_ms=40 * DAY_MS)
    setting.service.start()
    setting.send("A", TIMER_DELAY_SEC=7200)
    for number in range(40):
        setting.send(f"K{number}", body=b"x" * 300)
    setting.pass_time(1)
    setting.store.step_flush()
    for path in (setting.root / "commitlog").iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    report = setting.store.clean(now=True)
    assert report.removed == []
    assert "messages wait there for their time" in report.reason
    setting.pass_time(7300)
    assert setting.keys()[-1] == "A"
    assert setting.service.needed_from() == EVERYTHING_MAY_GO
    setting.close()


def test_a_handle_says_what_it_recalls_and_nonsense_is_refused() -> None:
    handle = recall_handle("FeatTimer", "broker-a", 1795380103000, "FD00")
    assert handle is not None
    assert read_handle(handle) == ("FeatTimer", "broker-a", 1795380103001, "FD00")
    assert recall_handle("%RETRY%G", "broker-a", 1000, "FD00") is None
    for text in ("nonsense", "", "é", "djE=", base64.urlsafe_b64encode(b"v2 T b 1 K").decode(), "A" * 100_000):
        with pytest.raises(CommandError, match="recall handle is invalid") as refused:
            read_handle(text)
        assert refused.value.code == ResponseCode.ILLEGAL_OPERATION


def test_a_recall_that_was_read_before_it_is_safe_is_answered_when_it_is(setting: TimerSetting) -> None:
    """With SYNC_FLUSH, and slaves that are waited for, the acknowledgement comes after the queue has it."""
    slot = setting.send("A", TIMER_DELAY_SEC=5)
    setting.recall("A", slot)
    offset = setting.store.max_offset(TIMER_TOPIC, 0) - 1
    late = setting.send("B", TIMER_DELAY_SEC=1)
    setting.pass_time(3)
    setting.recall("B", late)
    setting.pass_time(1)
    told: list[bool] = []
    for _ in range(2):
        setting.feed.verdict(offset + 2, told.append)
    assert told == [False, False], "and once more, of what nobody knows: no promise"


def test_a_slaves_log_that_was_cut_and_went_on_otherwise_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUFFER_MAX", 4)
    setting = TimerSetting(tmp_path / "store", stepped=True)
    for number in range(10):
        setting.send(f"K{number}", TIMER_DELAY_SEC=5)
    setting.pass_time(0)
    taken = setting.service.index.stamp.taken
    [kept] = setting.store.queue_entries(TIMER_TOPIC, 0, 3, 1)
    setting.kill(cut=setting.store.written - kept.physical_offset)
    for number in range(7):
        setting.send(f"L{number}", TIMER_DELAY_SEC=5, body=b"another")
    assert setting.store.max_offset(TIMER_TOPIC, 0) >= taken
    setting.service.start()
    setting.pass_time(20)
    assert setting.keys() == ["K0", "K1", "K2", *[f"L{number}" for number in range(7)]]
    setting.close()


def test_an_index_that_cannot_be_read_any_more_is_built_anew_while_it_runs(
    setting: TimerSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "BUFFER_MAX", 4)
    for number in range(30):
        setting.send(f"K{number}", TIMER_DELAY_SEC=5 + number % 3)
    setting.pass_time(6.5)
    genuine = TimerRun.read
    failed: list[TimerRun] = []

    def fails(run: TimerRun, at: int, count: int) -> Any:
        if len(failed) < 3:
            failed.append(run)
            raise OSError("the disk")
        return genuine(run, at, count)

    monkeypatch.setattr(TimerRun, "read", fails)
    for run in setting.service.index.runs:
        run._chunk = []
    setting.pass_time(30)
    assert len(failed) == 3
    assert sorted(setting.keys()) == sorted(f"K{number}" for number in range(30))


def test_a_full_disk_stops_the_index_and_is_looked_at_again_now_and_then(
    setting: TimerSetting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index, "BUFFER_MAX", 4)
    genuine, full = write_run, True

    def written(path: Path, parts: Any) -> Any:
        if full:
            raise OSError("no room")
        return genuine(path, parts)

    monkeypatch.setattr(index, "write_run", written)
    for number in range(30):
        setting.send(f"K{number}", TIMER_DELAY_SEC=5)
        setting.pass_time(0)
    assert len([each for each in caplog.records if "cannot be written" in each.getMessage()]) == 1
    full = False
    setting.pass_time(30)
    assert setting.keys() == [f"K{number}" for number in range(30)]


def test_a_clock_that_was_wrong_for_a_moment_does_not_hold_up_what_comes_later(setting: TimerSetting) -> None:
    now = setting.clock.now_ms()
    setting.send("A", TIMER_DELAY_SEC=5)
    setting.clock.set_wall(now + 36_000_000)
    setting.pass_time(60)
    assert setting.keys() == ["A"], "by that clock it was due"
    setting.clock.set_wall(now)
    setting.send("B", TIMER_DELAY_SEC=20)
    setting.pass_time(15)
    assert setting.keys() == ["A"]
    setting.pass_time(60)
    assert setting.keys() == ["A", "B"]
