"""Logs of a slave and a master in memory, for the tests of their comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.master_slave.ha_compare import MasterLog, OwnLog, Range
from broker.settings.pair_keys import ASYNC_MASTER
from remoting.record import BLANK, BLANK_BYTES, BLANK_MAGIC, encode_record

FILE_BYTES = 1024
INCARNATION = "first start"


@dataclass
class MadeLog:
    """A log of real records from `begin` on, with blanks, in files of FILE_BYTES; `data` begins at position 0."""

    begin: int = 0
    data: bytearray = field(default_factory=bytearray)
    borders: list[int] = field(default_factory=lambda: [0])

    @property
    def end(self) -> int:
        return len(self.data)

    def add(self, body: bytes, timestamp: int = 0) -> None:
        left = FILE_BYTES - self.end % FILE_BYTES
        record = encode_record("T", 0, body, physical_offset=self.end, store_timestamp=timestamp)
        if len(record) + BLANK_BYTES > left:
            self.data += BLANK.pack(left, BLANK_MAGIC) + bytes(left - BLANK_BYTES)
            self.borders.append(self.end)
            record = encode_record("T", 0, body, physical_offset=self.end, store_timestamp=timestamp)
        self.data += record
        self.borders.append(self.end)

    def copy(self) -> "MadeLog":
        return MadeLog(self.begin, bytearray(self.data), list(self.borders))

    def border(self, position: int) -> int:
        return max(border for border in self.borders if border <= position)

    def break_off(self, count: int) -> None:
        """Take bytes off the end, as if a frame had ended there."""
        if count:
            del self.data[-count:]
            self.borders = [border for border in self.borders if border <= self.end]


def made(count: int, *, size: int = 10, timestamp: int = 0) -> MadeLog:
    log = MadeLog()
    for number in range(count):
        log.add(b"%d" % number + bytes(size), timestamp)
    return log


class Pair:
    """Both logs; remembers what was asked."""

    def __init__(self, own: MadeLog, master: MadeLog) -> None:
        self.own = own
        self.master = master
        self.asked: list[Range] = []

    async def same(self, ranges: Sequence[Range]) -> list[bool]:
        assert len(ranges) > 0
        for begin, end in ranges:
            assert max(self.own.begin, self.master.begin) <= begin < end <= min(self.own.end, self.master.end)
            assert begin // FILE_BYTES == (end - 1) // FILE_BYTES, "a range lies in one file"
        self.asked += ranges
        return [self.own.data[begin:end] == self.master.data[begin:end] for begin, end in ranges]

    async def border(self, position: int) -> int:
        assert self.own.begin <= position <= self.own.end
        return self.own.border(position)


def own_facts(log: MadeLog, **changes: Any) -> OwnLog:
    values = {"begin": log.begin, "end": log.end, "whole": log.borders[-1], "file_bytes": FILE_BYTES}
    return OwnLog(**{**values, **changes})


def master_facts(log: MadeLog, **changes: Any) -> MasterLog:
    values = {
        "role": ASYNC_MASTER,
        "begin": log.begin,
        "end": log.end,
        "file_bytes": FILE_BYTES,
        "incarnation": INCARNATION,
    }
    return MasterLog(**{**values, **changes})
