"""What cannot be consumed becomes a dead letter; once the reason is mended, letters are sent again to their group.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster. In a
terminal: `raftmq group dead-letters invoices_bookkeeping`, and `--help` for what it can do with them.
"""

import asyncio
import os
import uuid

from raftmq import AdminClient, ConsumeFrom, Message, MessageExt, Producer, PushConsumer, RetryLater

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "invoices"
GROUP = "invoices_bookkeeping"
TIMEOUT_S = 60


class Bookkeeping:
    """Books invoices in euro, and others once it is told the rate."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.rates = {"EUR": 1.0}
        self.booked: dict[str, float] = {}
        self.tries: dict[str, int] = {}
        self.changed = asyncio.Event()

    async def __call__(self, messages: list[MessageExt]) -> list[RetryLater | None]:
        """Answer for each message: None, it is consumed, or when it is to come again."""
        answers = [self._book(message) for message in messages]
        self.changed.set()
        return answers

    def _book(self, message: MessageExt) -> RetryLater | None:
        run, _, number = message.keys[0].rpartition("-")
        if run != self._run:
            return None
        amount, currency = bytes(message.body).decode().split()
        rate = self.rates.get(currency)
        if rate is not None:
            self.booked[number] = float(amount) * rate
            return None
        self.tries[number] = self.tries.get(number, 0) + 1
        # Once more in a second (level 1); then it will not do, however often it is tried.
        return RetryLater(1) if self.tries[number] == 1 else RetryLater(-1)


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's invoices from those of earlier runs
    books = Bookkeeping(run)
    consumer = PushConsumer(GROUP, NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    consumer.on_message(books)
    async with Producer("invoices_office", NAMESRV) as producer, consumer, AdminClient(NAMESRV) as admin:
        for number, text in enumerate(("10 EUR", "20 USD", "30 EUR", "40 USD")):
            await producer.send(Message(TOPIC, text.encode(), keys=f"{run}-{number}"))
        async with asyncio.timeout(TIMEOUT_S):
            letters: list[MessageExt] = []
            while len(letters) < 2:
                await asyncio.sleep(0.2)
                letters = [each for each in await admin.dead_letters(GROUP) if each.keys[0].startswith(run)]
        for letter in letters:
            print(f"dead letter: {bytes(letter.body).decode()}, of topic {letter.properties['DLQ_ORIGIN_TOPIC']}")
        books.rates["USD"] = 0.9
        await admin.resend_dead_letters(GROUP, letters)
        async with asyncio.timeout(TIMEOUT_S):
            while len(books.booked) < 4:
                books.changed.clear()
                await books.changed.wait()
    print(f"booked {len(books.booked)} invoices, {sum(books.booked.values()):.0f} euro")


if __name__ == "__main__":
    asyncio.run(main())
