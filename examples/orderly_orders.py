"""Ten thousand orders are created, paid and finished, each in this order, while one of three consumers is killed.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster, ORDERS
another number.

The steps of an order go to one queue (`selector`, `arg`), one after the other. Consumers in order (`orderly=True`) lock
the queues that they have, so that nobody else works on them. A consumer that is killed leaves steps behind that were
done and whose offset was not stored yet: they come again, to another consumer, which finds them done.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from raftmq import AdminClient, ConsumeFrom, Message, MessageExt, Producer, PushConsumer, select_by_hash

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "order_steps"
QUEUES = 12
ORDERS = int(os.environ.get("ORDERS", "10000"))
STEPS = ("create", "pay", "finish")
CONSUMERS = 3
AT_A_TIME = 256
TIMEOUT_S = 80


class Books:
    """What was done of each order, in a file that all consumers share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as file:
            file.execute("PRAGMA journal_mode=WAL")
            file.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, step INTEGER)")
            file.execute("CREATE TABLE IF NOT EXISTS events (what TEXT)")

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=30)
        file.execute("PRAGMA synchronous=OFF")
        return file

    def work(self, run: str, messages: list[MessageExt]) -> None:
        """Do the steps that messages tell, all of them or none: what is done already is passed over."""
        file = self._open()
        with file:
            file.execute("BEGIN IMMEDIATE")
            for message in messages:
                order, _, step = message.keys[0].rpartition("-")
                if not order.startswith(run):
                    continue
                place = STEPS.index(step) + 1
                found = file.execute("SELECT step FROM orders WHERE id = ?", (order,)).fetchone()
                done = 0 if found is None else found[0]
                if place == done + 1:
                    file.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (order, place))
                else:
                    file.execute("INSERT INTO events VALUES (?)", ("again" if place <= done else "out of order",))
        file.close()

    def figures(self) -> tuple[int, int, int, int]:
        """Return how many steps were done, how many orders are finished, and how many steps came again or too soon."""
        file = self._open()
        steps, finished = file.execute(
            "SELECT COALESCE(SUM(step), 0), COALESCE(SUM(step = 3), 0) FROM orders"
        ).fetchone()
        again, wrong = (
            file.execute("SELECT COUNT(*) FROM events WHERE what = ?", (what,)).fetchone()[0]
            for what in ("again", "out of order")
        )
        file.close()
        return steps, finished, again, wrong

    async def until(self, enough: Callable[[int, int], bool]) -> None:
        """Look from time to time, until so many steps are done and orders finished."""
        while True:
            steps, finished, *_ = self.figures()
            if enough(steps, finished):
                return
            await asyncio.sleep(0.1)


async def consume(run: str, path: Path) -> None:
    """One consumer: a process of its own, until it is told to end."""
    books, ended = Books(path), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    def on_messages(messages: list[MessageExt]) -> None:
        books.work(run, messages)

    consumer = PushConsumer(
        "order_workers",
        NAMESRV,
        orderly=True,
        batch=32,
        from_where=ConsumeFrom.FIRST_OFFSET,
        instance_name=str(os.getpid()),
    )
    consumer.subscribe(TOPIC)
    consumer.on_message(on_messages)
    async with consumer:
        await ended.wait()


async def sell(run: str) -> None:
    """Send the steps of all orders, of some orders at a time; a step is stored before the next one is sent."""
    orders = iter(range(ORDERS))
    async with Producer("order_shop", NAMESRV) as producer:

        async def some() -> None:
            for number in orders:
                order = f"{run}-{number}"
                for step in STEPS:
                    message = Message(TOPIC, step.encode(), keys=f"{order}-{step}")
                    await producer.send(message, selector=select_by_hash, arg=order)

        await asyncio.gather(*(some() for _ in range(AT_A_TIME)))


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's orders from those of earlier runs
    async with AdminClient(NAMESRV) as admin:
        await admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "books.sqlite"
        books = Books(path)
        consumers = [
            await asyncio.create_subprocess_exec(sys.executable, __file__, "consume", run, str(path))
            for _ in range(CONSUMERS)
        ]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                selling = asyncio.create_task(sell(run))
                await books.until(lambda steps, _finished: steps >= ORDERS)
                consumers[0].kill()
                print(f"killed one of {CONSUMERS} consumers when a third of the steps was done", flush=True)
                await selling
                await books.until(lambda _steps, finished: finished == ORDERS)
        except TimeoutError:
            raise SystemExit(f"only {books.figures()[1]} of {ORDERS} orders are finished after {TIMEOUT_S} s") from None
        finally:
            for consumer in consumers[1:]:
                consumer.terminate()
            await asyncio.gather(*(consumer.wait() for consumer in consumers))
        _, finished, again, wrong = books.figures()
    print(f"finished {finished} orders; {again} steps came again, {wrong} out of order")


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[2], Path(sys.argv[3])) if sys.argv[1:2] == ["consume"] else main())
