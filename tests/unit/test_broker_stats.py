"""Counters and rates under a clock that is turned by hand."""

import pytest

import broker.stats
from broker.stats import BrokerStats
from runtime.clock import ManualClock


def make(clock: ManualClock) -> BrokerStats:
    return BrokerStats(clock, "DefaultCluster", "broker-a", day_of=lambda now_ms: now_ms // 86_400_000)


def run(stats: BrokerStats, clock: ManualClock, seconds: int, puts_a_second: int = 0) -> None:
    for _ in range(seconds):
        if puts_a_second:
            stats.put("T", puts_a_second, 100 * puts_a_second)
        clock.advance(1)
        stats.tick()


def test_rates_look_back_ten_sixty_and_six_hundred_seconds() -> None:
    clock = ManualClock()
    stats = make(clock)
    assert stats.put_tps() == (0.0, 0.0, 0.0)
    run(stats, clock, 50)
    run(stats, clock, 10, puts_a_second=6)
    assert stats.put_tps() == pytest.approx((6.0, 1.0, 1.0))
    run(stats, clock, 540)
    assert stats.put_tps() == pytest.approx((0.0, 0.0, 0.1))
    run(stats, clock, 1000)
    assert stats.put_tps() == (0.0, 0.0, 0.0)


def test_pulls_that_find_and_that_miss() -> None:
    clock = ManualClock()
    stats = make(clock)
    for _ in range(10):
        stats.got("g", "T", 32, 3200)
        stats.missed()
        clock.advance(1)
        stats.tick()
    assert stats.found_tps()[0] == pytest.approx(1.0)
    assert stats.missed_tps()[0] == pytest.approx(1.0)
    assert stats.pull_tps()[0] == pytest.approx(2.0)
    assert stats.got_tps()[0] == pytest.approx(32.0)
    assert stats.group_get_tps("g", "T") == pytest.approx(32.0)
    assert stats.group_get_tps("other", "T") == 0.0


def test_windows_of_a_minute_an_hour_and_a_day() -> None:
    clock = ManualClock()
    stats = make(clock)
    run(stats, clock, 7200, puts_a_second=2)
    view = stats.view("TOPIC_PUT_NUMS", "T")
    assert view is not None
    assert view.statsMinute is not None
    assert view.statsHour is not None
    assert view.statsDay is not None
    assert view.statsMinute.sum == pytest.approx(120, abs=20)
    assert view.statsMinute.tps == pytest.approx(2.0)
    assert view.statsMinute.avgpt == 2.0
    assert view.statsHour.sum == pytest.approx(7200, abs=1300)
    assert view.statsDay.sum == 14_400
    sizes = stats.view("TOPIC_PUT_SIZE", "T")
    assert sizes is not None
    assert sizes.statsDay is not None
    assert sizes.statsDay.sum == 1_440_000
    whole = stats.view("BROKER_PUT_NUMS", "DefaultCluster")
    assert whole is not None
    assert whole.statsDay is not None
    assert whole.statsDay.sum == 14_400


def test_unknown_names_and_keys_have_no_view() -> None:
    stats = make(ManualClock())
    stats.put("T", 1, 1)
    stats.got("g", "T", 1, 1)
    stats.sent_back("g", "T")
    assert stats.view("TOPIC_PUT_NUMS", "U") is None
    assert stats.view("NO_SUCH", "T") is None
    assert stats.view("BROKER_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@g") is not None
    assert stats.view("SNDBCK_PUT_NUMS", "T@g") is not None
    assert stats.view("GROUP_GET_NUMS", "T") is None


def test_sums_at_midnight() -> None:
    clock = ManualClock(now_ms=86_400_000 * 100)
    stats = make(clock)
    stats.put("T", 5, 5)
    assert stats.puts_by_day() == (0, 0, 5)
    clock.advance(86_400)
    stats.tick()
    stats.put("T", 7, 7)
    stats.got("g", "T", 3, 3)
    assert stats.puts_by_day() == (0, 5, 12)
    clock.advance(86_400)
    stats.tick()
    assert stats.puts_by_day() == (5, 12, 12)
    assert stats.gets_by_day() == (0, 3, 3)


def test_more_keys_than_the_limit_count_in_the_totals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.stats, "KEYS_MAX", 2)
    clock = ManualClock()
    stats = make(clock)
    for topic in ("A", "B", "C"):
        stats.put(topic, 1, 1)
    assert stats.totals.put == 3
    assert [name for name, _ in stats.topics()] == ["A", "B"]
    for _ in range(4000):
        stats.put("B", 1, 1)
        clock.advance(1)
        stats.tick()
    stats.put("C", 1, 1)
    assert [name for name, _ in stats.topics()] == ["B", "C"], "the idle one made room"


def test_what_is_deleted_is_forgotten() -> None:
    stats = make(ManualClock())
    stats.put("T", 1, 1)
    stats.got("g", "T", 1, 1)
    stats.got("h", "U", 1, 1)
    stats.forget_topic("T")
    assert list(stats.topics()) == []
    assert [(topic, group) for topic, group, _ in stats.groups()] == [("U", "h")]
    stats.forget_group("h")
    assert list(stats.groups()) == []
    assert stats.totals.put == 1
