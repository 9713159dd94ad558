"""A process that makes topics one after the other and says of each when it is safe, until it is killed."""

import asyncio
import sys
from pathlib import Path

from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.bodies.registry import TopicConfig
from runtime.clock import SystemClock
from store.config import StoreConfig


async def _write(folder: Path, life: str) -> None:
    table = TopicTable(folder / "topics.json", LiveConfig(BrokerConfig(), StoreConfig()), SystemClock())
    table.update(*(TopicConfig(f"{life}-first-{number}", 1, 1) for number in range(400)))
    await table.save()
    number = 0
    while True:
        table.update(TopicConfig(f"{life}-{number}", 1, 1))
        await table.save()
        print(f"{life}-{number}", flush=True)
        number += 1


if __name__ == "__main__":
    asyncio.run(_write(Path(sys.argv[1]), sys.argv[2]))
