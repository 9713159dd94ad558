"""What RocketMQ's timer left in a store folder, only read: up to where it delivered what waits in its topic.

`config/timercheck` begins with three int64: the time up to which the wheel was delivered (ms), a position in the log of
the timer, and the offset in the timer topic's queue up to which messages were put into the wheel. With these, and the
topic's queue, the wheel and its log (`timerwheel`, `timerlog`) tell nothing new.
"""

import struct
from pathlib import Path
from typing import NamedTuple

CHECK_FILE = Path("config", "timercheck")
_CHECK = struct.Struct(">qqq")


class TimerCheck(NamedTuple):
    """How far RocketMQ's timer came."""

    delivered_ms: int
    """What was due before this time has been delivered, if it was put into the wheel."""
    taken: int
    """Messages before this offset were put into the wheel."""


def read_check(root: Path) -> TimerCheck | None:
    """Return how far RocketMQ's timer came, None when it was never there. Raises OSError."""
    try:
        content = (root / CHECK_FILE).read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _CHECK.size:
        return None
    found: tuple[int, int, int] = _CHECK.unpack_from(content)
    delivered_ms, _log, taken = found
    return TimerCheck(delivered_ms, taken) if delivered_ms > 0 else None
