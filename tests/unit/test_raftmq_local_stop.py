"""`raftmq local` is ended by a signal whenever that comes, also in the very moment in which it begins to wait."""

import signal
import threading

from raftmq.cli.local import StopSignal

SIGNALS = 5000


def test_a_signal_that_comes_while_the_flag_is_looked_at_sets_it() -> None:
    """With threading.Event a handler soon waits for the lock that its own thread holds."""
    stops = [StopSignal()]
    assert not stops[0].wait(0.001)
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: stops[-1].set())
    main = threading.main_thread().ident
    assert main == threading.get_ident(), "where handlers run"

    def send() -> None:
        for _ in range(SIGNALS):
            signal.pthread_kill(main, signal.SIGUSR1)

    sender = threading.Thread(target=send)
    try:
        sender.start()
        while sender.is_alive():
            # Each time one that is not set, until the next signal comes.
            stops.append(StopSignal())
            stops[-1].wait(0.01)
            stops.pop().close()
        assert stops[0].wait(10)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
        stops[0].close()
