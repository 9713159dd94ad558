"""Timers and transactions by the million in a Raft group whose leader is killed: lost, early and twice are counted.

`python -m tests.soak.delay --timers 1000000 --transactions 100000 --kills 3` starts a NameServer and three members
with fsync, sends timer messages and transactions beside each other, kills the leader while it does, consumes all, and
prints a table; it ends 1 when anything acknowledged is lost, or comes early, twice, or though it was rolled back, and
when it proves nothing: too many sends failed, or a leader was not killed as often as asked. Early and late are told by
store times: of the delivered record, against the moment that the message was to be delivered.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.host.processes import ServerProcess
from raftmq import (
    ClientError,
    ConsumeFrom,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from tests.cluster.process_group import leader_of, process_group, status, until

TIMERS, ORDERS = "SoakTimers", "SoakOrders"
# Timers are due so many seconds after their send.
DELAY_S = (20.0, 90.0)
AT_A_TIME = 256
# One transaction of so many is rolled back, and one is left for the broker to ask about.
ROLLED_BACK, LEFT = 5, 10
# What is meant of a transaction: LEAVE is committed by a check.
COMMIT, ROLL_BACK, LEAVE = 1, 2, 3
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 3000,
    "defaultTopicQueueNums": 8,
}
# How long nothing may come before the run is judged.
QUIET_S = 60.0
# One send of so many may fail, each kind for itself: more, and the run says little.
FAILS = 100
# How long a group may be without a leader before one that is to be killed is given up.
LEADERLESS_S = 60.0


def meant(number: int) -> int:
    """Return how a transaction is to end."""
    return ROLL_BACK if number % ROLLED_BACK == 1 else LEAVE if number % LEFT == 5 else COMMIT


@dataclass
class Seen:
    """What was sent, and what came."""

    timers: int
    transactions: int
    due_ms: "array[int]" = field(init=False)
    # Where each stands in the log that came, one more than its position: a consumer may be given it again.
    came: "array[int]" = field(init=False)
    ordered: "array[int]" = field(init=False)
    told: bytearray = field(init=False)
    late_ms: "array[int]" = field(default_factory=lambda: array("q"))
    kills: int = 0
    """How many leaders were to be killed."""
    killed: int = 0
    early: int = 0
    twice: int = 0
    newest: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # 0: not acknowledged.
        self.due_ms = array("q", bytes(8 * self.timers))
        self.came = array("q", bytes(8 * self.timers))
        self.ordered = array("q", bytes(8 * self.transactions))
        # Of a transaction: how it ended, see meant(); 0: not acknowledged.
        self.told = bytearray(self.transactions)

    def timer(self, message: MessageExt) -> None:
        """Note a delivered timer."""
        number, due = (int(part) for part in bytes(message.body).split())
        if self._first(self.came, number, message):
            late = message.store_timestamp - due
            self.early += late < 0
            self.late_ms.append(late)

    def order(self, message: MessageExt) -> None:
        """Note a delivered order."""
        self._first(self.ordered, int(message.body), message)

    def _first(self, came: "array[int]", number: int, message: MessageExt) -> bool:
        """Note where a message stands; tell whether it comes for the first time."""
        self.newest = time.monotonic()
        at, came[number] = came[number], message.physical_offset + 1
        self.twice += at not in {0, came[number]}
        return at == 0

    @property
    def missing(self) -> tuple[int, int]:
        """Timers and orders that were acknowledged and have not come."""
        timers = sum(1 for number in range(self.timers) if self.due_ms[number] and not self.came[number])
        orders = sum(
            1
            for number in range(self.transactions)
            if self.told[number] in {COMMIT, LEAVE} and not self.ordered[number]
        )
        return timers, orders

    def table(self) -> tuple[str, bool]:
        """Return the figures, and whether all is well."""
        lost, unordered = self.missing
        # Whether its send was acknowledged or not: a check of the half, too, says that it is to be rolled back.
        undone = sum(1 for number in range(self.transactions) if meant(number) == ROLL_BACK and self.ordered[number])
        late = sorted(self.late_ms)

        def at(share: float) -> str:
            return f"{late[min(int(len(late) * share), len(late) - 1)]} ms" if late else "-"

        acknowledged = sum(1 for due in self.due_ms if due)
        ended = sum(1 for told in self.told if told)
        text = (
            f"timers: {acknowledged:,} of {self.timers:,} acknowledged, lost {lost}, early {self.early}; "
            f"late p50 {at(0.5)}, p99 {at(0.99)}, longest {at(1.0)}\n"
            f"transactions: {ended:,} of {self.transactions:,} ended, lost {unordered}, "
            f"rolled back and delivered {undone}\n"
            f"stored twice, of both: {self.twice}\n"
            f"leaders killed: {self.killed} of {self.kills}"
        )
        proves = (
            self.killed >= self.kills
            and FAILS * (self.timers - acknowledged) <= self.timers
            and FAILS * (self.transactions - ended) <= self.transactions
        )
        return text, proves and not (lost or self.early or self.twice or unordered or undone)


async def send_timers(seen: Seen, producer: Producer, rng: random.Random) -> None:
    """Send all timers, each due at a moment of its own."""

    async def one(number: int) -> None:
        due = int(time.time() * 1000 + 1000 * rng.uniform(*DELAY_S))
        message = Message(TIMERS, b"%d %d" % (number, due), deliver_at=due)
        try:
            await producer.send(message)
        except ClientError:
            # It may be stored all the same; then it counts as what it is: nothing that was acknowledged.
            return
        seen.due_ms[number] = due

    await side_by_side(seen.timers, one)


async def send_orders(seen: Seen, producer: TransactionProducer) -> None:
    """Send all transactions."""

    async def one(number: int) -> None:
        told = meant(number)
        states = {
            COMMIT: TransactionState.COMMIT,
            ROLL_BACK: TransactionState.ROLLBACK,
            LEAVE: TransactionState.UNKNOWN,
        }
        try:
            await producer.send_in_transaction(Message(ORDERS, b"%d" % number), lambda _half: states[told])
        except ClientError:
            return
        seen.told[number] = told

    await side_by_side(seen.transactions, one)


async def side_by_side(count: int, one: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Do `count` things, AT_A_TIME at a time."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(work() for _ in range(AT_A_TIME)))


async def kill_leaders(seen: Seen, members: list[ServerProcess], every_s: float) -> None:
    """Kill the leader now and then, and start it again; a group that has none for long ends it."""
    for _ in range(seen.kills):
        await asyncio.sleep(every_s)
        try:
            leader = await leader_of(members, LEADERLESS_S)
        except TimeoutError:
            print(f"no leader for {LEADERLESS_S:.0f} s: none is killed any more", file=sys.stderr)
            return
        leader.kill()
        seen.killed += 1
        print(f"killed the leader {leader.name}", file=sys.stderr)
        await asyncio.sleep(3)
        await asyncio.to_thread(leader.start)


def checked(half: MessageExt) -> TransactionState:
    """Answer a check: what its producer would have told, and COMMIT of what it left."""
    return TransactionState.ROLLBACK if meant(int(half.body)) == ROLL_BACK else TransactionState.COMMIT


async def soak(seen: Seen, namesrv: str, members: list[ServerProcess], seed: int) -> None:
    """Send, kill and consume until all has come, or nothing comes any more."""
    consumers = []
    for group, topic, note in (("soak-timers", TIMERS, seen.timer), ("soak-orders", ORDERS, seen.order)):
        consumer = PushConsumer(group, namesrv, from_where=ConsumeFrom.FIRST_OFFSET, batch=32)
        consumer.subscribe(topic)

        async def callback(messages: list[MessageExt], note: Callable[[MessageExt], None] = note) -> None:
            for message in messages:
                note(message)

        consumer.on_message(callback)
        consumers.append(consumer)
    async with (
        Producer("soak-timer-makers", namesrv, send_timeout=15.0) as timers,
        TransactionProducer("soak-tellers", namesrv, on_check=checked, topics=[ORDERS], send_timeout=15.0) as orders,
        consumers[0],
        consumers[1],
    ):
        began = time.monotonic()
        estimate = max((seen.timers + 3 * seen.transactions) / 6000, 20.0)
        killing = asyncio.create_task(kill_leaders(seen, members, estimate / (seen.kills + 1)))
        await asyncio.gather(send_timers(seen, timers, random.Random(seed)), send_orders(seen, orders))
        print(f"all sent in {time.monotonic() - began:.0f} s", file=sys.stderr)
        await killing
        seen.newest = time.monotonic()
        while seen.missing != (0, 0) and time.monotonic() - seen.newest < DELAY_S[1] + QUIET_S:
            await asyncio.sleep(1)
        # Those that come twice come soon after.
        await asyncio.sleep(5)


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.delay", description=__doc__)
    parser.add_argument("--timers", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    seen = Seen(asked.timers, asked.transactions, kills=asked.kills)
    folder = Path(tempfile.mkdtemp(prefix="raftmq-soak-"))
    try:
        with process_group(folder, SETTINGS) as (namesrv, members):
            until("a leader", lambda: any(status(one).get("leads") for one in members))
            asyncio.run(soak(seen, namesrv.address, members, asked.seed))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text, well = seen.table()
    print(text)
    print("all is well" if well else "NOT WELL")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
