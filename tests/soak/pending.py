"""Timer messages by the ten million wait in one broker: its memory and its restart must not tell how many they are.

`python -m tests.soak.pending --timers 10000000` starts a NameServer and a broker, sends timer messages that are due in
hours and days, kills the broker, starts it again, stops it in good order and starts it once more; after each start a
timer of some seconds must come in time. It prints a table, and ends 1 when memory grew by more than MEMORY_MB after the
first tenth, a start took longer than START_S, or a count is not what was sent.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from chaos.host.processes import ServerProcess, broker_process, namesrv_process
from raftmq import AdminClient, ConsumeFrom, Message, MessageExt, Producer, PushConsumer
from runtime.clock import SystemClock
from tests.soak.delay import side_by_side

TOPIC = "SoakPending"
PROMPT = "SoakPrompt"
HOUR_MS = 3600 * 1000
# When they are due, from their send on: none within the run, all within the 3 days that the broker allows.
DUE_MS = (HOUR_MS, 70 * HOUR_MS)
# What may be between the first tenth and any later moment, in MB: 64 MiB.
MEMORY_MB = 67.0
START_S = 5.0
# A timer of so many ms is sent after each start, and must come within so many of when it is due.
PROMPT_MS, LATE_MS = 3000, 2000
CLOCK = SystemClock()


class Findings:
    """What was measured, as lines; and whether all is well."""

    def __init__(self) -> None:
        self.well = True

    def say(self, what: str, *, well: bool = True) -> None:
        """Print a line; one that is not well is marked."""
        self.well &= well
        print(what if well else f"{what}   <- NOT WELL", flush=True)


async def figure(admin: AdminClient, broker: ServerProcess, name: str) -> int:
    """Return one of the figures of code 28."""
    return int((await admin.runtime_info(broker.address))[name])


async def taken_in(admin: AdminClient, broker: ServerProcess) -> float:
    """Wait until all timers are in the index; returns after how many seconds."""
    began = time.monotonic()
    while await figure(admin, broker, "timerOffsetBehind"):
        await asyncio.sleep(0.05)
    return time.monotonic() - began


async def load(producer: Producer, count: int, rng: random.Random) -> None:
    """Send timers, each due at a moment of its own; every one must be acknowledged."""

    async def one(_number: int) -> None:
        await producer.send(Message(TOPIC, b"x" * 100, deliver_at=CLOCK.now_ms() + rng.randrange(*DUE_MS)))

    await side_by_side(count, one)


async def prompt(producer: Producer, namesrv: str, findings: Findings, what: str) -> None:
    """Send one timer of some seconds, and see when it comes."""
    came: asyncio.Queue[MessageExt] = asyncio.Queue()

    async def callback(messages: list[MessageExt]) -> None:
        for message in messages:
            came.put_nowait(message)

    consumer = PushConsumer("soak-prompt", namesrv, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(PROMPT)
    consumer.on_message(callback)
    due = CLOCK.now_ms() + PROMPT_MS
    await producer.send(Message(PROMPT, what.encode(), deliver_at=due))
    async with consumer, asyncio.timeout(60):
        while (message := await came.get()).body != what.encode():
            pass
    late = message.store_timestamp - due
    findings.say(f"{what}: a timer of {PROMPT_MS / 1000:g} s came {late} ms late", well=0 <= late <= LATE_MS)


async def restarted(broker: ServerProcess, admin: AdminClient, findings: Findings, what: str, count: int) -> None:
    """Start the broker, and say how long it takes until it serves and knows all timers."""
    began = time.monotonic()
    await asyncio.to_thread(broker.start, 120.0)
    ready = time.monotonic() - began
    await taken_in(admin, broker)
    whole = time.monotonic() - began
    waiting = await figure(admin, broker, "timerCongestNum")
    findings.say(f"{what}: serves after {ready:.2f} s, all timers known after {whole:.2f} s", well=whole <= START_S)
    findings.say(f"{what}: {waiting:,} wait", well=waiting == count)


async def run(count: int, broker: ServerProcess, namesrv: str, seed: int) -> bool:
    """Do it all; tells whether it is well."""
    findings, rng = Findings(), random.Random(seed)
    steps = 10
    async with AdminClient(namesrv) as admin, Producer("soak-pending-makers", namesrv, send_timeout=15.0) as producer:
        first, most = 0.0, 0.0
        for step in range(1, steps + 1):
            began = time.monotonic()
            part = count * step // steps - count * (step - 1) // steps
            await load(producer, part, rng)
            rate = part / (time.monotonic() - began)
            await taken_in(admin, broker)
            memory = broker.anonymous_mb()
            first = first or memory
            most = max(most, memory)
            findings.say(f"{count * step // steps:>12,} timers: {memory:.0f} MB, {rate:,.0f} sends/s")
        findings.say(f"memory: {first:.0f} MB after a tenth, {most:.0f} MB at most", well=most - first <= MEMORY_MB)
        await prompt(producer, namesrv, findings, "loaded")
        for what, end in (("kill -9", broker.kill), ("stop", broker.stop)):
            await asyncio.to_thread(end)
            await restarted(broker, admin, findings, what, count)
            await prompt(producer, namesrv, findings, what)
            memory = broker.anonymous_mb()
            findings.say(f"{what}: {memory:.0f} MB", well=memory - first <= MEMORY_MB)
    return findings.well


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.pending", description=__doc__)
    parser.add_argument("--timers", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="raftmq-soak-"))
    namesrv = namesrv_process(folder / "namesrv")
    broker = broker_process(folder, namesrv=namesrv.address)
    try:
        namesrv.start()
        broker.start()
        well = asyncio.run(run(asked.timers, broker, namesrv.address, asked.seed))
    finally:
        for process in (broker, namesrv):
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print("all is well" if well else "NOT WELL")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
