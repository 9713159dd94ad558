"""A three-member group of real processes, each with a disk that can lose power and links that can be cut."""

import random
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.powerloss import lose_power
from chaos.processes import HOST, ServerProcess, broker_process, free_ports, namesrv_process
from tests.chaos.proxies import Proxies, member_host

MEMBER = Path(__file__).with_name("member.py")
ROOT = Path(__file__).resolve().parents[2]


class Member:
    """One member: its process, its undo file, and how slow its disk is from the next start on."""

    def __init__(self, number: int, process: ServerProcess, folder: Path) -> None:
        self.number = number
        self.process = process
        self.store = folder / "store"
        self.undo = folder / "undo"
        self.fsync_ms = 0.0
        self.planted = ""
        self._arguments = list(process._arguments)
        self.paused = False

    def launch(self) -> None:
        command = self._arguments[3:]
        self.process._arguments = [
            sys.executable, "-m", "tests.chaos.member",
            "--undo", str(self.undo), "--fsync-ms", str(self.fsync_ms), "--planted", self.planted, *command,
        ]  # fmt: skip
        self.process.launch()

    def kill(self) -> None:
        self.resume()
        self.process.kill()

    def lose_power(self, dice: random.Random) -> int:
        """Kill the process and undo what it had not synced; return how many bytes were lost."""
        self.kill()
        return lose_power(self.undo, dice)

    def pause(self) -> None:
        if self.process.running:
            self.process._process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr] # it runs
            self.paused = True

    def resume(self) -> None:
        if self.paused and self.process.running:
            self.process._process.send_signal(signal.SIGCONT)  # type: ignore[union-attr] # it runs
        self.paused = False

    def status(self) -> dict[str, Any] | None:
        """What /v1/raft says; None from one that is down or paused."""
        if self.paused or not self.process.running:
            return None
        found: dict[str, Any] | None = self.process.state("/v1/raft")
        return found


class TortureCluster:
    """A NameServer, three members, and a proxy in front of each Raft port."""

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None, nodes: int = 3) -> None:
        self.namesrv = namesrv_process(folder / "namesrv")
        ports = free_ports(2 * nodes)
        proxied, real = ports[:nodes], ports[nodes:]
        self.proxies = Proxies(proxied, real)
        peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(proxied))
        self.members = []
        for number in range(nodes):
            home = folder / f"n{number}"
            process = broker_process(
                home,
                namesrv=self.namesrv.address,
                name=f"broker n{number}",
                settings={
                    "enableDLegerCommitLog": True,
                    "dLegerGroup": "broker-a",
                    "dLegerPeers": peers,
                    "dLegerSelfId": f"n{number}",
                    "raftBindAddress": member_host(number),
                    "raftListenPort": real[number],
                    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
                    **(settings or {}),
                },
            )
            self.members.append(Member(number, process, home))

    def start(self) -> None:
        try:
            self.proxies.start()
            self.namesrv.start()
            for member in self.members:
                member.launch()
            for member in self.members:
                member.process.wait_ready()
        except BaseException:
            self.close()
            raise

    def leader(self) -> Member | None:
        """The member that says that it leads in the highest term, None when none does."""
        leading = [
            (status["term"], member)
            for member in self.members
            if (status := member.status()) is not None and status["leads"]
        ]
        return max(leading, key=lambda found: found[0])[1] if leading else None

    def isolate(self, member: Member) -> None:
        """Cut a member off in both directions."""
        for other in self.members:
            if other is not member:
                self.proxies.cut(member.number, other.number)
                self.proxies.cut(other.number, member.number)

    def revive(self) -> None:
        """Mend all links, wake who is paused, start who is down."""
        self.proxies.heal()
        for member in self.members:
            member.resume()
            if not member.process.running:
                member.launch()

    def close(self) -> None:
        for member in self.members:
            member.kill()
        self.namesrv.kill()
        self.proxies.close()
