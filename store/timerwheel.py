"""What RocketMQ's timer left in a store folder. Only read: this store has no timer of its own.

`config/timercheck` begins with three int64: the time up to which the wheel was delivered (ms), a position in the log of
the timer, and the offset in the timer topic's queue up to which messages were put into the wheel. `timerwheel` is slots
of 32 bytes, one for each second of two weeks: int64 second, two int64 positions, int32 number of messages, int32.
"""

import struct
from pathlib import Path

import numpy as np

CHECK_FILE = Path("config", "timercheck")
WHEEL_FILE = Path("timerwheel")
# Bytes of the wheel that are read; RocketMQ's own has 38,707,200.
WHEEL_BYTES_MAX = 256 * 1024 * 1024
_CHECK = struct.Struct(">qqq")
_SLOT = np.dtype([("second", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")])


def timers_pending(root: Path, queue_end: int) -> int:
    """Return how many timer messages wait: those in the wheel, and those in the topic's queue that never came there.

    `queue_end` is where that queue ends. What cannot be read counts as not delivered. Raises OSError.
    """
    try:
        check = (root / CHECK_FILE).read_bytes()
    except FileNotFoundError:
        check = b""
    if len(check) < _CHECK.size:
        return queue_end
    found: tuple[int, int, int] = _CHECK.unpack_from(check)
    delivered_ms, _log, taken = found
    return max(0, queue_end - taken) + _in_wheel(root / WHEEL_FILE, delivered_ms)


def _in_wheel(path: Path, delivered_ms: int) -> int:
    try:
        with path.open("rb") as file:
            content = file.read(WHEEL_BYTES_MAX)
    except FileNotFoundError:
        return 0
    slots = np.frombuffer(content, _SLOT, len(content) // _SLOT.itemsize)
    waiting = slots["count"][slots["second"] * 1000 >= delivered_ms]
    counts: list[int] = waiting[waiting > 0].tolist()
    return sum(counts)
