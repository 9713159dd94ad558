"""Pulls a range of a queue, several requests at a time, and hands on the bytes of the answers in order.

A broker gives few messages at a time (32 by default), so requests for the ranges behind are sent before the answer to
the first has come. How many messages go together is learnt from the answers. With a tag filter only the answer tells
where to go on: requests go one by one then, and what does not match moves the position all the same.
"""

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass

from client.consume.offsets import refresh_quietly
from client.consume.replica import ReplicaChoice
from client.consume.subscription import ALL
from client.errors import RouteError
from client.retry import retriable
from pipeline.spark.topic.client import TopicClient, TopicError
from remoting.bodies.registry import MessageQueue
from remoting.codes import PullSysFlag, RequestCode, ResponseCode
from remoting.command import Body, Command
from remoting.errors import InvokeError, RemotingError, ResponseError
from remoting.headers.registry import PullMessageRequestHeader, PullMessageResponseHeader

_log = logging.getLogger(__name__)

# Requests under way at a time: many for small answers, so that a round trip is not waited for; few for large ones.
WINDOW_MIN = 4
WINDOW_MAX = 128
BYTES_UNDER_WAY = 8 * 1024 * 1024
# An answer of so many bytes was short because of its bytes; a shorter one, because of the broker's limit of messages.
LARGE_BYTES = 64 * 1024
# After so many full answers in a row behind a large one twice as much is asked for: bodies may be smaller now.
FULL_ANSWERS = 256
PULL_TIMEOUT_S = 15.0
PAUSE_S_FIRST = 0.02
PAUSE_S_MAX = 0.5

_FOUND = int(ResponseCode.SUCCESS)
_NOTHING = frozenset({int(ResponseCode.PULL_NOT_FOUND), int(ResponseCode.PULL_RETRY_IMMEDIATELY)})
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)


class DataLoss(TopicError):
    """Messages that were asked for are gone."""


@dataclass(slots=True)
class _Asked:
    """One request under way, for the messages of [offset, offset + count)."""

    offset: int
    count: int
    address: str
    answer: "asyncio.Future[Command]"


@dataclass(slots=True, repr=False)
class Pulled:
    """Bodies of answers in order, all of messages from `start` on; `next` is the offset behind them.

    Without a text of its own: asyncio.Runner.run makes one of its task's result when it gives SIGINT back, which took
    as long as all the rest.
    """

    bodies: list[Body]
    start: int
    next: int


class RangePuller:
    """The messages of one queue from `start` up to `end` (exclusive). `position` is the next offset to hand on."""

    def __init__(self, client: TopicClient, queue: MessageQueue, start: int, end: int, expression: str) -> None:
        self._client = client
        self._options = client.options
        self._queue = queue
        self._end = end
        self._expression = expression
        self._filtered = expression != ALL
        self.position = start
        self._ask_at = start
        self._step = self._options.pull_count
        self._full = 0
        self._grows = False
        # Until the first answer has told how many messages go together, one request is enough.
        self._window = 1
        self._flight: deque[_Asked] = deque()
        self._replica = ReplicaChoice(time.monotonic)
        self._moved_at = time.monotonic()
        self._pause_s = PAUSE_S_FIRST
        self._trouble = ""

    async def pull(self, bytes_wanted: int) -> Pulled:
        """Return at least so many bytes of messages, or all up to the end; raises TopicError.

        A piece ends early where messages are gone, so that all of its messages stand without a gap (unless filtered).
        """
        pulled = Pulled([], self.position, self.position)
        size = 0
        self._moved_at = time.monotonic()
        while self.position < self._end and size < bytes_wanted:
            try:
                await self._fill()
                asked = self._flight.popleft()
                answer = await asked.answer
                if answer.code == _FOUND:
                    size += len(answer.body)
                    pulled.bodies.append(answer.body)
                    self._found(asked, answer)
                    pulled.next = self.position
                elif await self._gap(asked, answer):
                    break
            except (InvokeError, RouteError) as error:
                await self._again(error)
            except RemotingError as error:
                raise TopicError(f"{self._where()}: {error}") from error
        return pulled

    async def close(self) -> None:
        """Forget what is under way."""
        await self._drop()

    async def _fill(self) -> None:
        """Have enough requests under way."""
        if self._flight and (len(self._flight) >= self._window or self._ask_at >= self._end):
            return
        route = await self._client.instance.routes.find(self._queue.topic)
        while len(self._flight) < self._window and self._ask_at < self._end:
            address = self._replica.choose(route, self._queue.brokerName)
            if address is None:
                raise RouteError(f"broker {self._queue.brokerName} is in no route now", retriable=True)
            count = min(self._step, self._end - self._ask_at)
            self._flight.append(self._ask(address, self._ask_at, count))
            self._ask_at += count

    def _ask(self, address: str, offset: int, count: int) -> _Asked:
        header = PullMessageRequestHeader(
            consumerGroup=self._options.group,
            topic=self._queue.topic,
            queueId=self._queue.queueId,
            queueOffset=offset,
            maxMsgNums=count,
            sysFlag=int(PullSysFlag.SUBSCRIPTION),
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription=self._expression,
            subVersion=0,
            expressionType="TAG",
            maxMsgBytes=self._options.pull_bytes,
        )
        request = Command.request(RequestCode.PULL_MESSAGE, header)
        return _Asked(offset, count, address, self._client.instance.remoting.submit(address, request, PULL_TIMEOUT_S))

    def _found(self, asked: _Asked, answer: Command) -> None:
        """Move behind the messages of an answer, and ask for what it left out of its range."""
        place = answer.header(PullMessageResponseHeader)
        behind = asked.offset + asked.count
        reached = min(place.nextBeginOffset, self._end)
        self._moved(reached)
        self._replica.answered(place.suggestWhichBrokerId)
        if self._filtered:
            self._ask_at = reached
            return
        size = len(answer.body)
        self._window = max(WINDOW_MIN, min(WINDOW_MAX, BYTES_UNDER_WAY // max(size, 1)))
        if reached < behind:
            self._step = max(1, min(self._step, reached - asked.offset))
            self._full = 0
            self._grows = size >= LARGE_BYTES
            if self._flight:
                self._flight.appendleft(self._ask(asked.address, reached, behind - reached))
            else:
                self._ask_at = reached
            return
        self._full += 1
        if self._grows and self._full >= FULL_ANSWERS:
            self._step = min(self._step * 2, self._options.pull_count)
            self._full = 0

    async def _gap(self, asked: _Asked, answer: Command) -> bool:
        """Move on after an answer without messages; True when some are gone. Raises InvokeError to ask again."""
        if answer.code not in _NOTHING and answer.code != _MOVED:
            raise ResponseError(answer.code, answer.remark, asked.address)
        place = answer.header(PullMessageResponseHeader)
        first, end, reached = place.minOffset, place.maxOffset, min(place.nextBeginOffset, self._end)
        if answer.code != _MOVED and reached > asked.offset:
            if not self._filtered:
                self._lost(asked.offset, reached, "the broker passed them over")
            await self._restart(reached)
            return not self._filtered
        if answer.code == _MOVED and asked.offset < first:
            self._lost(asked.offset, min(first, self._end), f"the queue begins at {first}")
            await self._restart(min(first, self._end))
            return True
        if answer.code == _MOVED and asked.offset > end:
            self._lost(asked.offset, self._end, f"the queue ends at {end}")
            await self._restart(self._end)
            return True
        # What was promised is not there yet: a leader that was just elected, a follower, a group that was reset.
        raise ResponseError(answer.code, f"{answer.remark}: it has offsets {first} to {end}", asked.address)

    def _lost(self, start: int, end: int, why: str) -> None:
        """Raise DataLoss, or say so and go on."""
        text = f"{self._where()}: the messages from offset {start} to {end - 1} are gone ({why})"
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{text}: they expired, or the topic was deleted and made anew. Start from offsets that are there "
                "(a stream: with a new checkpoint), or set failOnDataLoss to false to go on without them"
            )
        _log.warning("%s; failOnDataLoss is false: going on at %d", text, end)

    async def _again(self, error: InvokeError | RouteError) -> None:
        """Wait a little and begin anew at the position; raises TopicError when that has been going on for too long."""
        await self._drop()
        self._ask_at = self.position
        waited = time.monotonic() - self._moved_at
        answered = isinstance(error, ResponseError) and error.code in _NOTHING | {_MOVED}
        refused = isinstance(error, ResponseError) and error.code == ResponseCode.NO_PERMISSION
        if not (answered or retriable(error)) or refused or waited >= self._options.retry_s:
            raise TopicError(
                f"{self._where()}: offset {self.position} cannot be read: {error} (tried for {waited:.1f} s, "
                f"retryTimeoutMs is {self._options.retry_s * 1000:.0f})"
            ) from error
        self._replica.failed(error)
        await refresh_quietly(self._client.instance.routes, self._queue.topic)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)

    async def _drop(self) -> None:
        answers = [asked.answer for asked in self._flight]
        self._flight.clear()
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    async def _restart(self, offset: int) -> None:
        """Go on at another offset than the next one."""
        await self._drop()
        self._ask_at = offset
        self._moved(offset)

    def _moved(self, offset: int) -> None:
        self.position = offset
        self._moved_at = time.monotonic()
        self._pause_s = PAUSE_S_FIRST

    def _where(self) -> str:
        return f"queue {self._queue.queueId} of topic {self._queue.topic} at broker {self._queue.brokerName}"
