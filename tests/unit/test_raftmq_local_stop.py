"""`raftmq local` is ended by a signal whenever that comes, also in the very moment in which it looks for it."""

import select
import signal

import pytest

from raftmq.cli.local import StopSignal


def test_a_signal_ends_the_wait_and_more_of_them_do_no_harm() -> None:
    stop = StopSignal()
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: stop.set())
    try:
        assert not stop.wait(0.001)
        for _ in range(3):
            signal.raise_signal(signal.SIGUSR1)
            assert stop.wait(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
        stop.close()


def test_a_signal_that_comes_within_the_wait_is_heard_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler runs in the thread that waits: a lock that both need is never given back (threading.Event's)."""
    stop = StopSignal()
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: stop.set())
    honest = select.select

    def interrupted(*asked: object) -> object:
        monkeypatch.setattr(select, "select", honest)
        signal.raise_signal(signal.SIGUSR1)
        return honest(*asked)  # type: ignore[arg-type]  # passed on as it is

    monkeypatch.setattr(select, "select", interrupted)
    try:
        assert stop.wait(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
        stop.close()
