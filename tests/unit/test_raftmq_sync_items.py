"""What yields in an asynchronous class is iterated in the blocking one, and other calls of the object may take it."""

import gc
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from importlib import import_module
from types import TracebackType
from typing import Any

import pytest

from client.errors import ClientClosed


class Numbers:
    """An object as those of the client library are."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def each(self, count: int) -> AsyncGenerator[int]:
        try:
            for number in range(count):
                yield number
            if count > 3:
                raise LookupError("there are three at most")
        finally:
            self.ended.append(count)

    async def total(self, numbers: AsyncIterable[int]) -> int:
        return sum([number async for number in numbers])


# The stub shows type checkers the public classes alone.
BlockingNumbers: Any = type("BlockingNumbers", (import_module("raftmq.sync")._Blocking,), {"kind": Numbers})


@pytest.fixture
def numbers() -> Iterator[Any]:
    with BlockingNumbers() as made:
        yield made


def test_items_come_one_after_the_other(numbers: Any) -> None:
    assert list(numbers.each(3)) == [0, 1, 2]
    assert list(numbers.each(0)) == []
    assert numbers.ended == [3, 0]
    items = numbers.each(9)
    with pytest.raises(LookupError, match="three at most"):
        list(items)
    assert list(items) == [], "it is over"


def test_another_call_takes_them_as_they_are(numbers: Any) -> None:
    assert numbers.total(numbers.each(3)) == 3


def test_who_has_seen_enough_closes_them(numbers: Any) -> None:
    items = numbers.each(3)
    assert next(items) == 0
    assert numbers.ended == []
    items.close()
    assert (numbers.ended, list(items)) == ([3], [])
    next(numbers.each(2))
    gc.collect()  # what is left half way ends with the loop, and says nothing


def test_of_what_is_not_started_nothing_comes() -> None:
    with pytest.raises(ClientClosed):
        BlockingNumbers().each(1)
    numbers: Any = BlockingNumbers()
    with numbers:
        items = numbers.each(3)
        next(items)
    with pytest.raises(ClientClosed):
        next(items)
