"""The directed links between members, each through fault proxies of its own.

Members know one another by their real addresses, which a Raft group keeps in its log; each member's process is told
(chaos/site/member.py, ``--dial``) to reach each of them through a proxy instead. So who dials is known, and one
direction of one pair can be broken. Link "a>b" is all that a sends to b: on connections that a dialled and on those of
b.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from chaos.faults.base import BYTES, NotHealed, Unable
from chaos.proxy.errors import ToxiRefused
from chaos.proxy.toxics import Stream
from chaos.site.toxiproxy import Toxi, ToxiproxyLink, server

Ports = Mapping[str, Mapping[str, str]]
"""Member → what is there ("raft", "ha", "clients") → host:port, as the others dial it."""
# How long a connection lives that a link resets, in milliseconds.
RESET_MS = 50
# What was lost is sent again after so long, for the first time: the least that Linux waits.
LOST_MS = 200
DOWN: Stream = "downstream"
UP: Stream = "upstream"


class SiteLinks:
    """The links of one site; without ports there are none, and every fault of them is refused."""

    counted = BYTES

    def __init__(self, ports: Ports, seed: int, *, where: str = "process", log: Path | None = None) -> None:
        """`where` is the fault proxy server, as chaos.site.toxiproxy.server takes it."""
        self._ports = ports
        self._seed = seed
        self._where = where
        self._log = log
        self._stack = contextlib.ExitStack()
        self._toxi: Toxi | None = None
        self._proxies: dict[tuple[str, str], list[ToxiproxyLink]] = {}
        # Proxy and stream → bytes and connections that it had carried when its fault began.
        self._faulty: dict[tuple[str, Stream], int] = {}
        self._healed = 0

    async def start(self) -> None:
        """Make the proxies; raises ToxiError."""
        if self._ports:
            await asyncio.to_thread(self._start)

    async def close(self) -> None:
        """End them."""
        await asyncio.to_thread(self._stack.close)
        self._toxi = None

    def dials(self, source: str) -> dict[str, str]:
        """Return where a member is to dial for each real address: started links only."""
        return {
            link.upstream: link.listen for (dialler, _), links in self._proxies.items() if dialler == source
            for link in links
        }  # fmt: skip

    async def cut(self, source: str, target: str, *, both: bool = False) -> None:
        """Let nothing more through from `source` to `target`: what was sent is lost, connections break at heal."""
        await self._break(source, target, "timeout", both=both, timeout=0)

    async def hold(self, source: str, target: str, *, both: bool = False) -> None:
        """Keep what is sent, and deliver it after heal: connections stay, as through a switch that comes back."""
        await self._break(source, target, "hold", both=both)

    async def slow(self, source: str, target: str, ms: int, jitter_ms: int = 0) -> None:
        """Delay everything."""
        await self._break(source, target, "latency", latency=ms, jitter=jitter_ms)

    async def loss(self, source: str, target: str, share: float) -> None:
        """Lose that share of what is sent, 0 to 1: it is late, and so is all that was sent after it."""
        await self._break(source, target, "loss", per_mille=round(share * 1000), rto=LOST_MS)

    async def resets(self, source: str, target: str, share: float) -> None:
        """Reset that share of connections, 0 to 1, soon after they came about."""
        await self._break(source, target, "reset_peer", toxicity=share, timeout=RESET_MS)

    async def tear(self, source: str, target: str, after_bytes: int) -> None:
        """Close connections after so many bytes, in the middle of a frame."""
        await self._break(source, target, "limit_data", bytes=after_bytes)

    async def heal(self) -> None:
        """Take every fault of every link away."""
        await asyncio.to_thread(self._heal)

    async def verify(self) -> None:
        """Raise NotHealed when a proxy still has a fault."""
        left = await asyncio.to_thread(self._left)
        if left:
            raise NotHealed(f"links still have faults: {', '.join(left)}")

    async def touched(self) -> int:
        """Return how many bytes and connections came to links while they were faulty."""
        return await asyncio.to_thread(self._touched)

    def _start(self) -> None:
        self._toxi = self._stack.enter_context(server(self._where, seed=self._seed, log=self._log))
        for source in self._ports:
            for target, doors in self._ports.items():
                if source != target:
                    self._proxies[source, target] = [
                        self._toxi.create(f"{source}>{target}:{door}", address) for door, address in doors.items()
                    ]

    async def _break(
        self, source: str, target: str, kind: str, *, both: bool = False, toxicity: float = 1.0, **attributes: int
    ) -> None:
        if self._toxi is None:
            raise Unable("the links of this cluster run through no proxies: its scenario does not ask for them")
        directions = [(source, target), (target, source)] if both else [(source, target)]
        try:
            for one, other in directions:
                await asyncio.to_thread(self._add, one, other, kind, toxicity, attributes)
        except ToxiRefused as error:
            await self.heal()
            raise Unable(str(error)) from error

    def _add(self, source: str, target: str, kind: str, toxicity: float, attributes: Mapping[str, int]) -> None:
        """Break what `source` sends: upstream where it dialled, downstream where it was dialled."""
        streams = [(link, UP) for link in self._proxies[source, target]]
        streams += [(link, DOWN) for link in self._proxies[target, source]]
        carried = self._carried()
        for link, stream in streams:
            # A link that has the same fault already has it once.
            link.remove(f"{kind}_{stream}")
            link.add(kind, stream=stream, toxicity=toxicity, name=None, **attributes)
            self._faulty.setdefault((link.name, stream), carried.get((link.name, stream), 0))

    def _heal(self) -> None:
        if self._toxi is None:
            return
        self._healed = self._touched()
        faulty = {name for name, _ in self._faulty}
        self._faulty.clear()
        for links in self._proxies.values():
            for link in links:
                if link.name in faulty:
                    link.clear()

    def _left(self) -> list[str]:
        links = self._toxi.links() if self._toxi is not None else {}
        return [f"{name}: {toxic}" for name, link in links.items() for toxic in link.toxics()]

    def _touched(self) -> int:
        if not self._faulty:
            return self._healed
        carried = self._carried()
        return self._healed + sum(max(0, carried.get(key, 0) - before) for key, before in self._faulty.items())

    def _carried(self) -> dict[tuple[str, Stream], int]:
        """Return what came to each proxy so far, bytes of each stream and connections; nothing from Shopify's."""
        if self._toxi is None or not self._toxi.ours:
            return {}
        return {
            (name, stream): int(counts[stream]["received"]) + int(counts["accepted"])
            for name, counts in self._toxi.counters().items()
            for stream in (UP, DOWN)
        }
