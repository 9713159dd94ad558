"""The application that pops: it takes messages, holds them, and acknowledges, puts off, gives back or forgets each.

What was taken is noted before anything is done with it, every settlement before it is asked for and once more when it
was answered: a process that is killed in between has asked, and was told nothing. `ms` is the time of day, by which
brokers reckon invisible times; `at` is the clock that never goes back, and shows whether the time of day was set.
"""

import asyncio
import time
from collections.abc import Awaitable

from chaos.apps.app import App, until
from chaos.pop.plan import GROUP, TOPIC, read_pop_plan
from client.consume.popped import PoppedMessage
from client.consume.simple import RECEIVE_MAX, SimpleConsumer
from client.errors import ClientError
from client.message import ConsumeFrom

WAIT_S = 2.0
# A receive may take so much longer while an answer may be on its way (client/consume/popping.py).
GRACE_S = 2.0
ACK_S = 3.0
# Messages that one consumer holds at a time.
IN_HAND_MAX = 512
LOOK_S = 0.02
HOLDS_S = (0.0, 0.5)
PUT_OFF_AFTER_S = (0.0, 0.3)
# Of the invisible time: some of these acknowledgements come too late.
SLOW_PART = (0.6, 1.2)
NAK_S = (0.0, 1.0)
ACK, NAK, PUT_OFF = "ack", "nak", "put-off"
# What is done with a message, in parts of a hundred; the rest is acknowledged soon.
SLOW, GIVEN_BACK, LATER, FORGOTTEN = 3, 4, 4, 3


def wall_ms() -> int:
    """Return the time of day, as brokers have it."""
    return time.time_ns() // 1_000_000


class Popping(App):
    """Pops on and on; what it holds when it is told to end is acknowledged first."""

    start_s = 5.0
    close_s = 12.0

    def make(self) -> SimpleConsumer:
        """Return the consumer."""
        self._plan = read_pop_plan(self.setting.folder)
        self._number = self._in_hand = 0
        self.consumer = SimpleConsumer(
            GROUP, self.setting.namesrv, wait=WAIT_S, ack_timeout=ACK_S, from_where=ConsumeFrom.FIRST_OFFSET
        )
        self.consumer.subscribe(TOPIC)
        return self.consumer

    async def work(self) -> None:
        """Receive, and settle side by side."""
        async with asyncio.TaskGroup() as group:
            while not self.stop.is_set():
                invisible_s = self.rng.uniform(*self._plan.invisible_s)
                for message in await self._receive(invisible_s):
                    self._number += 1
                    group.create_task(self._settle(message, self._number, invisible_s))

    async def _receive(self, invisible_s: float) -> list[PoppedMessage]:
        """Take some, and write down who they are; [] when there are none, or as many are in hand as may be."""
        if self._in_hand + RECEIVE_MAX > IN_HAND_MAX:
            await until(self.stop, LOOK_S)
            return []
        try:
            with self.timed("receive", WAIT_S + GRACE_S):
                taken = await self.consumer.receive(self.rng.randint(1, RECEIVE_MAX), invisible=invisible_s)
        except ClientError:
            await until(self.stop, LOOK_S)
            return []
        if taken:
            self.journal.note(
                "popped",
                n=self._number + 1,
                ms=wall_ms(),
                ids=[message.body.decode() for message in taken],
                handles=[message.handle.text for message in taken],
                again=[message.reconsume_times for message in taken],
            )
        return taken

    async def _settle(self, message: PoppedMessage, number: int, invisible_s: float) -> None:
        """Do with a message what the dice say; told to end, do not wait any longer."""
        self._in_hand += 1
        try:
            drawn = self.rng.randrange(100)
            if drawn < FORGOTTEN:
                return
            if drawn < FORGOTTEN + GIVEN_BACK:
                await until(self.stop, self.rng.uniform(*HOLDS_S))
                delay_s = self.rng.uniform(*NAK_S)
                await self._asked(NAK, message, number, message.nak(delay_s), delay_s)
                return
            if drawn < FORGOTTEN + GIVEN_BACK + LATER:
                await until(self.stop, self.rng.uniform(*PUT_OFF_AFTER_S))
                delay_s = self.rng.uniform(*self._plan.invisible_s)
                if not await self._asked(PUT_OFF, message, number, message.change_invisible(delay_s), delay_s):
                    return
                await until(self.stop, self.rng.uniform(*SLOW_PART) * delay_s)
            elif drawn < FORGOTTEN + GIVEN_BACK + LATER + SLOW:
                await until(self.stop, self.rng.uniform(*SLOW_PART) * invisible_s)
            else:
                await until(self.stop, self.rng.uniform(*HOLDS_S))
            await self._asked(ACK, message, number, message.ack())
        finally:
            self._in_hand -= 1

    async def _asked(
        self, what: str, message: PoppedMessage, number: int, asking: Awaitable[None], delay_s: float = 0.0
    ) -> bool:
        """Settle a message, and write down what was asked and what was told; returns whether it went well."""
        began, stalled = time.monotonic(), self.stalls.until_now()
        self.journal.note(
            "settling", n=number, what=what, id=message.body.decode(), ms=wall_ms(), delay_ms=round(delay_s * 1000)
        )
        ok, error = False, ""
        try:
            await asking
            ok = True
        except ClientError as raised:
            # Whatever the error says: what was asked may still be done.
            error = f"{type(raised).__name__}: {raised}"
        self.journal.note(
            "settled",
            n=number,
            what=what,
            ok=ok,
            ms=wall_ms(),
            # A message that was put off or given back has another handle from then on.
            handle=message.handle.text if ok and what != ACK else "",
            began=began,
            took=time.monotonic() - began,
            deadline=ACK_S,
            stalled=self.stalls.until_now() - stalled,
            error=error,
        )
        return ok
