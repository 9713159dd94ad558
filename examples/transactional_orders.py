"""Two databases that agree without a common commit: orders in one, their payments in another, a transaction between.

The shop notes an order in its database, and the message that it is to be paid is delivered when, and only when, that
was committed. The cashier books what comes in a database of his own, once each, however often a message comes.

Three customers order. One has credit; one has not enough, so that order and message are rolled back; and one orders in
a process that dies between its commit and telling the broker: the broker asks, and the answer is in the orders.

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
    """The customer's credit does not cover the order."""


def open_orders(path: Path) -> sqlite3.Connection:
    """Open the shop's database; the first one to open it fills it."""
    orders = sqlite3.connect(path)
    orders.executescript(
        """
        CREATE TABLE IF NOT EXISTS credit (customer TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount >= 0));
        CREATE TABLE IF NOT EXISTS orders (transaction_id TEXT PRIMARY KEY, customer TEXT NOT NULL);
        INSERT OR IGNORE INTO credit VALUES ('anna', 100), ('ben', 10), ('carla', 50);
        """
    )
    return orders


def open_payments(path: Path) -> sqlite3.Connection:
    """Open the cashier's database."""
    payments = sqlite3.connect(path)
    payments.executescript(
        """
        CREATE TABLE IF NOT EXISTS payments (order_id TEXT PRIMARY KEY, customer TEXT NOT NULL);
        CREATE TABLE IF NOT EXISTS till (amount INTEGER NOT NULL);
        INSERT INTO till SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM till);
        """
    )
    return payments


def note_order(orders: sqlite3.Connection, customer: str, tx: Transaction) -> None:
    """Use the credit and note the order, in one commit. The order has the transaction's id."""
    try:
        with orders:
            orders.execute("UPDATE credit SET amount = amount - ? WHERE customer = ?", (PRICE, customer))
            orders.execute("INSERT INTO orders VALUES (?, ?)", (tx.transaction_id, customer))
    except sqlite3.IntegrityError:
        raise TooPoor(customer) from None


def book_payment(payments: sqlite3.Connection, order_id: str, customer: str) -> bool:
    """Note the payment and put the money into the till, in one commit; False for an order that was booked before."""
    try:
        with payments:
            payments.execute("INSERT INTO payments VALUES (?, ?)", (order_id, customer))
            payments.execute("UPDATE till SET amount = amount + ?", (PRICE,))
    except sqlite3.IntegrityError:
        return False
    return True


async def sell(path: Path, run: str, customers: list[str], *, die: bool) -> None:
    """Be the shop. With `die` the process ends in the midst of a transaction, without a word to anybody."""
    orders = open_orders(path)

    async def on_check(message: MessageExt) -> TransactionState:
        # Not there, and will never be: whoever began it has died, for what runs here is not asked about.
        found = orders.execute("SELECT 1 FROM orders WHERE transaction_id = ?", (message.msg_id,)).fetchone()
        state = TransactionState.COMMIT if found else TransactionState.ROLLBACK
        print(f"the broker asks for the order of {bytes(message.body).decode()}: {state.name}", flush=True)
        return state

    async with TransactionProducer("shop", NAMESRV, on_check=on_check, topics=[TOPIC]) as producer:
        for customer in customers:
            message = Message(TOPIC, customer.encode(), keys=f"{run}-{customer}")
            try:
                async with producer.transaction(message) as tx:
                    note_order(orders, customer, tx)
                    if die:
                        os._exit(1)
                print(f"committed the order of {customer}", flush=True)
            except TooPoor:
                print(f"rolled back the order of {customer}", flush=True)
        if not die:
            # Stays to be asked, until whoever started it has seen enough.
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's messages from those of earlier runs
    with tempfile.TemporaryDirectory() as folder:
        path, payments = Path(folder) / "orders.sqlite", open_payments(Path(folder) / "payments.sqlite")
        both = asyncio.Event()

        async def cashier(messages: list[MessageExt]) -> None:
            for message in messages:
                if not message.keys[0].startswith(run):
                    continue
                customer = bytes(message.body).decode()
                # The same message may come twice (at least once is the promise): its id is the transaction's.
                if book_payment(payments, message.msg_id, customer):
                    print(f"booked the payment of {customer}", flush=True)
            if payments.execute("SELECT count(*) FROM payments").fetchone()[0] >= 2:
                both.set()

        consumer = PushConsumer("cashiers", NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe(TOPIC)
        consumer.on_message(cashier)
        open_orders(path).close()
        dies = await shop(path, run, "carla", "die")
        await dies.wait()
        print("the shop died after carla had ordered", flush=True)
        lives = await shop(path, run, "anna,ben", "live")
        async with consumer:
            await asyncio.wait_for(both.wait(), TIMEOUT_S)
        await lives.communicate(b"\n")
        ordered = open_orders(path).execute("SELECT transaction_id, customer FROM orders ORDER BY customer").fetchall()
        paid = payments.execute("SELECT order_id, customer FROM payments ORDER BY customer").fetchall()
        (till,) = payments.execute("SELECT amount FROM till").fetchone()
    assert [customer for _id, customer in ordered] == ["anna", "carla"]
    assert paid == ordered, "the same orders, by the same ids, in both databases"
    assert till == 2 * PRICE
    print("what was ordered was paid, once each, and nothing else")


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
