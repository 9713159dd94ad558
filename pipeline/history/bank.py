"""A bank whose transfers are messages: two of a batch, which is stored whole or not at all, so that the total holds.

Messages 2n and 2n + 1 of a writer take an amount from one account and give it to another. Which accounts and how much
follows from writer and n, so that histories need not keep it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pipeline.history.body import MARKER
from pipeline.history.results import WITNESSES_MAX, Finding, Verdict
from pipeline.history.rows import Act, Op, Read

TOPIC = "chaos_bank"
BANK_CHECK = "W-bank"
ACCOUNTS = 10
AMOUNT_MAX = 100
TITLE = "the bank's total holds"


class Booking(NamedTuple):
    """What one message does to one account."""

    account: int
    amount: int


def booking(writer: int, counter: int) -> Booking:
    """Return what a message means."""
    transfer = (writer * 1_000_003 + counter // 2) & 0xFFFFFFFF
    amount = transfer * 2_654_435_761 % AMOUNT_MAX + 1
    source = transfer % ACCOUNTS
    return Booking((source + 1) % ACCOUNTS, amount) if counter % 2 else Booking(source, -amount)


def check_bank(ops: Iterable[Op], reads: Iterable[Read]) -> Finding:
    """Judge that in what each member shows in the end, every transfer is there whole: the sum of all accounts is 0.

    Every attempt to make a transfer is a batch of its own; copies of a message count once. Skipped without a bank.
    """
    scans = {op.op: op.address for op in ops if op.act == Act.SCAN and op.topic == TOPIC}
    found: dict[str, set[tuple[int, int, int]]] = {address: set() for address in scans.values()}
    for read in reads:
        if read.op in scans and read.topic == TOPIC and read.writer != MARKER:
            found[scans[read.op]].add((read.writer, read.counter, read.attempt))
    if not any(found.values()):
        return Finding(BANK_CHECK, TITLE, Verdict.SKIPPED, text="no transfers were read")
    torn = [
        {"member": address, "writer": writer, "counter": counter, "attempt": attempt}
        for address, messages in sorted(found.items())
        for writer, counter, attempt in sorted(messages)
        if (writer, counter ^ 1, attempt) not in messages
    ]
    totals = {
        address: sum(booking(writer, counter).amount for writer, counter, _ in messages)
        for address, messages in sorted(found.items())
    }
    wrong = bool(torn) or any(totals.values())
    text = "; ".join(f"{address}: total {total} of {len(found[address])} bookings" for address, total in totals.items())
    verdict = Verdict.INVALID if wrong else Verdict.VALID
    return Finding(BANK_CHECK, TITLE, verdict, len(torn), text, tuple(torn[:WITNESSES_MAX]))
