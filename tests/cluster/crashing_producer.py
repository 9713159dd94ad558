"""A transaction producer as a process that may be killed at any moment, and its local database: a journal.

`python -m tests.cluster.crashing_producer NAMESRV FOLDER OWN PRODUCERS COUNT` does the transactions OWN,
OWN + PRODUCERS, … below COUNT that its journal has not begun, then goes on to answer checks until it is killed. What
its journal does not decide of an earlier life is rolled back first: that local transaction is over. Checks are about
all producers' transactions, and answered from their journals.

A line of a journal is one write, which a kill does not take back: a letter and a number.
"""

import asyncio
import os
import sys
from pathlib import Path

from client.errors import ClientError
from client.message import Message
from client.produce.transaction import Transaction, TransactionState
from client.produce.transactions import TransactionProducer
from remoting.message import MessageExt

TOPIC, GROUP = "Crashing", "crashing_producers"
BEGUN, COMMITTED, ROLLED_BACK, ASKED, ENDED = "b", "c", "r", "q", "e"
AT_A_TIME = 16


class Journal:
    """One producer's local database, as it or another one reads it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.begun: set[int] = set()
        self.committed: set[int] = set()
        self.rolled_back: set[int] = set()
        self.asked: set[int] = set()
        self.ended = False

    def refresh(self) -> None:
        """Read what came since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            lines, _, rest = file.read().rpartition(b"\n")
            self._read = file.tell() - len(rest)
        kinds = {
            BEGUN: self.begun, COMMITTED: self.committed, ROLLED_BACK: self.rolled_back, ASKED: self.asked,
            ENDED: set[int](),
        }  # fmt: skip
        for line in lines.decode().split("\n") if lines else []:
            kinds[line[0]].add(int(line[1:]))
            self.ended = self.ended or line[0] == ENDED


def journal_path(folder: Path, own: int) -> Path:
    return folder / f"journal{own}"


def local_end(number: int) -> str:
    """Return what the local transaction comes to, when nobody kills it."""
    return ROLLED_BACK if number % 5 == 1 else COMMITTED


def leaves(number: int) -> bool:
    """Whether the producer does not tell the broker, but waits to be asked."""
    return number % 3 == 2


class CrashingProducer:
    """One life of it."""

    def __init__(self, folder: Path, own: int, producers: int, count: int) -> None:
        self._own, self._producers, self._count = own, producers, count
        self.journals = [Journal(journal_path(folder, number)) for number in range(producers)]
        self._file = os.open(journal_path(folder, own), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, kind: str, number: int) -> None:
        os.write(self._file, f"{kind}{number}\n".encode())

    def recover(self) -> list[int]:
        """Roll back what an earlier life left undecided; returns what is to be done still."""
        mine = self.journals[self._own]
        mine.refresh()
        for number in sorted(mine.begun - mine.committed - mine.rolled_back):
            self.note(ROLLED_BACK, number)
        return [number for number in range(self._own, self._count, self._producers) if number not in mine.begun]

    def check(self, half: MessageExt) -> TransactionState:
        """Answer a check by what the owner's database says now."""
        number = int(half.body)
        self.note(ASKED, number)
        owner = self.journals[number % self._producers]
        owner.refresh()
        if number in owner.committed:
            return TransactionState.COMMIT
        return TransactionState.ROLLBACK if number in owner.rolled_back else TransactionState.UNKNOWN

    async def transact(self, producer: TransactionProducer, number: int) -> None:
        self.note(BEGUN, number)
        decided = False

        async def local(_transaction: Transaction) -> TransactionState:
            nonlocal decided
            # A kill comes before, between and behind the two steps.
            await asyncio.sleep(0.002)
            end = local_end(number)
            self.note(end, number)
            decided = True
            await asyncio.sleep(0.002)
            if leaves(number):
                return TransactionState.UNKNOWN
            return TransactionState.COMMIT if end == COMMITTED else TransactionState.ROLLBACK

        try:
            await producer.send_in_transaction(Message(TOPIC, b"%d" % number), local)
        except ClientError:
            if not decided:
                self.note(ROLLED_BACK, number)

    async def run(self, namesrv: str) -> None:
        numbers = iter(self.recover())

        async def work() -> None:
            for number in numbers:
                await self.transact(producer, number)

        async with TransactionProducer(
            GROUP, namesrv, on_check=self.check, check_concurrency=16, topics=[TOPIC], send_timeout=15.0
        ) as producer:
            await asyncio.gather(*(work() for _ in range(AT_A_TIME)))
            self.note(ENDED, 0)
            await asyncio.Event().wait()


if __name__ == "__main__":
    namesrv_address, journals, *numbers = sys.argv[1:]
    asyncio.run(CrashingProducer(Path(journals), *map(int, numbers)).run(namesrv_address))
