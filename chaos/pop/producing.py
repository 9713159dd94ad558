"""The application that sends a number of messages, each until it is acknowledged, and then waits to be ended."""

import asyncio

from chaos.apps.app import all_of, until
from chaos.apps.names import message_id
from chaos.apps.producing import ACKED, TIMEOUT_S, Sending
from chaos.pop.plan import PRODUCER, TOPIC, read_pop_plan
from client.message import Message
from client.produce.producer import Producer

WORKERS = 16
AGAIN_S = 0.1


class CountedSender(Sending):
    """Sends. An attempt that is not acknowledged may be stored all the same: the next one is another message."""

    topic = TOPIC

    def make(self) -> Producer:
        """Return a producer that tries once: what it stores is there once."""
        self.producer = Producer(PRODUCER, self.setting.namesrv, send_timeout=TIMEOUT_S, retries=0)
        return self.producer

    async def work(self) -> None:
        """Send side by side, at the plan's rate."""
        plan = read_pop_plan(self.setting.folder)
        self._left, self._number = plan.messages, 0
        self._rate, self._began = plan.rate, asyncio.get_running_loop().time()
        await all_of(*(self._send() for _worker in range(WORKERS)))
        if not self.stop.is_set():
            self.journal.note("all-sent")
        await self.stop.wait()

    async def _send(self) -> None:
        while self._left > 0 and not self.stop.is_set():
            self._left -= 1
            self._number += 1
            text = message_id(self.setting.name, self._number)
            due = self._began + self._number / self._rate
            if not await until(self.stop, max(0.0, due - asyncio.get_running_loop().time())):
                return
            message = Message(self.topic, text.encode())
            if await self.told([message], self.producer.send(message)) != ACKED:
                # Another one is sent in its place.
                self._left += 1
                await until(self.stop, AGAIN_S)
