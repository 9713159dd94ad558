"""One queue of a push consumer: when it begins, and how much of its topic it may have unfinished."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from client.api import PullAnswer, PullRequest
from client.consume.offsets import OffsetStore
from client.consume.push_queue import AssignedQueue, PullContext, PullLimits
from client.consume.subscription import subscribe_by_tags
from client.instance import ClientInstance
from client.routes import TopicRoute
from remoting.bodies.registry import MessageQueue


@pytest.mark.parametrize(
    ("limits", "queues", "share"),
    [
        (PullLimits(unfinished_max=100, unfinished_bytes_max=1000), 4, (100, 1000)),
        (PullLimits(unfinished_max=100, topic_unfinished_max=40, unfinished_bytes_max=1000), 4, (10, 1000)),
        (PullLimits(unfinished_max=100, topic_unfinished_bytes_max=40, unfinished_bytes_max=1000), 4, (100, 10)),
        # The smaller of both counts, and a queue that is there gets something.
        (PullLimits(unfinished_max=5, topic_unfinished_max=40), 4, (5, 100 * 1024 * 1024)),
        (PullLimits(topic_unfinished_max=3, topic_unfinished_bytes_max=3), 4, (1, 1)),
        (PullLimits(topic_unfinished_max=3), 0, (3, 100 * 1024 * 1024)),
    ],
)
def test_each_queue_of_a_topic_has_its_share(limits: PullLimits, queues: int, share: tuple[int, int]) -> None:
    assert limits.share(lambda: queues) == share


@pytest.mark.parametrize(("locked", "soon"), [(False, False), (True, True)])
async def test_a_queue_that_others_may_have_is_left_alone_for_a_while(locked: bool, soon: bool) -> None:
    """Unless a lock tells when it is free."""
    pulled: list[int] = []
    loop = asyncio.get_running_loop()
    came_at = 0.0

    async def pull(_address: str, request: PullRequest) -> PullAnswer:
        nonlocal came_at
        came_at = loop.time()
        pulled.append(request.offset)
        await asyncio.Event().wait()
        raise AssertionError("never answered")

    async def find(_topic: str) -> TopicRoute:
        return TopicRoute("T", (), (), {"b": {0: "m:1"}})

    async def begin(_queue: MessageQueue) -> int:
        return 7

    async def admit(_queue: MessageQueue) -> None:
        return

    api = SimpleNamespace(pull=pull)
    instance = cast("ClientInstance", SimpleNamespace(api=api, routes=SimpleNamespace(find=find)))
    offsets = cast("OffsetStore", SimpleNamespace(update=lambda *_, **__: None))
    context = PullContext("G", instance, offsets, PullLimits(), lambda *_: None, begin, admit=admit if locked else None)
    assigned = AssignedQueue(context, MessageQueue("T", "b", 0), subscribe_by_tags("T", "*", 0))
    # Who need not wait would have to for longer than this test lasts.
    wait_s = 3600.0 if soon else 0.2
    began = loop.time()
    assigned.start(wait_s=wait_s)
    async with asyncio.timeout(20):
        while not pulled:
            await asyncio.sleep(0.01)
    assert pulled == [7]
    # A timer's clock may be some microseconds coarser than the wait.
    assert soon or came_at - began >= wait_s - 0.01
    await assigned.stop()
