"""What the delivery of timer messages is made of, as one value."""

from collections.abc import Callable
from typing import NamedTuple

from broker.delay.feed import TimerStore
from broker.messages.delay_queue import Aside, Cancellable
from broker.messages.timed_record import TimerLimits
from broker.replication import Replication
from runtime.clock import Clock

Later = Callable[[float, Callable[[], None]], Cancellable]


class TimerContext(NamedTuple):
    """What the delivery is made of."""

    store: TimerStore
    replication: Replication
    clock: Clock
    later: Later
    aside: Aside
    limits: Callable[[], TimerLimits]
    comes_to: Callable[[str, int, int], None]
    """Is told of each message's topic and queue, and when it was stored, before it is delivered there."""
    store_host: bytes
    shared: bool
    """A group agrees on the log: nothing of it is torn, and damage is mended."""
