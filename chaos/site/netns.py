"""Members in network namespaces of their own around one bridge, whose forwarding drops what is told: real partitions.

    n0 eth0 10.77.0.1 ─┐
    n1 eth0 10.77.0.2 ─┼─ raftmq0 10.77.0.254, where the harness and its NameServer are
    n2 eth0 10.77.0.3 ─┘  table bridge raftmq: pairs "from . to" in a set are dropped, and counted

Packets are lost and nobody is told: connections stay, TCP sends again, and after heal old words arrive. What the
harness asks of members goes to the bridge itself and is never dropped. All of this is made in a namespace without a way
out (chaos/host/namespaces.py) and vanishes with it. `python -m chaos.site.netns` tries it, in the namespace in which
it is started.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from chaos.faults.base import PACKETS, PATIENCE_S, POLL_S, NotHealed, Unable
from chaos.host.namespaces import tool

BRIDGE = "raftmq0"
OWN_ADDRESS = "10.77.0.254"
PREFIX = "10.77.0."
MEMBERS_MAX = 9
COMMAND_S = 10.0
# Nobody listens there: a refusal is an answer too.
CLOSED_PORT = 1
TABLE = """
table bridge raftmq {
  set cut { type ipv4_addr . ipv4_addr; }
  set lossy { type ipv4_addr . ipv4_addr; }
  counter dropped { }
  chain losing { }
  chain passing {
    type filter hook forward priority 0; policy accept;
    ip saddr . ip daddr @cut counter name dropped drop
    ip saddr . ip daddr @lossy jump losing
  }
}
"""
# Whether each address that is given answers, by a connection or by refusing one.
_REACH = """
import socket, sys
for address in sys.argv[2:]:
    try:
        socket.create_connection((address, int(sys.argv[1])), 1.0).close()
    except ConnectionRefusedError:
        pass
    except OSError:
        sys.exit(1)
"""


class SwitchError(Exception):
    """The namespaces cannot be made, or do not do what they are told; the text says why."""


class Switch:
    """The bridge and the namespaces around it; they are made in the network namespace of this process."""

    def __init__(self, names: Sequence[str]) -> None:
        assert len(names) <= MEMBERS_MAX, names
        self.addresses: Mapping[str, str] = {name: f"{PREFIX}{number}" for number, name in enumerate(names, 1)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}

    def open(self) -> None:
        """Make everything; raises SwitchError, and then only processes are left, for `close`."""
        _check_private()
        bridge = [f"link add {BRIDGE} type bridge", f"addr add {OWN_ADDRESS}/24 dev {BRIDGE}", f"link set {BRIDGE} up"]
        _ip(["link set lo up", *bridge])
        for name in self.addresses:
            # A namespace lives as long as a process in it.
            self._holders[name] = subprocess.Popen(
                ["unshare", "--net", "--", "sleep", "infinity"], stdin=subprocess.DEVNULL, start_new_session=True
            )
        for number, (name, address) in enumerate(self.addresses.items(), 1):
            pid = self._namespace(name)
            _ip([
                f"link add ve{number} type veth peer name eth0 netns {pid}",
                f"link set ve{number} master {BRIDGE}",
                f"link set ve{number} up",
            ])  # fmt: skip
            _ip([f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"], self.enter(name))
        _nft(TABLE)

    def enter(self, name: str) -> list[str]:
        """Return the command that runs what follows where a member is."""
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net", "--"]

    def close(self) -> None:
        """Let the members' namespaces go; the bridge goes with the namespace that it is in."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        self._holders.clear()

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Drop everything from the first to the second member of each pair."""
        self._add("cut", pairs)

    def lose(self, pairs: Iterable[tuple[str, str]], share: float) -> None:
        """Drop that share of the packets from the first to the second; the newest share holds for all of them."""
        # Of 1000 the last one is always let through: nft takes no other bound.
        rule = f"numgen random mod 1000 < {min(round(share * 1000), 999)} counter name dropped drop"
        _nft(f"flush chain bridge raftmq losing\nadd rule bridge raftmq losing {rule}")
        self._add("lossy", pairs)

    def heal(self) -> None:
        """Drop nothing more; raises SwitchError when something still stands in the table."""
        _nft("flush set bridge raftmq cut\nflush set bridge raftmq lossy\nflush chain bridge raftmq losing")
        left = [pair for one in _listed("list table bridge raftmq", "set") for pair in one.get("elem", [])]
        if left:
            raise SwitchError(f"nft still drops {left}")

    def dropped(self) -> int:
        """Return how many packets have been dropped so far."""
        return sum(int(one["packets"]) for one in _listed("list counters table bridge raftmq", "counter"))

    def reaches(self, name: str) -> bool:
        """Tell whether all other members answer a member."""
        others = [address for other, address in self.addresses.items() if other != name]
        program = [sys.executable, "-S", "-c", _REACH, str(CLOSED_PORT), *others]
        try:
            return _run([*self.enter(name), *program]).returncode == 0
        except SwitchError:
            return False

    def _add(self, to: str, pairs: Iterable[tuple[str, str]]) -> None:
        words = ", ".join(f"{self.addresses[source]} . {self.addresses[target]}" for source, target in pairs)
        _nft(f"add element bridge raftmq {to} {{ {words} }}")

    def _namespace(self, name: str) -> int:
        """Return the process that holds a member's namespace, once it has entered it."""
        pid, deadline = self._holders[name].pid, time.monotonic() + COMMAND_S
        own = Path("/proc/self/ns/net").readlink()
        while True:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/net").readlink() != own:
                    return pid
            if time.monotonic() > deadline or self._holders[name].poll() is not None:
                raise SwitchError("no network namespace can be made here")
            time.sleep(POLL_S / 10)


class NetLinks:
    """The links of a site whose members are in namespaces around a switch (chaos.faults.base.Links)."""

    counted = PACKETS

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    async def start(self) -> None:
        """Nothing to do: the switch is there before the members."""

    async def close(self) -> None:
        """Nothing to do: the switch outlives its links."""

    def dials(self, source: str) -> dict[str, str]:  # noqa: ARG002 # of all links
        """Return nothing: members dial one another."""
        return {}

    async def cut(self, source: str, target: str, *, both: bool = False) -> None:
        """Drop all packets; connections stay."""
        pairs = [(source, target), (target, source)] if both else [(source, target)]
        await asyncio.to_thread(self._switch.cut, pairs)

    async def hold(self, source: str, target: str, *, both: bool = False) -> None:
        """Drop all packets: what was sent is sent again after heal."""
        await self.cut(source, target, both=both)

    async def loss(self, source: str, target: str, share: float) -> None:
        """Drop that share of the packets."""
        await asyncio.to_thread(self._switch.lose, [(source, target)], share)

    async def slow(self, source: str, target: str, ms: int, jitter_ms: int = 0) -> None:  # noqa: ARG002 # never
        """Raise Unable: that takes a proxy."""
        raise Unable("links between namespaces are never slow: that takes the fault proxies")

    async def resets(self, source: str, target: str, share: float) -> None:  # noqa: ARG002 # never
        """Raise Unable: that takes a proxy."""
        raise Unable("links between namespaces reset nothing: that takes the fault proxies")

    async def tear(self, source: str, target: str, after_bytes: int) -> None:  # noqa: ARG002 # never
        """Raise Unable: that takes a proxy."""
        raise Unable("links between namespaces tear nothing: that takes the fault proxies")

    async def heal(self) -> None:
        """Drop nothing more."""
        await asyncio.to_thread(self._switch.heal)

    async def verify(self) -> None:
        """Wait until every member reaches all others; raises NotHealed."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(await asyncio.gather(*map(self._reaches, self._switch.addresses))):
            if time.monotonic() > deadline:
                raise NotHealed(f"members do not reach one another {PATIENCE_S:g} s after their links were healed")

    async def touched(self) -> int:
        """Return how many packets were dropped so far."""
        return await asyncio.to_thread(self._switch.dropped)

    async def _reaches(self, name: str) -> bool:
        return await asyncio.to_thread(self._switch.reaches, name)


def _check_private() -> None:
    """Refuse a network namespace from which somebody else can be reached."""
    routes = Path("/proc/self/net/route").read_text(encoding="ascii").splitlines()[1:]
    if routes:
        raise SwitchError("this network namespace has routes: members are only put beside one without a way out")


def _ip(lines: Sequence[str], where: Sequence[str] = ()) -> None:
    _check(_run([*where, _need("ip"), "-batch", "-"], "\n".join(lines) + "\n"))


def _nft(script: str) -> None:
    _check(_run([_need("nft"), "-f", "-"], script))


def _listed(command: str, kind: str) -> list[dict[str, Any]]:
    """Return what nft lists of a kind."""
    done = _check(_run([_need("nft"), "-j", *command.split()]))
    return [one[kind] for one in orjson.loads(done.stdout)["nftables"] if kind in one]


def _need(name: str) -> str:
    found = tool(name)
    if found is None:
        package = {"ip": "iproute2", "nft": "nftables"}[name]
        raise SwitchError(f"{name} is not installed (Debian: apt install {package})")
    return found


def _run(command: Sequence[str], words: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, input=words, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SwitchError(f"{command[0]}: {error}") from error


def _check(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        program = next(part for part in done.args if Path(part).name in {"ip", "nft"})
        raise SwitchError(f"{Path(program).name}: {lines[0] if lines else f'it ended with {done.returncode}'}")
    return done


def attempt() -> str:
    """Cut one of two members off and heal that; return why that does not work here, "" when it does."""
    switch = Switch(("a", "b"))
    try:
        switch.open()
        if not switch.reaches("a"):
            return "members in namespaces do not reach one another"
        switch.cut([("a", "b")])
        if switch.reaches("a") or not switch.dropped():
            return "nft drops nothing between namespaces"
        switch.heal()
        return "" if switch.reaches("a") else "what was cut does not heal"
    except SwitchError as error:
        return str(error)
    finally:
        switch.close()


if __name__ == "__main__":
    WHY = attempt()
    if WHY:
        sys.stderr.write(WHY + os.linesep)
    sys.exit(bool(WHY))
