"""Torture: a real group under load and real faults, then the question whether anything acknowledged is missing.

    python -m tests.chaos.torture --minutes 15 --seed 1 [--fsync-ms 30] [--planted ack-before-fsync] [--json]

Exit code 0 only when nothing was lost, repeated, misplaced or different, and at least one message was acknowledged.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.cluster import Member, TortureCluster
from tests.chaos.judge import Verdict, judge
from tests.chaos.load import History, Load

LEADER_TIMEOUT_S = 40.0
CATCH_UP_TIMEOUT_S = 120.0
POLL_S = 0.05
LED = re.compile(r"leads? .*term (\d+)")


class MemberFailed(Exception):
    """A member ended although nobody killed it; the text holds everybody's last words."""


class Torture:
    """One run."""

    def __init__(
        self, folder: Path, seed: int, *, fsync_ms: float = 0.0, planted: str = "", quiet: bool = True
    ) -> None:
        self._dice = random.Random(seed)
        self._seed = seed
        self._cluster = TortureCluster(folder)
        self._folder = folder
        self._quiet = quiet
        self._history = History()
        self._faults: Counter[str] = Counter()
        # Term → members that were seen leading in it.
        self._leaders: dict[int, set[int]] = {}
        for member in self._cluster.members:
            member.fsync_ms = fsync_ms
            member.planted = planted
        self.menu: dict[str, Callable[[], Awaitable[None]]] = {
            "kill leader": self._kill_leader,
            "kill follower": self._kill_follower,
            "kill all": self._kill_all,
            "pause leader": self._pause_leader,
            "pause follower": self._pause_follower,
            "isolate leader": self._isolate_leader,
            "cut one way": self._cut_one_way,
            "power loss of one": self._power_one,
            "power loss of all": self._power_all,
            "isolate, write, lose power, isolate": self._jepsen,
        }

    async def run(self, seconds: float, faults: list[str] | None = None) -> Verdict:
        """Load for `seconds`, with faults of the menu one after the other (or just those given), and judge."""
        began = time.monotonic()
        await asyncio.to_thread(self._cluster.start)
        try:
            await self._leader()
            load = Load([member.process.address for member in self._cluster.members], self._history, self._seed)
            load.start()
            watch = asyncio.create_task(self._watch())
            try:
                await self._break_things(began + seconds, faults)
            finally:
                await asyncio.to_thread(self._cluster.revive)
                await load.stop()
            await self._settle()
            watch.cancel()
            for member in self._cluster.members:
                await asyncio.to_thread(member.process.stop)
            verdict = judge([member.store for member in self._cluster.members], self._history)
        finally:
            await asyncio.to_thread(self._cluster.close)
        verdict.faults = dict(self._faults)
        verdict.terms = len(self._leaders)
        for term, members in sorted(self._leaders.items()):
            if len(members) > 1:
                verdict.violations.append(f"members {sorted(members)} led in term {term}")
        verdict.seconds = round(time.monotonic() - began, 1)
        return verdict

    async def _break_things(self, deadline: float, faults: list[str] | None) -> None:
        names = list(self.menu)
        planned = list(faults) if faults is not None else None
        while time.monotonic() < deadline or planned:
            await asyncio.sleep(self._dice.uniform(0.5, 2.0))
            if planned is not None:
                if not planned:
                    await asyncio.sleep(max(0.0, deadline - time.monotonic()))
                    return
                name = planned.pop(0)
            else:
                name = self._dice.choice(names)
            self._say(f"{self._history.acknowledged:>9,} acknowledged; {name}")
            self._faults[name] += 1
            await self.menu[name]()
            await asyncio.to_thread(self._cluster.revive)
            await self._leader()

    # -- faults

    async def _kill_leader(self) -> None:
        await self._down(await self._leader())

    async def _kill_follower(self) -> None:
        await self._down(await self._follower())

    async def _kill_all(self) -> None:
        for member in self._cluster.members:
            await asyncio.to_thread(member.kill)

    async def _pause_leader(self) -> None:
        (await self._leader()).pause()
        await self._while()

    async def _pause_follower(self) -> None:
        (await self._follower()).pause()
        await self._while()

    async def _isolate_leader(self) -> None:
        self._cluster.isolate(await self._leader())
        await self._while()

    async def _cut_one_way(self) -> None:
        source, target = self._dice.sample(range(len(self._cluster.members)), 2)
        self._cluster.proxies.cut(source, target)
        await self._while()

    async def _power_one(self) -> None:
        member = self._dice.choice(self._cluster.members)
        await asyncio.to_thread(member.lose_power, self._dice)
        await self._while()

    async def _power_all(self) -> None:
        for member in self._cluster.members:
            await asyncio.to_thread(member.kill)
        for member in self._cluster.members:
            await asyncio.to_thread(member.lose_power, self._dice)

    async def _jepsen(self) -> None:
        """Isolate a; write to b and c; cut b's power; heal a, isolate c, start b: a and b alone must know it all."""
        leader = await self._leader()
        a, b = self._dice.sample([member for member in self._cluster.members if member is not leader], 2)
        c = leader
        self._cluster.isolate(a)
        await self._while()
        await asyncio.to_thread(b.lose_power, self._dice)
        self._cluster.proxies.heal()
        self._cluster.isolate(c)
        b.launch()
        await self._leader(among=(a, b))
        await self._while()

    async def _down(self, member: Member) -> None:
        await asyncio.to_thread(member.kill)
        await self._while()

    async def _while(self) -> None:
        """Let a fault last."""
        await asyncio.sleep(self._dice.uniform(0.3, 3.0))

    # -- watching

    async def _leader(self, among: tuple[Member, ...] = ()) -> Member:
        deadline = time.monotonic() + LEADER_TIMEOUT_S
        while True:
            leader = await asyncio.to_thread(self._cluster.leader)
            if leader is not None and (not among or leader in among):
                return leader
            self._check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody led after {LEADER_TIMEOUT_S:g} s:\n{self._words()}")
            await asyncio.sleep(POLL_S)

    async def _follower(self) -> Member:
        leader = await self._leader()
        return self._dice.choice([member for member in self._cluster.members if member is not leader])

    async def _watch(self) -> None:
        """Note who leads in which term, as the members say."""
        while True:
            for member in self._cluster.members:
                status = await asyncio.to_thread(member.status)
                if status is not None and status["role"] == "LEADER":
                    self._leaders.setdefault(status["term"], set()).add(member.number)
            await asyncio.sleep(POLL_S)

    async def _settle(self) -> None:
        """Wait until every member has everything."""
        deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
        while True:
            found = [await asyncio.to_thread(member.status) for member in self._cluster.members]
            known = [(s["last"], s["commit"], s["applied"]) for s in found if s is not None]
            if len(known) == len(found) and len({number for row in known for number in row}) == 1:
                return
            self._check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the members did not catch up: {found}\n{self._words()}")
            await asyncio.sleep(POLL_S)

    def _check_alive(self) -> None:
        """Raise MemberFailed when a member has ended by itself: nothing that is waited for will come any more."""
        for member in self._cluster.members:
            code = member.process.exit_code
            if code is not None and code > 0:
                raise MemberFailed(f"{member.process.name} ended with {code}:\n{self._words()}")

    def _words(self) -> str:
        return "\n".join(f"-- {m.process.name}\n{m.process.last_words()}" for m in self._cluster.members)

    def _say(self, text: str) -> None:
        if not self._quiet:
            sys.stderr.write(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.torture")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fsync-ms", type=float, default=0.0)
    parser.add_argument("--planted", default="")
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raftmq-torture-") as temporary:
        torture = Torture(
            options.dir or Path(temporary),
            options.seed,
            fsync_ms=options.fsync_ms,
            planted=options.planted,
            quiet=False,
        )
        verdict = asyncio.run(torture.run(options.minutes * 60))
    sys.stdout.write(json.dumps(verdict.as_dict(), indent=2) + "\n")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
