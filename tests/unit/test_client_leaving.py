"""Queues that are handed over: one task after the other, and none that begins after its consumer has gone."""

import asyncio
import gc

import pytest

from client.consume.leaving import Leaving
from remoting.bodies.registry import MessageQueue
from runtime.tasks import Tasks

QUEUE = MessageQueue("T", "b", 0)


async def test_the_tasks_of_a_queue_follow_one_another() -> None:
    tasks, done = Tasks("leaving"), list[str]()
    leaving = Leaving(tasks.spawn)
    go_on = asyncio.Event()

    async def first() -> None:
        await go_on.wait()
        done.append("first")

    async def second() -> None:
        done.append("second")

    leaving.begin(QUEUE, first)
    leaving.begin(QUEUE, second)
    await leaving.wait(0.01)
    assert done == []
    assert leaving.get(QUEUE) is not None
    go_on.set()
    await leaving.wait()
    await asyncio.sleep(0)
    assert (done, leaving.get(QUEUE)) == (["first", "second"], None)
    await tasks.close()


async def test_what_never_began_leaves_nothing_behind(recwarn: pytest.WarningsRecorder) -> None:
    """Consumers that close in the turn in which they give up their queues."""
    tasks = Tasks("leaving")
    leaving = Leaving(tasks.spawn)

    async def never() -> None:
        raise AssertionError

    leaving.begin(QUEUE, never)
    await tasks.close()
    gc.collect()
    assert [str(each.message) for each in recwarn] == []
