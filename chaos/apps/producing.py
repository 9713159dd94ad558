"""Applications that send: awaited, with futures, in batches, in order by key, one way."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from itertools import count

from chaos.apps.app import App, all_of, until
from chaos.apps.names import ORDERED, PLAIN, message_id
from client.errors import ClientClosed, ClientError, SendFailed
from client.message import Message, SendResult, SendStatus
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue

TIMEOUT_S = 3.0
# Beyond its deadline a send may take so long (client.produce.producer.DEADLINE_GRACE_S), and what unregisters so long.
CLOSE_S = TIMEOUT_S + 0.5 + 3.0

ACKED, UNKNOWN, FAILED, ONE_WAY = "acked", "unknown", "failed", "oneway"
"""How a send ended: acknowledged; perhaps stored; surely not stored; sent without asking."""
# One in so many awaited sends is delayed by a second.
DELAYED_ONE_IN = 10


def fate_of(error: BaseException | None, result: SendResult | None) -> str:
    """Return how a send ended by what its caller was told."""
    if error is None:
        return ACKED if result is not None and result.status is SendStatus.SEND_OK else UNKNOWN
    if isinstance(error, SendFailed):
        return UNKNOWN if error.sent else FAILED
    return FAILED if isinstance(error, ClientError) and not isinstance(error, ClientClosed) else UNKNOWN


class Sending(App):
    """Sends; subclasses say how."""

    start_s = 2.0
    close_s = CLOSE_S
    topic = PLAIN

    def make(self) -> Producer:
        """Return a producer whose sends have 3 s."""
        self.producer = Producer(f"apps_{self.setting.kind}", self.setting.namesrv, send_timeout=TIMEOUT_S)
        self._numbers = count(1)
        return self.producer

    def message(self, stream: str = "", number: int = 0) -> Message:
        """Return the next message of this process, or one of a stream."""
        text = message_id(stream, number) if stream else message_id(self.setting.name, next(self._numbers))
        return Message(self.topic, text.encode(), keys=text)

    async def told(self, messages: Sequence[Message], sending: Awaitable[SendResult | None], told: str = "") -> str:
        """Wait for a send's end and write it down; returns how it ended, `told` when it ended well."""
        began, stalled = time.monotonic(), self.stalls.until_now()
        error: BaseException | None = None
        result = None
        try:
            result = await sending
        except ClientError as raised:
            error = raised
        except BaseException as raised:
            error = raised
            raise
        finally:
            fate = told if told and error is None else fate_of(error, result)
            self._note(messages, fate, began, stalled, error)
        return fate

    def _note(
        self, messages: Sequence[Message], fate: str, began: float, stalled: float, error: BaseException | None
    ) -> None:
        self.journal.note(
            "sent",
            ids=[message.body.decode() for message in messages],
            topic=self.topic,
            fate=fate,
            began=began,
            took=time.monotonic() - began,
            deadline=TIMEOUT_S,
            stalled=self.stalls.until_now() - stalled,
            error=f"{type(error).__name__}: {error}" if error is not None else "",
        )


class Awaited(Sending):
    """Several coroutines that await each send; some messages are delayed."""

    workers, pause_s = 4, 0.1

    async def work(self) -> None:
        """Send side by side."""
        await all_of(*(self._send() for _worker in range(self.workers)))

    async def _send(self) -> None:
        while await until(self.stop, self.pause_s * self.rng.uniform(0.5, 1.5)):
            message = self.message()
            if self.rng.randrange(DELAYED_ONE_IN) == 0:
                message.delay_level = 1
            await self.told([message], self.producer.send(message))


class Futures(Sending):
    """Sends without waiting, as long as there is room, and hears of each end by a callback."""

    pause_s = 0.03

    async def work(self) -> None:
        """Send on and on; `close` waits for what is on its way."""
        while await until(self.stop, self.pause_s):
            await self.producer.room()
            message = self.message()
            began, stalled = time.monotonic(), self.stalls.until_now()
            future = self.producer.send_async(message)
            future.add_done_callback(partial(self._ended, message, began, stalled))

    def _ended(self, message: Message, began: float, stalled: float, future: "asyncio.Future[SendResult]") -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        result = future.result() if error is None else None
        self._note([message], fate_of(error, result), began, stalled, error)


class Batches(Sending):
    """Sends several messages as one."""

    size, pause_s = 5, 0.25

    async def work(self) -> None:
        """Send one batch after the other."""
        while await until(self.stop, self.pause_s):
            batch = [self.message() for _one in range(self.size)]
            await self.told(batch, self.producer.send(batch))


class OneWayProducer(Sending):
    """Sends without an acknowledgement: nothing is promised, and nothing may break."""

    pause_s = 0.1

    async def work(self) -> None:
        """Send on and on."""
        while await until(self.stop, self.pause_s):
            message = self.message()
            await self.told([message], self._send(message), ONE_WAY)

    async def _send(self, message: Message) -> None:
        await self.producer.send_oneway(message)


class InOrder(Sending):
    """Sends each key's messages one after the other to one queue: the next one when this one is acknowledged."""

    topic = ORDERED
    keys, pause_s = 6, 0.15

    async def work(self) -> None:
        """Send all keys side by side."""
        await all_of(*(self._send(number) for number in range(self.keys)))

    async def _send(self, key: int) -> None:
        stream, number = f"{self.setting.name}.{key}", 1
        while await until(self.stop, self.pause_s * self.rng.uniform(0.5, 1.5)):
            message = self.message(stream, number)
            if await self.told([message], self.producer.send(message, selector=_queue_of, arg=key)) == ACKED:
                number += 1


def _queue_of(queues: Sequence[MessageQueue], _message: Message, key: int) -> MessageQueue:
    return queues[key % len(queues)]


PRODUCERS: dict[str, type[App]] = {
    "send": Awaited,
    "futures": Futures,
    "batch": Batches,
    "oneway": OneWayProducer,
    "in-order": InOrder,
}
