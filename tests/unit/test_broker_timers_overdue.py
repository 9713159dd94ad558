"""broker/delay: much is due at once, after a downtime: how many rounds it takes, and one bad one spoils none."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.messages.timed_record import timed
from broker.replication import BatchDone
from remoting.properties import encode_properties
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.timer_parts import HOST, SIZES, TimerSetting


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[TimerSetting]:
    made = TimerSetting(tmp_path / "store")
    made.service.start()
    yield made
    made.close()


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_overdue_comes_in_few_rounds_however_much_comes_meanwhile(tmp_path: Path, shared: bool) -> None:
    """A round is an entry's commit: what bounds a group of which much is due at once."""
    sizes = dataclasses.replace(SIZES, mappedFileSizeCommitLog=16 << 20, mappedFileSizeConsumeQueue=200_000)
    setting = TimerSetting(tmp_path / "store", shared=shared, sizes=sizes)
    due = setting.clock.now_ms() // 1000 * 1000
    for number in range(5000):
        setting.store_timer(f"{number:04d}", due + 1000 * (number % 20))
    setting.clock.advance(60)
    setting.appends = 0
    setting.open_entries = []
    setting.service.start()
    rounds = 0
    while setting.pass_time(0.01) and len(setting.store.queue_entries("T", 2, 0, 10_000)) < 5000:
        assert len(setting.open_entries) <= 1, "one at a time: what comes behind a refused one would pass it over"
        rounds += 1
        # More than is read in a turn.
        for number in range(150):
            record = PendingRecord("T", 3, 0, 0, 99, HOST, 0, 0, b"", encode_properties({"UNIQ_KEY": f"n{rounds}"}))
            setting.store.put(timed(record, due + 3_600_000 + number, setting.clock.now_ms(), setting.limits))
        setting.store.write()
        setting.commit(1)
        assert rounds < 60
    assert setting.keys() == [f"{number:04d}" for start in range(20) for number in range(start, 5000, 20)]
    assert setting.appends <= 5000 // 250 + 5
    setting.close()


def test_one_refused_message_of_many_is_found_in_some_rounds(setting: TimerSetting) -> None:
    due = setting.clock.now_ms() // 1000 * 1000 + 10_000
    for number in range(300):
        setting.store_timer(f"{number:04d}", due, body=b"bad" if number == 222 else b"good")
    setting.service.start()
    honest = setting.append_batch

    def append_batch(records: Sequence[PendingRecord], done: BatchDone, **how: Any) -> None:
        if any(record.body == b"bad" for record in records):
            setting.appends += 1
            done([PutResult(PutStatus.MESSAGE_ILLEGAL)], 13)
        else:
            honest(records, done, **how)

    setting.append_batch = append_batch  # type: ignore[method-assign]
    setting.appends = 0
    setting.pass_time(20)
    assert setting.keys() == [f"{number:04d}" for number in range(300) if number != 222]
    assert setting.appends < 40
    setting.store_timer("later", due + 30_000)
    setting.pass_time(40)
    assert setting.keys()[-1] == "later"
