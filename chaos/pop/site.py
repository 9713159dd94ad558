"""What is popped from: a Raft group of three brokers, perhaps with a planted bug, one topic and one group."""

from functools import partial
from pathlib import Path

from chaos.apps.site import AppSite
from chaos.pop.plan import GROUP, QUEUES, TOPIC
from client.admin.client import AdminClient
from remoting.bodies.registry import SubscriptionGroupConfig

# How often a message may come before it is a dead letter: here each is to be acknowledged, however often it is not.
ATTEMPTS = 100_000


class PopSite(AppSite):
    """The servers, each a process."""

    def __init__(self, folder: Path, planted: str = "") -> None:
        super().__init__(folder)
        if planted:
            for number, broker in enumerate(self.brokers):
                undo = str(folder / f"n{number}" / "undo")
                broker.run_by(["chaos.site.member", "--undo", undo, "--planted", planted])

    async def open(self) -> None:
        """Start everything, make the topic and the group; raises ProcessError or SiteError."""
        await self.start(self.servers)
        await self.leader()
        async with AdminClient(self.address) as admin:
            await self.insist(partial(admin.create_topic, TOPIC, read_queues=QUEUES, write_queues=QUEUES))
            await self.insist(partial(admin.create_group, SubscriptionGroupConfig(GROUP, retryMaxTimes=ATTEMPTS)))
