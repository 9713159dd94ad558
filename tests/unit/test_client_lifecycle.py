"""Starting and closing: nothing of a failed start lives on, and a close is one, however often it is called."""

import asyncio
from collections.abc import Callable

import pytest

from client.errors import ClientClosed, ClientError
from client.lifecycle import CALLING, Calling, Lifecycle


class Part(Lifecycle):
    noun = "part"

    def __init__(self, fails: BaseException | None = None) -> None:
        self.story: list[str] = []
        self.fails = fails
        self.may_start = asyncio.Event()
        self.may_end = asyncio.Event()

    async def _start(self) -> None:
        self.story.append("begun")
        self._undo.callback(self.story.append, "undone")
        await self.may_start.wait()
        if self.fails is not None:
            raise self.fails
        self.story.append("started")

    async def _close(self) -> None:
        self.story.append("closing")
        await self.may_end.wait()


def free(part: Part) -> Part:
    part.may_start.set()
    part.may_end.set()
    return part


async def turns(until: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not until():
            await asyncio.sleep(0)


async def test_a_failed_start_gives_back_what_it_had_begun() -> None:
    part = free(Part(OSError("no disk")))
    with pytest.raises(OSError, match="no disk"):
        await part.start()
    assert part.story == ["begun", "closing", "undone"]


async def test_a_cancelled_start_leaves_nothing_behind() -> None:
    part = Part()
    part.may_end.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await part.start()
    assert part.story == ["begun", "closing", "undone"]


async def test_a_second_start_is_refused_and_touches_nothing() -> None:
    part = free(Part())
    await part.start()
    with pytest.raises(ClientError, match="this part is started already"):
        await part.start()
    await part.close()
    assert part.story == ["begun", "started", "closing", "undone"]


async def test_a_cancelled_close_goes_on_and_the_next_call_waits_for_the_same() -> None:
    part = Part()
    part.may_start.set()
    await part.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await part.close()
    again = asyncio.create_task(part.close())
    await asyncio.sleep(0)
    assert part.story[-1] == "closing"
    part.may_end.set()
    await again
    assert part.story == ["begun", "started", "closing", "undone"]
    await part.close()


async def test_a_close_while_it_starts_ends_the_start() -> None:
    part = Part()
    part.may_end.set()
    starting = asyncio.create_task(part.start())
    await turns(lambda: part.story == ["begun"])
    await part.close()
    with pytest.raises(ClientClosed, match="closed while it started"):
        await starting
    assert part.story == ["begun", "closing", "undone"]


async def test_it_can_be_started_again_after_it_was_closed() -> None:
    part = free(Part())
    for _round in range(2):
        async with part:
            pass
    assert part.story == ["begun", "started", "closing", "undone"] * 2


async def test_inside_a_callback_of_its_own_close_does_not_wait_for_the_callback() -> None:
    part = Part()
    part.may_start.set()
    await part.start()
    calling = Calling(part)
    token = CALLING.set(calling)
    await part.close()
    assert part.story[-1] == "started"
    # The same in a task that outlives the callback: then it waits.
    calling.over = True
    closing = asyncio.create_task(part.close())
    CALLING.reset(token)
    await turns(lambda: part.story[-1] == "closing")
    assert not closing.done()
    part.may_end.set()
    await closing
