"""Partitions by the kernel: packets between members are dropped, connections stay, and old words arrive after heal.

The shapes are those of chaos/faults/links.py. These need members in network namespaces of their own
(chaos/site/netns.py), so that what is proved is what the kernel counted: packets dropped.
"""

import random
from collections.abc import Sequence

from chaos.faults.base import PACKETS, T1, Effect, FaultSite, Unable
from chaos.faults.links import Bridge, Flap, Isolate, LinkFault, LossyLinks, OneWay

CAPABILITY = "netns"


class _NetFault(LinkFault):
    """A fault of links between namespaces."""

    tier = T1
    needs: Sequence[str] = (CAPABILITY,)

    async def begin(self, site: FaultSite) -> None:
        """Take note of what the kernel has dropped until now; raises Unable where it drops nothing for us."""
        if site.links.counted != PACKETS:
            raise Unable("the members of this cluster are in no network namespaces of their own")
        await super().begin(site)


class NetIsolate(_NetFault, Isolate):
    """One member's packets to and from all others are dropped."""

    def __init__(self, role: str) -> None:
        super().__init__(role, hold=True)
        self.name = f"net-isolate-{role}"


class NetOneWay(_NetFault, OneWay):
    """Packets between the leader and a follower are dropped in one direction, which is drawn."""

    def __init__(self) -> None:
        super().__init__("leader", "follower")
        self.name = "net-one-way"

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Cut the link."""
        self._from_leader = rng.random() < 0.5
        effect = await super().fire(site, rng)
        return effect._replace(wanted="leader-to-follower" if self._from_leader else "follower-to-leader")


class NetBridge(_NetFault, Bridge):
    """Everybody sees a majority, and no two the same one."""

    name = "net-majority-ring"


class NetFlap(_NetFault, Flap):
    """A link of the leader drops everything and nothing by turns."""

    name = "net-flap"


class NetLoss(_NetFault, LossyLinks):
    """Of all packets between members a share is dropped."""

    name = "net-loss"
