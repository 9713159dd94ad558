"""Topics and consumer groups made under load: what was acknowledged is there in the end, at every member."""

import asyncio
import random
from typing import Any

from chaos.load.clients import TIMEOUT_S, LoadClient
from chaos.load.workload import Load, Plain, opened, pause
from client.admin.client import AdminClient
from pipeline.history.body import Tag
from pipeline.history.rows import Act, Kind

PREFIX = "chaos_admin"
QUEUES = 2
EVERY_S = 0.25
# So many topics a run makes at most; as many groups.
TOPICS_MAX = 60


class AdminWorkload(Plain):
    """One administrator makes topics and groups, and sends a message to each new topic."""

    name = "admin"

    def __init__(self) -> None:
        super().__init__({})
        self._made_groups: list[str] = []

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Make them one after the other until `stop`."""
        rng = random.Random(load.rng.random())
        async with opened(self.name) as remoting, AdminClient(load.namesrv, timeout=TIMEOUT_S) as admin:
            client = load.client(remoting, self.name)
            writer, number = load.names.writer(), 0
            while await pause(stop, EVERY_S * rng.uniform(0.5, 1.5)) and number < TOPICS_MAX:
                number += 1
                await self._make(load, admin, client, f"{PREFIX}_{number}", Tag(writer, number, 0))

    async def close(self, load: Load, client: LoadClient) -> None:
        """Look for every topic and group at every member."""
        async with AdminClient(load.namesrv, timeout=TIMEOUT_S) as admin:
            for address in load.addresses:
                for topic in self.topics:
                    await self._seen(client, address, admin.topic_config(topic, address), topic=topic)
                groups = await admin.groups(address=address)
                for group in self._made_groups:
                    await self._seen(client, address, _there(group in groups), group=group)

    async def _make(self, load: Load, admin: AdminClient, client: LoadClient, name: str, tag: Tag) -> None:
        address = load.leaders.address

        async def topic() -> dict[str, Any]:
            await admin.create_topic(name, read_queues=QUEUES, write_queues=QUEUES, address=address)
            return {}

        async def group() -> dict[str, Any]:
            await admin.create_group(name, address=address)
            return {}

        made = await client.call(Act.CREATE_TOPIC, address, topic, topic=name, value=QUEUES)
        if made.kind != Kind.OK:
            load.leaders.failed(address)
            return
        self.topics[name] = QUEUES
        if (await client.call(Act.CREATE_GROUP, address, group, group=name)).kind == Kind.OK:
            self._made_groups.append(name)
        await client.send(load.leaders.address, name, 0, tag)

    @staticmethod
    async def _seen(client: LoadClient, address: str, look: Any, **fields: Any) -> None:
        """Record a look; all members have the same now, so each answers as the leader."""

        async def told() -> dict[str, Any]:
            found = await look
            return {"value": int(found is not None and found is not False)}

        await client.call(Act.SEEN_TOPIC, address, told, leader=address, **fields)


async def _there(there: bool) -> bool:
    return there
