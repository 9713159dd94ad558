"""Binds a RaftNode to the event loop: its timer, its links, and the news from the flusher's thread.

driver = RaftDriver(settings, log, votes, hello=…, events=…, secrets=…)
await driver.start(host, port)      # listens, dials the others, begins to tick
driver.node.propose(…)
await driver.hand_over(timeout)     # when this process stops in good order
await driver.close()
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from raft.core.node import RaftNode
from raft.core.votefile import VoteFile
from raft.network.link import LinkLimits
from raft.network.transport import Address, CopyDesk, PeerEvents, PeerTransport, Tls
from raft.protocol.config import GroupConfig
from raft.protocol.hello import Hello, judge
from raft.protocol.messages import RaftMessage
from raft.protocol.settings import RaftSettings
from raft.protocol.types import Log, Role
from runtime.clock import BootClock, Clock

_log = logging.getLogger(__name__)

# How often a leader that wants to hand over looks for a follower that can take it.
_HAND_OVER_SECONDS = 0.05
_LIMITS = LinkLimits()


class DrivenLog(Log, Protocol):
    """A log whose flusher is a thread of its own; store.raftlog.entrylog.EntryLog is one.

    Its owner calls durable_in_thread() and wake_in_thread() of the driver.
    """

    def settle(self, position: int) -> int:
        """Take that over, in the loop; return the durable index."""
        ...


class GroupEvents(Protocol):
    """What the owner is told: raft.core.node.NodeEvents without what the driver does itself. In the loop."""

    def on_commit(self, index: int) -> None:
        """Apply everything up to `index`."""
        ...

    def on_role(self, role: Role, term: int) -> None:
        """Take note that role or term changed."""
        ...

    def on_leader(self, member_id: str | None) -> None:
        """Take note that another leader is followed, or none is known."""
        ...

    def on_config(self, config: GroupConfig) -> None:
        """Take note that another CONFIG entry is in force, committed or not."""
        ...

    def on_fatal(self, error: BaseException) -> None:
        """Stop the process: this member can do nothing any more. Called once."""
        ...

    def reset_wanted(self, member_id: str) -> None:
        """Close the store and copy the log from this leader (raft.snapshot.client)."""
        ...


class RaftDriver:
    """One member of a group in this process. Must be made inside the running loop."""

    node_class = RaftNode

    def __init__(
        self,
        settings: RaftSettings,
        log: DrivenLog,
        votes: VoteFile,
        *,
        hello: Callable[[], Hello],
        events: GroupEvents,
        secrets: tuple[bytes, ...],
        tls: Tls | None = None,
        copies: CopyDesk | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        limits: LinkLimits = _LIMITS,
        on_linked: Callable[[str, Hello], None] | None = None,
    ) -> None:
        """`secrets` are required when a member is not on loopback; `copies` serves members that must be reset.

        `on_linked` is told each time that there is a link to a member, and what that one says of itself.
        """
        self._settings = settings
        self._log = log
        self._owner = events
        self._hello = hello
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pusher: asyncio.TimerHandle | None = None
        self._running = False
        self._durable_position = 0
        self._durable_told = False
        self._role_changed = asyncio.Event()
        self._config: GroupConfig | None = None
        self._met: dict[str, Address] = {}
        self._meetings: dict[str, asyncio.Future[Hello]] = {}
        # Of the members that are linked.
        self._hellos: dict[str, Hello] = {}
        self._on_linked = on_linked
        links = PeerEvents(self._received, self._connected, self._disconnected, self._judge)
        self.transport = PeerTransport(
            settings.self_id,
            settings.group,
            hello=hello,
            events=links,
            secrets=secrets,
            limits=limits,
            tls=tls,
            copies=copies,
            rng=rng,
            dial_from=settings.dial_from,
        )
        self.node = self.node_class(
            settings,
            log,
            votes,
            hello=hello,
            clock=clock or BootClock(),
            rng=rng or random.Random(),
            send=self.transport.send,
            events=self,
        )

    async def start(self, host: str, port: int) -> None:
        """Listen at this address and take part. OSError when it cannot be had; SecretRequired."""
        self._config = self.node.config
        self._introduce()
        await self.transport.start(host, port)
        self._running = True
        self.node.start()

    async def hand_over(self, timeout: float) -> bool:
        """Try to give the lead away until `timeout` seconds are over; return whether this member leads no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._leads_others():
                    self._role_changed.clear()
                    # A refusal is of this moment: nobody is close enough yet, or it is under way already.
                    self.node.transfer()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_HAND_OVER_SECONDS):
                            await self._role_changed.wait()
        return self.node.role is not Role.LEADER

    async def close(self) -> None:
        """Take part no more: open proposals are UNKNOWN, all links end. The log is its owner's to close."""
        self._running = False
        self.node.stop()
        for handle in (self._soon, self._timer, self._pusher):
            if handle is not None:
                handle.cancel()
        for meeting in self._meetings.values():
            meeting.cancel()
        await self.transport.close()

    async def meet(self, member_id: str, address: Address, timeout: float) -> Hello:
        """Link to somebody who is no member yet, and return the hello that tells its store id; TimeoutError.

        It is known until it becomes a member, or for the life of this process.
        """
        known = self._hellos.get(member_id)
        if known is not None and self._peers().get(member_id) == address:
            return known
        self._met[member_id] = address
        meeting = self._meetings.setdefault(member_id, self._loop.create_future())
        self._introduce()
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(meeting)
        finally:
            if self._meetings.get(member_id) is meeting:
                del self._meetings[member_id]

    def status(self) -> dict[str, Any]:
        """Return the node's state, and the members that messages can be sent to."""
        transport = self.transport
        by_reason = dict(transport.refused)
        told = {"links_refused": sum(by_reason.values()), "links_refused_by": by_reason}
        return self.node.status() | {"linked": sorted(transport.connected), **told}

    # ---- NodeEvents

    def on_commit(self, index: int) -> None:
        """Hand on."""
        self._owner.on_commit(index)

    def on_role(self, role: Role, term: int) -> None:
        """Hand on, and wake who waits for it."""
        self._role_changed.set()
        self._owner.on_role(role, term)

    def on_leader(self, member_id: str | None) -> None:
        """Hand on."""
        self._owner.on_leader(member_id)

    def on_config(self, config: GroupConfig) -> None:
        """Link to the members that it names."""
        self._config = config
        self._introduce()
        self._owner.on_config(config)

    def on_fatal(self, error: BaseException) -> None:
        """Hand on; nothing ticks any more."""
        self._running = False
        self._owner.on_fatal(error)

    def reset_wanted(self, member_id: str) -> None:
        """Hand on."""
        self._owner.reset_wanted(member_id)

    def wake(self) -> None:
        """Tick once this turn of the loop is over, however often this is called in it."""
        if self._soon is None:
            self._soon = self._loop.call_soon(self._tick)

    def push_in(self, seconds: float) -> None:
        """Have the node push after so long."""
        self._pusher = self._loop.call_later(seconds, self.node.push)

    # ---- time and disk

    def _tick(self) -> None:
        self._soon = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._running:
            return
        wait = self.node.tick()
        # The tick may have ended the node, or have asked for another one at once.
        if self._running and self._soon is None:
            self._timer = self._loop.call_later(wait, self._tick)

    def durable_in_thread(self, position: int) -> None:
        """Take note, in the flusher's thread, of the position up to which the log is on the disk.

        Carried into the loop. The order of these lines is what makes sure that no news gets lost.
        """
        if not self._running:
            return
        self._durable_position = position
        if not self._durable_told:
            self._durable_told = True
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._durable)

    def wake_in_thread(self) -> None:
        """Take note, in any thread, that repair has something to do: step() or finish()."""
        if not self._running:
            return
        with suppress(RuntimeError):  # as above
            self._loop.call_soon_threadsafe(self.wake)

    def _durable(self) -> None:
        self._durable_told = False
        self.durable(self._durable_position)

    def durable(self, position: int) -> None:
        """Take note of the position up to which the log is on the disk."""
        if not self._running:
            return
        try:
            index = self._log.settle(position)
        except Exception as error:
            self.node.end(error)
        else:
            self.node.durable(index)

    # ---- links

    def _introduce(self) -> None:
        self.transport.set_peers(self._peers())

    def _peers(self) -> dict[str, Address]:
        """Return whom to link to: those of dLegerPeers too, who may have to be added yet (R1)."""
        peers: dict[str, Address] = {peer.id: (peer.host, peer.port) for peer in self._settings.peers}
        peers |= self._met
        if self._config is not None:
            peers |= {member.id: _address(member.address) for member in self._config.members}
        return peers

    def _judge(self, other: Hello) -> str | None:
        return judge(self._hello(), other, self.node.config)

    def _connected(self, peer: str, hello: Hello) -> None:
        meeting = self._meetings.get(peer)
        if meeting is not None and not meeting.done():
            meeting.set_result(hello)
        self._hellos[peer] = hello
        if self._on_linked is not None:
            self._on_linked(peer, hello)
        self.node.connected(peer, hello)

    def _disconnected(self, peer: str) -> None:
        self._hellos.pop(peer, None)
        self.node.disconnected(peer)

    def _received(self, peer: str, message: RaftMessage) -> None:
        self.node.receive(peer, message)

    def _leads_others(self) -> bool:
        config = self.node.config
        return self.node.role is Role.LEADER and config is not None and len(config.voters) > 1


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
