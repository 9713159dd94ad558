"""runtime/quiet.py: a line per address and kind in ten seconds, what was left out, a table that does not grow."""

import logging

import pytest

from runtime.quiet import ENTRIES_MAX, EVERY_S, FewLines, LineShares, QuietLog


class Noisy:
    """A QuietLog with a clock that is set by hand, and what it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self.quiet = QuietLog(logging.getLogger("strangers"), lambda: self.now)
        self._caplog = caplog

    def lines(self) -> list[str]:
        """What was logged since the last look."""
        lines = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def noisy(caplog: pytest.LogCaptureFixture) -> Noisy:
    return Noisy(caplog)


def test_one_line_in_ten_seconds_and_then_what_was_left_out(noisy: Noisy) -> None:
    for number in range(1000):
        noisy.quiet.warning("frame", "10.0.0.1", "%s sent %d", "10.0.0.1:7", number)
    assert noisy.lines() == ["10.0.0.1:7 sent 0"]
    noisy.now = EVERY_S - 0.1
    noisy.quiet.tell()
    assert noisy.lines() == []
    noisy.now = EVERY_S
    noisy.quiet.tell()
    assert noisy.lines() == ["10.0.0.1:7 sent 999 (one of 999 of 10.0.0.1 in 10 s)"]


def test_a_flood_that_goes_on_has_a_line_in_ten_seconds(noisy: Noisy) -> None:
    for second in range(100):
        noisy.now = float(second)
        for _ in range(50):
            noisy.quiet.warning("frame", "10.0.0.1", "bad")
    assert len(noisy.lines()) == 10


def test_addresses_and_kinds_have_their_own(noisy: Noisy) -> None:
    for kind, host in (("frame", "10.0.0.1"), ("frame", "10.0.0.2"), ("limit", "10.0.0.1"), ("frame", "10.0.0.1")):
        noisy.quiet.warning(kind, host, "%s %s", kind, host)
    assert noisy.lines() == ["frame 10.0.0.1", "frame 10.0.0.2", "limit 10.0.0.1"]


def test_who_was_quiet_is_logged_at_once_again(noisy: Noisy) -> None:
    noisy.quiet.warning("frame", "10.0.0.1", "first")
    noisy.now = EVERY_S
    noisy.quiet.warning("frame", "10.0.0.1", "second")
    assert noisy.lines() == ["first", "second"]


def test_many_addresses_are_one_when_the_table_is_full(noisy: Noisy) -> None:
    for number in range(10_000):
        noisy.quiet.warning("frame", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "%d", number)
    assert len(noisy.lines()) == ENTRIES_MAX + 1
    assert len(noisy.quiet._table) == ENTRIES_MAX + 1
    noisy.now = EVERY_S
    noisy.quiet.tell()
    assert noisy.lines() == [f"9999 (one of {10_000 - ENTRIES_MAX - 1} of other addresses in 10 s)"]
    noisy.now = 2 * EVERY_S
    noisy.quiet.tell()
    assert not noisy.quiet._table


def test_so_many_lines_whoever_they_are_about() -> None:
    now = [0.0]
    few = FewLines(3, lambda: now[0])
    assert [few.let() for _ in range(5)] == [True, True, True, False, False]
    now[0] = EVERY_S
    assert few.let()


def test_no_address_takes_the_lines_of_others() -> None:
    shares = LineShares(20, 4)
    assert [shares.let("10.0.0.1", kind) for kind in (1, 1, 2, 3, 4, 5)] == [True, False, True, True, True, False]
    # Nor do some: of half the lines each has several, of the other half one.
    assert [shares.let(f"10.0.0.{host}", kind) for host in (2, 3) for kind in range(4)] == [True] * 6 + [False] * 2
    assert [shares.let(f"10.0.1.{host}", 1) for host in range(10)] == [True] * 10
    assert not shares.let("10.0.9.9", 1), "all are written"
    # A customer's network of IPv6 is one.
    assert [shares.let(f"fd00::{host}", 1) for host in (1, 2)] == [False, False]
    assert shares.left_out(0.0) == (7, "3 of other addresses, 2 of 10.0.0.1, 2 of 10.0.0.3")
    assert shares.let("10.0.0.1", 1)
    assert shares.left_out(EVERY_S / 2) == (0, "")
    assert shares.left_out(EVERY_S) == (0, "")
