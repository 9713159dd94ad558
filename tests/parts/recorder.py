"""A transport without a socket."""

import asyncio
from collections.abc import Iterable


class Recorder(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 4711)})
        self.written: list[object] = []
        self.calls = 0
        self.reading = True
        self.unsent = 0
        self.closing = False

    def write(self, data: object) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[object]) -> None:
        self.written += list_of_data
        self.calls += 1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True
