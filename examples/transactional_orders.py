"""Orders in SQLite, each with a message that is delivered when, and only when, its order was committed.

Three customers order. One pays; one has not enough money, so that order and message are rolled back; and one pays in a
process that dies between its commit and telling the broker: the broker asks, and the answer is in the database.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster.
The broker asks after 6 s, and looks every 30 s whom to ask: `transactionTimeOut` and `transactionCheckInterval`.
"""

import asyncio
import os
import sqlite3
import sys
import tempfile
import uuid
from pathlib import Path

from raftmq import (
    ConsumeFrom,
    Message,
    MessageExt,
    PushConsumer,
    Transaction,
    TransactionProducer,
    TransactionState,
)

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "paid_orders"
TIMEOUT_S = 90
PRICE = 30


class TooPoor(Exception):
    """The customer's balance does not pay for the order."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the shop's database; the first one to open it fills it."""
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE IF NOT EXISTS balance (customer TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount >= 0));
        CREATE TABLE IF NOT EXISTS orders (transaction_id TEXT PRIMARY KEY, customer TEXT NOT NULL);
        INSERT OR IGNORE INTO balance VALUES ('anna', 100), ('ben', 10), ('carla', 50);
        """
    )
    return database


def pay(database: sqlite3.Connection, customer: str, tx: Transaction) -> None:
    """Take the money and note the order, in one commit of the database. The order has the transaction's id."""
    try:
        with database:
            database.execute("UPDATE balance SET amount = amount - ? WHERE customer = ?", (PRICE, customer))
            database.execute("INSERT INTO orders VALUES (?, ?)", (tx.transaction_id, customer))
    except sqlite3.IntegrityError:
        raise TooPoor(customer) from None


async def sell(path: Path, run: str, customers: list[str], *, die: bool) -> None:
    """Be the shop. With `die` the process ends in the midst of a transaction, without a word to anybody."""
    database = open_database(path)

    async def on_check(message: MessageExt) -> TransactionState:
        # Not there, and will never be: whoever began it has died, for what runs here is not asked about.
        found = database.execute("SELECT 1 FROM orders WHERE transaction_id = ?", (message.msg_id,)).fetchone()
        state = TransactionState.COMMIT if found else TransactionState.ROLLBACK
        print(f"the broker asks for {bytes(message.body).decode()}: {state.name}", flush=True)
        return state

    async with TransactionProducer("shop", NAMESRV, on_check=on_check, topics=[TOPIC]) as producer:
        for customer in customers:
            message = Message(TOPIC, f"order of {customer}".encode(), keys=f"{run}-{customer}")
            try:
                async with producer.transaction(message) as tx:
                    pay(database, customer, tx)
                    if die:
                        os._exit(1)
                print(f"committed order of {customer}", flush=True)
            except TooPoor:
                print(f"rolled back order of {customer}", flush=True)
        if not die:
            # Stays to be asked, until whoever started it has seen enough.
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's messages from those of earlier runs
    seen: list[str] = []
    both = asyncio.Event()

    async def deliver(messages: list[MessageExt]) -> None:
        for message in messages:
            # The same message may come twice (at least once is the promise), and earlier runs left theirs.
            body = bytes(message.body).decode()
            if message.keys[0].startswith(run) and body not in seen:
                seen.append(body)
                print(f"delivered {body}", flush=True)
        if len(seen) >= 2:
            both.set()

    consumer = PushConsumer("delivery", NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    consumer.on_message(deliver)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.sqlite"
        open_database(path).close()
        dies = await shop(path, run, "carla", "die")
        await dies.wait()
        print("the shop died after carla had paid", flush=True)
        lives = await shop(path, run, "anna,ben", "live")
        async with consumer:
            await asyncio.wait_for(both.wait(), TIMEOUT_S)
        await lives.communicate(b"\n")
        paid = [row[0] for row in open_database(path).execute("SELECT customer FROM orders ORDER BY customer")]
    assert paid == ["anna", "carla"]
    assert sorted(seen) == [f"order of {customer}" for customer in paid]
    print("what was paid was delivered, and nothing else")


async def shop(path: Path, run: str, customers: str, ending: str) -> asyncio.subprocess.Process:
    """Start a shop in a process of its own."""
    arguments = [__file__, str(path), run, customers, ending]
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=asyncio.subprocess.PIPE)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _file, database_path, run_id, names, how = sys.argv
        asyncio.run(sell(Path(database_path), run_id, names.split(","), die=how == "die"))
    else:
        asyncio.run(main())
