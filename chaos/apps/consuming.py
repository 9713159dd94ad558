"""Applications that consume: concurrently, in order, broadcasting, by polling, with and without commits of their own.

What is delivered is noted before anything is done with it, and once more when it is done: a process that is killed in
between has seen the message, and has not consumed it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import count, groupby

from chaos.apps.app import App, until
from chaos.apps.names import BROADCAST, GROUPS, LITE, LITE_AUTO, ORDERLY, PLAIN, WORKERS, is_refused
from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.errors import ClientError
from client.message import ConsumeFrom, ConsumeResult, MessageModel
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt

POLL_S = 1.0
# One in so many polls is followed by a commit, where the application commits by itself.
COMMIT_ONE_IN = 3
# A commit tells one broker after the other, the queues of each side by side; each has 3 s, and may be told elsewhere.
COMMIT_S = 9.0


def place_of(message: MessageExt) -> str:
    """Return the queue that a message was read from."""
    return f"{message.topic}/{message.broker_name}/{message.queue_id}"


class Consuming(App):
    """Consumes; `group` as the run calls it."""

    group = WORKERS
    start_s = 5.0
    close_s = 12.0

    def note_got(self, queue: str, messages: Sequence[MessageExt]) -> int:
        """Write down what was delivered; returns the number that `note_done` takes."""
        number = next(self._numbers)
        self.journal.note(
            "got",
            n=number,
            queue=queue,
            offsets=[message.queue_offset for message in messages],
            ids=[message.body.decode() for message in messages],
            again=[message.reconsume_times for message in messages],
        )
        return number

    def note_done(self, number: int, *, ok: bool) -> None:
        """Write down that the application is done with a delivery."""
        self.journal.note("done", n=number, ok=ok)

    def begin(self) -> None:
        """Say who consumes."""
        self._numbers = count(1)
        self.journal.note("consumes", group=self.group, topic=GROUPS[self.group])


class Pushed(Consuming):
    """A push consumer of one's choice; it refuses some messages when they come for the first time."""

    model = MessageModel.CLUSTERING
    orderly = False
    takes_s = (0.0, 0.005)
    refuses = True

    def make(self) -> PushConsumer:
        """Return the consumer."""
        self.begin()
        broadcasting = self.model is MessageModel.BROADCASTING
        consumer = PushConsumer(
            self.group,
            self.setting.namesrv,
            from_where=ConsumeFrom.FIRST_OFFSET,
            model=self.model,
            orderly=self.orderly,
            concurrency=8,
            batch=4,
            offset_dir=self.setting.folder / "offsets" if broadcasting else None,
            instance_name=self.setting.slot if broadcasting else None,
        )
        consumer.subscribe(GROUPS[self.group])
        consumer.on_message(self.consume)
        return consumer

    async def consume(self, messages: list[MessageExt]) -> ConsumeResult:
        """Take some time over each delivery."""
        number = self.note_got(place_of(messages[0]), messages)
        ok = False
        try:
            await asyncio.sleep(self.rng.uniform(*self.takes_s))
            ok = not self.refuses or not any(
                message.reconsume_times == 0 and is_refused(message.body.decode()) for message in messages
            )
        finally:
            self.note_done(number, ok=ok)
        return ConsumeResult.SUCCESS if ok else ConsumeResult.RECONSUME_LATER

    async def work(self) -> None:
        """Wait: messages come by themselves."""
        await self.stop.wait()


class Orderly(Pushed):
    """Consumes each queue in order."""

    group = ORDERLY
    orderly = True
    takes_s = (0.001, 0.02)


class Broadcast(Pushed):
    """Has every message, and keeps its offsets in the run's folder: its next life goes on where this one ended."""

    group = BROADCAST
    model = MessageModel.BROADCASTING
    # What a broadcasting consumer refuses does not come again.
    refuses = False


class Polling(Consuming):
    """Polls; positions are stored by the consumer itself."""

    group = LITE_AUTO
    auto_commit = True

    def make(self) -> LitePullConsumer:
        """Return the consumer."""
        self.begin()
        self.consumer = LitePullConsumer(
            self.group, self.setting.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, auto_commit=self.auto_commit
        )
        self.consumer.subscribe(GROUPS[self.group])
        return self.consumer

    async def work(self) -> None:
        """Poll on and on."""
        while not self.stop.is_set():
            with self.timed("poll", POLL_S):
                messages = await self.consumer.poll(POLL_S)
            for queue, some in groupby(messages, key=place_of):
                self.note_done(self.note_got(queue, list(some)), ok=True)
            await self.polled()
            await until(self.stop, self.rng.uniform(0.0, 0.05))

    async def polled(self) -> None:
        """Do what is to be done after each poll."""


class Committing(Polling):
    """Stores positions itself, now and then."""

    group = LITE
    auto_commit = False

    async def polled(self) -> None:
        """Commit sometimes, behind all that was returned."""
        if self.rng.randrange(COMMIT_ONE_IN):
            return
        positions = self.consumer.positions(PLAIN)
        began, ok = time.monotonic(), False
        self.journal.note("committing", positions=_named(positions))
        try:
            with self.timed("commit", COMMIT_S):
                await self.consumer.commit()
            ok = True
        except ClientError:
            # The next one says it again.
            await until(self.stop, 0.1)
        finally:
            self.journal.note("commit", began=began, ok=ok, positions=_named(positions))


def _named(positions: Mapping[MessageQueue, int]) -> dict[str, int]:
    return {f"{queue.topic}/{queue.brokerName}/{queue.queueId}": offset for queue, offset in positions.items()}


CONSUMERS: dict[str, type[App]] = {
    "push": Pushed,
    "orderly": Orderly,
    "broadcast": Broadcast,
    "lite": Committing,
    "lite-auto": Polling,
}
