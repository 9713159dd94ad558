"""A doubled cluster for tests of nemeses: members whose processes are values, links that are noted."""

import http.client
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos.faults.base import BYTES, Device, NotHealed


class Process:
    """A process that starts and ends when it is told to."""

    def __init__(self, number: int) -> None:
        self.environment: dict[str, str] = {}
        self.address = f"127.0.0.1:{number}"
        self.starts = 0
        # Beyond what Linux gives to processes, so that no signal goes astray.
        self._base = 10_000_000 * (number + 1)
        self.exit_code: int | None = None
        self.said: dict[str, Any] | None = None
        self.launch()

    @property
    def pid(self) -> int:
        return self._base + self.starts

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def launch(self) -> None:
        self.starts += 1
        self.exit_code = None

    def stop(self) -> int:
        self.exit_code = 0
        return 0

    def kill(self) -> None:
        self.exit_code = -9

    def last_words(self) -> str:
        return "its last words"

    def ready(self) -> bool:
        return self.running

    @staticmethod
    def http() -> http.client.HTTPConnection:
        # Nobody listens there.
        return http.client.HTTPConnection("127.0.0.1", 1)

    def state(self, _path: str) -> Any | None:
        return self.said

    def cpu_seconds(self) -> float:
        return 0.0


class Member:
    def __init__(self, name: str, number: int, folder: Path) -> None:
        self.name = name
        self.process = Process(number)
        self.store = folder / name / "store"
        self.store.mkdir(parents=True)
        self.undo: Path | None = folder / name / "undo"
        self.disk: Path | None = folder / name / "disk"
        self.device: Device | None = None
        self.clock: Path | None = None
        self.paused = False


class Links:
    """Notes what is broken now, and everything that was asked for."""

    def __init__(self) -> None:
        self.broken: dict[tuple[str, str], str] = {}
        self.asked: list[str] = []
        self.count = 0
        self.counted = BYTES
        # A cluster without load: nothing comes to the links.
        self.silent = False

    async def _break(self, kind: str, source: str, target: str, *, both: bool = False) -> None:
        for one, other in [(source, target), (target, source)][: 1 + both]:
            self.broken[one, other] = kind
            self.asked.append(f"{kind} {one}>{other}")
        self.count += 0 if self.silent else 1

    async def cut(self, source: str, target: str, *, both: bool = False) -> None:
        await self._break("cut", source, target, both=both)

    async def hold(self, source: str, target: str, *, both: bool = False) -> None:
        await self._break("hold", source, target, both=both)

    async def slow(self, source: str, target: str, ms: int, jitter_ms: int = 0) -> None:
        await self._break(f"slow {ms}±{jitter_ms}", source, target)

    async def loss(self, source: str, target: str, share: float) -> None:
        await self._break(f"loss {share}", source, target)

    async def resets(self, source: str, target: str, share: float) -> None:
        await self._break(f"reset {share}", source, target)

    async def tear(self, source: str, target: str, after_bytes: int) -> None:
        await self._break(f"tear {after_bytes}", source, target)

    async def heal(self) -> None:
        self.broken.clear()
        self.asked.append("heal")

    async def verify(self) -> None:
        if self.broken:
            raise NotHealed(f"still broken: {self.broken}")

    async def touched(self) -> int:
        return self.count


class DoubledSite:
    """`leads` is who leads; None: nobody."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self.members: Sequence[Member] = [Member(f"n{number}", number, folder) for number in range(nodes)]
        self.mode = "raft"
        self.namesrv = "127.0.0.1:1"
        self.links = Links()
        self.leads: str | None = "n0"
        self.clients = ["client"]

    def member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)

    async def role_of(self, name: str) -> str:
        return "leader" if name == self.leads else "follower"

    async def leader(self) -> Member | None:
        """The one that leads; when it is down or stands still, the first of the others, as after an election."""
        if self.leads is None:
            return None
        standing = [member for member in self.members if member.process.running and not member.paused]
        if standing and self.member(self.leads) not in standing:
            self.leads = standing[0].name
        return self.member(self.leads) if standing else None

    async def start(self, name: str) -> None:
        self.member(name).process.launch()

    async def launch(self, name: str) -> None:
        self.member(name).process.launch()

    async def restart_namesrv(self) -> str:
        return "another NameServer"

    async def restart(self, name: str) -> None:
        self.member(name).process.launch()

    async def start_missing(self) -> None:
        for member in self.members:
            if not member.process.running:
                member.process.launch()

    async def crash_client(self, _rng: random.Random) -> str:
        return f"{self.clients.pop()} is gone" if self.clients else ""
