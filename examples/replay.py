"""Consumes a topic once more from a moment on: an administrator moves a group's offsets, and sees first what will come.

Start a cluster in another terminal with `raftmq local`, then run this file. NAMESRV_ADDR names another cluster. In a
terminal the same is `raftmq group reset-offset readings_report readings --to 2026-01-31T12:00:00 --dry-run`.
"""

import asyncio
import os
import time
import uuid

from raftmq import AdminClient, ConsumeFrom, Message, MessageExt, Producer, PushConsumer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "readings"
GROUP = "readings_report"
TIMEOUT_S = 60


class Report:
    """Counts how often each reading of this run came."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._changed = asyncio.Event()
        self.times: dict[int, int] = {}

    async def __call__(self, messages: list[MessageExt]) -> None:
        """Count."""
        for message in messages:
            run, _, number = message.keys[0].rpartition("-")
            if run == self._run:
                self.times[int(number)] = self.times.get(int(number), 0) + 1
        self._changed.set()

    async def until(self, numbers: range, times: int) -> None:
        """Wait until each of these came so often."""
        async with asyncio.timeout(TIMEOUT_S):
            while any(self.times.get(number, 0) < times for number in numbers):
                self._changed.clear()
                await self._changed.wait()


async def main() -> None:
    run = uuid.uuid4().hex  # tells this run's readings from those of earlier runs
    report = Report(run)
    consumer = PushConsumer(GROUP, NAMESRV, from_where=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    consumer.on_message(report)
    async with Producer("thermometers", NAMESRV) as producer, consumer, AdminClient(NAMESRV) as admin:
        for number in range(10):
            await producer.send(Message(TOPIC, b"21.5", keys=f"{run}-{number}"))
        await asyncio.sleep(0.1)
        moment = time.time_ns() // 1_000_000
        for number in range(10, 20):
            await producer.send(Message(TOPIC, b"22.5", keys=f"{run}-{number}"))
        await report.until(range(20), 1)
        await consumer.commit()
        print("consumed 20 readings")
        # What would be done, without doing it.
        plan = await admin.plan_reset(GROUP, TOPIC, timestamp_ms=moment)
        print(f"would come again: {sum(move.before - move.offset for move in plan if move.before is not None)}")
        # The members go on at the new offsets at once.
        await admin.reset_offset(GROUP, TOPIC, timestamp_ms=moment)
        await report.until(range(10, 20), 2)
    assert all(report.times[number] == 1 for number in range(10)), report.times
    print("consumed the last 10 once more, and none of the others")


if __name__ == "__main__":
    asyncio.run(main())
