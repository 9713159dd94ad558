"""What the tests of when a message is acknowledged share: a store that keeps nothing, answers that are counted."""

import asyncio
from collections.abc import Callable, Sequence

from store.errors import StoreWriteError
from store.types import PendingRecord, PutResult, PutStatus

SIZE = 100
REFUSED = "refused"


class FakeStore:
    """A store that keeps nothing: 100 bytes a record, flushed when the test says so."""

    def __init__(self) -> None:
        self.end = 0
        self.written = 0
        self.writes = 0
        self.wanted: list[int] = []
        self.refused: str | None = None
        self.broken = False

    def put_many(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        return [self._put(record) for record in records]

    def put_batch(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        if any(record.topic == REFUSED for record in records):
            return [PutResult(PutStatus.MESSAGE_ILLEGAL) for _ in records]
        return [self._put(record) for record in records]

    def _put(self, record: PendingRecord) -> PutResult:
        if record.topic == REFUSED:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        start = self.end
        self.end += SIZE
        return PutResult(PutStatus.PUT_OK, start, start // SIZE, SIZE, 0, self.end)

    def write(self, told: Callable[[], None] | None = None) -> int:
        if self.broken:
            self.end = self.written
            raise StoreWriteError("no room")
        self.writes += 1
        self.written = self.end
        if told is not None:
            told()
        return self.written

    def flush_soon(self, position: int) -> None:
        self.wanted.append(position)

    def writable(self) -> str | None:
        return self.refused


def record(topic: str = "T") -> PendingRecord:
    return PendingRecord(topic, 0, 0, 0, 0, b"\x7f\0\0\1\0\0\0\0", 0, 0, b"x", b"")


class Answers:
    def __init__(self) -> None:
        self.codes: list[int] = []
        self.results: list[PutResult | list[PutResult]] = []

    def __call__(self, result: PutResult, code: int) -> None:
        self.codes.append(int(code))
        self.results.append(result)

    def batch(self, results: list[PutResult], code: int) -> None:
        self.codes.append(int(code))
        self.results.append(results)


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def answered(answers: Answers, count: int = 1) -> list[int]:
    async with asyncio.timeout(20):
        while len(answers.codes) < count:
            await asyncio.sleep(0.001)
    return answers.codes
