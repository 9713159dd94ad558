"""Timer messages: sent until they are known to be stored, due after a fraction of a second up to half a minute.

Readers follow the topic at every member, and who leads is asked for the ends of its queues: from both the checks tell
which came early (A20), twice or late (W-timers), or not at all (A1).
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence

from chaos.load.clients import LoadClient
from chaos.load.workload import BODY_BYTES, Load, Pace, Plain, opened, pause
from pipeline.history.body import Tag, read_tag
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.history.timers import TOPIC, WORKLOAD
from remoting.message import MessageExt

READERS = "chaos_timer_readers"
QUEUES = 4
SENDERS = 16
# How long one message is sent again: a third of the time for which brokers remember it.
PATIENCE_S = 20.0
# Most are due soon, within faults and right behind them; the others when the last fault is over and made up for.
SOON_S = (0.2, 6.0)
LATER_S = 26.0
LATER_SHARE = 0.25
READ_EVERY_S = 0.05
READ_COUNT = 512
ASK_EVERY_S = 0.1
# What is not there so long after it was due is lost: the checks' bound (delay_bound_s), and a little.
OVERDUE_S = 11.0

Message = tuple[int, int]
"""Writer, counter."""


class _Open:
    """The timers that are stored and that nobody has seen yet."""

    def __init__(self) -> None:
        self._due: dict[Message, float] = {}
        self._seen: set[Message] = set()
        self._none = asyncio.Event()

    async def over(self) -> None:
        """Wait until all were seen, or are overdue; no more are sent."""
        if self._due:
            self._none.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(max(self._due.values()) + OVERDUE_S):
                    await self._none.wait()

    def stored(self, message: Message, due: float) -> None:
        """Take note of one, which may have been seen before it was acknowledged."""
        if message not in self._seen:
            self._due[message] = due

    def saw(self, message: Message) -> None:
        """Take note that one came."""
        self._seen.add(message)
        self._due.pop(message, None)
        if not self._due:
            self._none.set()


class TimersWorkload(Plain):
    """Senders of timer messages; when they end, what they sent is waited for until it is there or overdue."""

    name = WORKLOAD

    def __init__(self, later_s: float = LATER_S) -> None:
        """`later_s`: after so many seconds the last ones are due."""
        super().__init__({TOPIC: QUEUES})
        self._later_s = later_s
        self._open = _Open()

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Send until `stop`, and wait for what is due then."""
        pace, came = Pace(load.rate), asyncio.Event()
        async with opened(self.name) as remoting, asyncio.TaskGroup() as watching:
            for address in load.addresses:
                client = load.client(remoting, "timer-reader")
                watching.create_task(self._read(client, address, random.Random(load.rng.random()), came))
            watching.create_task(_ask(load, load.client(remoting, "timer-asker"), came))
            async with asyncio.TaskGroup() as senders:
                for number in range(SENDERS):
                    client = load.client(remoting, f"{TOPIC}-sender{number}")
                    senders.create_task(self._send(load, client, pace, stop))
            await self._open.over()
            came.set()

    async def _send(self, load: Load, client: LoadClient, pace: Pace, stop: asyncio.Event) -> None:
        rng, writer = random.Random(load.rng.random()), load.names.writer()
        loop, rest = asyncio.get_running_loop(), rng.randbytes(BODY_BYTES)
        counter = attempt = 0
        while not stop.is_set():
            await pace.turn()
            tag = Tag(writer, counter, attempt)
            seconds = rng.uniform(SOON_S[1], self._later_s) if rng.random() < LATER_SHARE else rng.uniform(*SOON_S)
            due = loop.time() + seconds
            queue = rng.randrange(QUEUES)
            done = await client.send_once(load.leaders, TOPIC, queue, tag, rest, PATIENCE_S, int(seconds * 1000))
            if done.kind == Kind.FAIL:
                attempt += 1
                continue
            if done.kind == Kind.OK:
                self._open.stored((writer, counter), due)
            counter, attempt = counter + 1, 0

    async def _read(self, client: LoadClient, address: str, rng: random.Random, stop: asyncio.Event) -> None:
        """Follow all queues at one member."""

        def seen(messages: Sequence[MessageExt]) -> None:
            for message in messages:
                if (tag := read_tag(message.body)) is not None:
                    self._open.saw((tag.writer, tag.counter))

        at = [0] * QUEUES
        while await pause(stop, READ_EVERY_S):
            queue = rng.randrange(QUEUES)
            done = await client.poll(address, READERS, TOPIC, queue, at[queue], count=READ_COUNT, seen=seen)
            if done.kind == Kind.OK and done.value != UNKNOWN:
                at[queue] = done.value


async def _ask(load: Load, client: LoadClient, stop: asyncio.Event) -> None:
    """Ask who leads for the ends of the queues."""
    queue = 0
    while await pause(stop, ASK_EVERY_S):
        queue = (queue + 1) % QUEUES
        asked = load.leaders.address
        if (await client.edge(Act.MAX, asked, TOPIC, queue)).kind != Kind.OK:
            load.leaders.failed(asked)
