"""A small blocking client of a topic, for Spark's planners and tasks: where its queues are, and their messages' bytes.

Behind it runs one event loop, only while somebody waits for an answer. Whatever fails is tried again, with the route
asked for anew, until the retry time is over: a leader that is killed costs an election. Then comes a clear error.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from client.api import BrokerApi
from client.consume.offsets import broker_address, refresh_quietly
from client.errors import ClientError
from client.instance import ClientInstance
from client.retry import retriable, with_retries
from client.routes import TopicRoute
from pipeline.spark.topic.options import Bound, TopicOptions
from remoting.bodies.registry import MessageQueue
from remoting.errors import InvokeError, RemotingError
from runtime.loop import Loop

T = TypeVar("T")

# Questions about offsets that are under way at a time.
QUESTIONS_AT_A_TIME = 64
# Attempts are bounded by time alone.
_ATTEMPTS_MAX = 1_000_000


class TopicError(Exception):
    """A topic cannot be read or written; the text says what to do about it."""


class TopicClient:
    """Use as a context manager; `run` drives coroutines that use `instance`."""

    def __init__(self, options: TopicOptions) -> None:
        self.options = options
        self._runner = asyncio.Runner(loop_factory=Loop)
        self.instance = ClientInstance(options.namesrv)

    def __enter__(self) -> Self:
        self.run(self.instance.enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self.instance.leave())
        finally:
            self._runner.close()

    def run(self, work: Awaitable[T]) -> T:
        """Wait for `work`; what brokers, NameServers and the client say against it becomes a TopicError."""

        async def waited() -> T:
            return await work

        try:
            return self._runner.run(waited())
        except (RemotingError, ClientError) as error:
            raise TopicError(f"topic {self.options.topic}: {error}") from error

    def route(self) -> TopicRoute:
        """Return the topic's route, asked for anew; raises TopicError when there is no such topic."""
        routes, topic = self.instance.routes, self.options.topic

        async def ask() -> TopicRoute:
            await routes.refresh(topic)
            return await routes.find(topic)

        return self.run(self.patiently(ask))

    def queues(self) -> list[MessageQueue]:
        """Return the queues that can be read, sorted; raises TopicError."""
        return list(self.route().read_queues)

    def earliest(self, queues: Sequence[MessageQueue]) -> list[int]:
        """Return the first offset that each queue still has."""
        return self._each(queues, lambda api, address, queue: api.min_offset(address, queue))

    def latest(self, queues: Sequence[MessageQueue]) -> list[int]:
        """Return the offset behind each queue's last message."""
        return self._each(queues, lambda api, address, queue: api.max_offset(address, queue))

    def at_time(self, queues: Sequence[MessageQueue], timestamp_ms: int) -> list[int]:
        """Return the offset of each queue's first message stored at or after that time, its end if there is none."""
        return self._each(queues, lambda api, address, queue: api.offset_by_time(address, queue, timestamp_ms))

    def resolve(self, bound: Bound, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of each queue that a bound means now; raises TopicError for queues that are not there."""
        if bound.timestamp_ms is not None:
            return dict(zip(queues, self.at_time(queues, bound.timestamp_ms), strict=True))
        topic = self.options.topic
        named = {MessageQueue(topic, broker, number) for broker, of in bound.places.items() for number in of}
        strangers = sorted(named - set(queues))
        if strangers:
            told = ", ".join(f"{queue.brokerName}:{queue.queueId}" for queue in strangers[:8])
            here = ", ".join(f"{queue.brokerName}:{queue.queueId}" for queue in queues[:64])
            raise TopicError(f"topic {topic} has no queue {told}, which the offsets name; its queues are {here}")
        wanted = {queue: bound.places.get(queue.brokerName, {}).get(queue.queueId, bound.edge) for queue in queues}
        first = [queue for queue, place in wanted.items() if place == "earliest"]
        last = [queue for queue, place in wanted.items() if place == "latest"]
        found = {queue: place for queue, place in wanted.items() if isinstance(place, int)}
        found.update(zip(first, self.earliest(first), strict=True))
        found.update(zip(last, self.latest(last), strict=True))
        return found

    def _each(
        self, queues: Sequence[MessageQueue], ask: Callable[[BrokerApi, str, MessageQueue], Awaitable[int]]
    ) -> list[int]:
        if not queues:
            return []
        room = asyncio.Semaphore(QUESTIONS_AT_A_TIME)
        instance = self.instance

        async def one(queue: MessageQueue) -> int:
            async def attempt() -> int:
                try:
                    return await ask(instance.api, await broker_address(instance.routes, queue), queue)
                except InvokeError as error:
                    if error.reroute:
                        await refresh_quietly(instance.routes, queue.topic)
                    raise

            async with room:
                return await self.patiently(attempt)

        async def everyone() -> list[int]:
            return list(await asyncio.gather(*(one(queue) for queue in queues)))

        return self.run(everyone())

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Await `attempt` (a coroutine function) until it succeeds or the retry time is over; raises its last error."""
        deadline = time.monotonic() + self.options.retry_s
        return await with_retries(attempt, attempts=_ATTEMPTS_MAX, deadline=deadline, again=retriable)
