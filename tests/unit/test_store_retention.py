"""What is deleted when, and when writes are refused."""

import time
from dataclasses import replace

import pytest

from store.config import StoreConfig
from store.log.retention import KeptFile, decide

HOUR_MS = 3_600_000
CONFIG = StoreConfig(deleteWhen="04;16", fileReservedTime=72)


def at_hour(hour: int) -> int:
    """Milliseconds of a day of long ago at that hour, local time."""
    return int(time.mktime((2024, 5, 6, hour, 30, 0, 0, 0, -1))) * 1000


def files(now_ms: int, *ages_hours: float) -> list[KeptFile]:
    return [KeptFile(n * 1000, 1000, now_ms - int(age * HOUR_MS)) for n, age in enumerate(ages_hours)]


@pytest.mark.parametrize(("hour", "deleted"), [(4, [0, 1000]), (16, [0, 1000]), (3, []), (5, [])])
def test_expired_files_go_at_the_hours_of_delete_when(hour: int, deleted: list[int]) -> None:
    now = at_hour(hour)
    decision = decide(files(now, 80, 73, 71, 1), CONFIG, now_ms=now, disk_ratio=0.5)
    assert decision.delete == deleted
    assert not decision.refuse_writes
    assert "deleteWhen" in decision.reason


def test_a_file_behind_one_that_stays_stays() -> None:
    now = at_hour(4)
    assert decide(files(now, 80, 1, 90, 0), CONFIG, now_ms=now, disk_ratio=0.5).delete == [0]


def test_the_last_file_is_never_deleted() -> None:
    now = at_hour(4)
    assert decide(files(now, 90, 80), CONFIG, now_ms=now, disk_ratio=0.99).delete == [0]
    assert decide(files(now, 90), CONFIG, now_ms=now, disk_ratio=0.99).delete == []
    assert decide([], CONFIG, now_ms=now, disk_ratio=0.99).delete == []


def test_a_pass_deletes_at_most_its_batch() -> None:
    now = at_hour(4)
    many = files(now, *[100] * 30)
    assert len(decide(many, CONFIG, now_ms=now, disk_ratio=0.5).delete) == 10
    few = replace(CONFIG, deleteFileBatchMax=3)
    assert decide(many, few, now_ms=now, disk_ratio=0.5).delete == [0, 1000, 2000]


@pytest.mark.parametrize(
    ("ratio", "asked", "deleted"),
    [(0.75, False, []), (0.76, False, [0]), (0.84, False, [0]), (0.85, False, [0, 1000]), (0.5, True, [0])],
)
def test_a_fuller_disk_or_an_administrator_makes_other_hours_do(ratio: float, asked: bool, deleted: list[int]) -> None:
    now = at_hour(12)
    decision = decide(files(now, 80, 1, 0), CONFIG, now_ms=now, disk_ratio=ratio, asked=asked)
    assert decision.delete == deleted


def test_files_that_have_not_expired_are_kept_when_that_is_configured() -> None:
    now = at_hour(12)
    config = replace(CONFIG, cleanFileForciblyEnable=False)
    assert decide(files(now, 80, 1, 0), config, now_ms=now, disk_ratio=0.95).delete == [0]


@pytest.mark.parametrize(("ratio", "refused"), [(0.89, False), (0.90, True), (1.0, True)])
def test_writes_are_refused_from_the_warning_ratio_on(ratio: float, refused: bool) -> None:
    now = at_hour(12)
    assert decide(files(now, 1, 0), CONFIG, now_ms=now, disk_ratio=ratio).refuse_writes is refused


def test_the_reason_says_when_there_was_nothing_to_delete() -> None:
    now = at_hour(4)
    assert decide(files(now, 1, 0), CONFIG, now_ms=now, disk_ratio=0.1).reason.endswith("none is there")
