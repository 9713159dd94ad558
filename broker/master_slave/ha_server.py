"""The master's HA port: slaves connect, say how much of the log they have, and are pushed the rest as it is written.

Anybody can connect to a port. So a connection counts for nothing before its first report was accepted, what cannot be
true ends it without moving anything, and there are limits on how many there may be of either kind.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from broker.master_slave.ha_link import HaLink, PushedLog
from broker.master_slave.ha_secret import MasterProof, master_proof
from broker.settings.pair_keys import ClassicKeys
from remoting.bodies.registry import HAConnectionInfo
from runtime.listening import stop_accepting
from runtime.refusals import DoorRefusals
from runtime.tls import ServerTls
from runtime.tls_door import TlsDoor, listen, refused_at

_log = logging.getLogger(__name__)

# Slaves of one master; one more is refused. Each costs what it has not been sent yet (ha_link), and the network as
# much as the sends themselves.
SLAVES_MAX = 16
# Connections that have not reported yet (RocketMQ's slave takes up to 5 s for it); beyond it the oldest one is ended.
STRANGERS_MAX = 16
# Connections that the kernel may hold before they are accepted.
_BACKLOG = 64
# Looks at all connections per shortest interval (heartbeat, silence), and the shortest time between two.
_LOOKS = 4
_LOOK_SECONDS_MIN = 0.01
# How long a closing port waits for slaves to take what was written to them.
CLOSE_SECONDS = 1.0
# One complaint of a host in so many seconds is logged, and how many were not is told with the next one. Beyond so many
# hosts all are forgotten, and may complain anew.
COMPLAINT_SECONDS = 10.0
_COMPLAINTS_MAX = 256
# What is said of a connection that is closed, and what that counts as; anything else is what it reported.
_REASONS = {
    "had not reported": "unreported",
    "is one too many": "connections",
    "does not": "proof",
    "wants proof": "proof",
    "was silent": "silent",
    "needs the log": "gone",
    "cannot be sent": "unread",
    "is not sent what stands damaged": "damaged",
}
# Seconds that a deposed master gives its slaves for the last that it took, and between two looks at them. Less than the
# one who told it waits for its answer.
SETTLE_SECONDS = 1.0
SETTLE_POLL_SECONDS = 0.005


class HaServer:
    """Pushes one log to slaves. Made and used in the loop; `port` is the one bound once started."""

    def __init__(
        self,
        log: PushedLog,
        keys: Callable[[], ClassicKeys],
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        on_ack: Callable[[], None] = lambda: None,
    ) -> None:
        """`keys` gives the configuration that holds now; `threads` read what is not in memory.

        `on_ack` is called in the loop after any report, and after a slave has come or gone: ask acked_by() and
        in_sync().
        """
        self.log = log
        self.keys = keys
        self.loop = loop
        self.threads = threads
        self.pushing = True
        self.port = 0
        # Connections that ended before damaged bytes, and where those of the last one stand.
        self.stopped = 0
        self.stopped_at: int | None = None
        # Connections that were closed, by reason.
        self._closed_for = dict.fromkeys([*_REASONS.values(), "report"], 0)
        self._on_ack = on_ack
        self._secrets: tuple[bytes, ...] = ()
        # In the order in which they came: all connections, and those of them that have reported.
        self._links: dict[HaLink, None] = {}
        self._slaves: list[HaLink] = []
        self._server: asyncio.Server | TlsDoor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._refusals = DoorRefusals("HA")
        self._empty = asyncio.Event()
        # host → (when its last complaint was logged, how many were not since).
        self._complaints: dict[str, tuple[float, int]] = {}

    async def start(self, host: str, port: int, secrets: tuple[bytes, ...] = (), tls: ServerTls | None = None) -> None:
        """Listen; port 0 takes a free one. OSError when the address cannot be had.

        With `secrets` only those are slaves who know one of them (ha_secret.py); with `tls` it takes TLS too, or alone.
        """
        self._secrets = secrets
        self._server = await listen("HA", lambda: HaLink(self), host, port, backlog=_BACKLOG, tls=tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._look()
        _log.info("slaves are served on %s:%d", host, self.port)

    async def close(self) -> None:
        """Accept no more, let slaves take what was written to them for a moment, end all connections."""
        server, self._server = self._server, None
        if server is None:
            return
        await stop_accepting(server)
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._links):
            if link.in_use:
                link.close()
            else:
                link.abort()
        if not await self._emptied():
            for link in list(self._links):
                link.abort()
            await self._emptied()
        await server.wait_closed()

    # -- what the mode uses

    def advanced(self) -> None:
        """Push what was written just now to all that have everything else; called once per write. Never raises."""
        for link in self._slaves:
            if link.at_end:
                try:
                    link.push()
                except Exception:
                    _log.exception("slave %s cannot be sent the log", link.address)
                    link.abort()

    def acked_by(self, slaves: int) -> int:
        """Return the position up to which at least so many slaves in sync hold the log; 0 when fewer are in sync."""
        if slaves <= 0:
            return self.log.log_range()[1]
        least = self._in_sync_from()
        held = [
            link.acked
            for link in self._slaves
            if link.acked >= least and not link.closed and (slaves == 1 or link.counts_as_another)
        ]
        if len(held) < slaves:
            return 0
        if slaves == 1:
            return max(held)
        held.sort()
        return held[-slaves]

    def in_sync(self) -> int:
        """Return how many slaves are connected and at most haMaxGapNotInSync behind."""
        least = self._in_sync_from()
        return sum([link.acked >= least and not link.closed for link in self._slaves])

    @property
    def refused(self) -> Mapping[str, int]:
        """How many connections were closed, by reason."""
        return {**self._closed_for, **refused_at(self._server)}

    def hosts(self) -> set[str]:
        """Return where the slaves are that the log is pushed to."""
        return {link.host for link in self._slaves if not link.closed}

    def connected(self) -> set[str]:
        """Return where slaves are, and those who are about to report."""
        return {link.host for link in self._links if link.proof is None and not link.closed}

    async def have_all(self, pending_bytes: Callable[[], int]) -> None:
        """Return when nothing is pending and the slaves that are there have the whole log, or after SETTLE_SECONDS."""
        until = self.loop.time() + SETTLE_SECONDS
        while self.loop.time() < until:
            # First of all: what was taken in this turn of the loop gets its place at its end.
            await asyncio.sleep(SETTLE_POLL_SECONDS)
            end = self.log.log_range()[1]
            if not pending_bytes() and all(slave["acked"] >= end for slave in self.status()):
                return

    def status(self) -> list[dict[str, Any]]:
        """Return what is known of each slave, for people."""
        written = self.log.log_range()[1]
        least = self._in_sync_from()
        return [
            {
                "address": link.address,
                "sent": link.sent,
                "acked": link.acked,
                "behind": written - link.acked,
                "bytesPerSecond": round(link.bytes_per_second),
                "inSync": link.acked >= least,
            }
            for link in self._slaves
        ]

    def connections(self) -> list[HAConnectionInfo]:
        """Return the same, RocketMQ's way (907)."""
        return [
            HAConnectionInfo(
                addr=slave["address"],
                slaveAckOffset=slave["acked"],
                diff=slave["behind"],
                inSync=slave["inSync"],
                transferredByteInSecond=slave["bytesPerSecond"],
                transferFromWhere=slave["sent"],
            )
            for slave in self.status()
        ]

    def stop_pushing(self) -> None:
        """Send nothing of the log any more; connections stay, with signs of life."""
        self.pushing = False
        for link in self._slaves:
            link.at_end = False

    def resume(self) -> None:
        """Push again."""
        self.pushing = True
        for link in list(self._slaves):
            link.push()

    # -- what links use

    def proof(self) -> MasterProof | None:
        """Return what a new connection must do first; see LinkOwner."""
        return master_proof(self._secrets)

    def opened(self, link: HaLink) -> None:
        """Count a connection in; see LinkOwner."""
        self._links[link] = None
        if self._closing:
            link.abort()
            return
        strangers = [other for other in self._links if not other.in_use and not other.closed]
        if len(strangers) > STRANGERS_MAX:
            strangers[0].fail(f"had not reported, and {STRANGERS_MAX} later ones have not either")

    def admit(self, link: HaLink) -> bool:
        """Take a connection for a slave's; see LinkOwner."""
        if len(self._slaves) >= SLAVES_MAX:
            self.complain(link, f"is one too many: {SLAVES_MAX} slaves are served")
            return False
        for other in self._slaves:
            if other.host == link.host:
                other.doubted_at = other.sent
        self._slaves.append(link)
        return True

    def reported(self) -> None:
        """Tell who waits for slaves."""
        self._on_ack()

    def lost(self, link: HaLink) -> None:
        """Count an ended connection out; see LinkOwner."""
        self._links.pop(link, None)
        if link in self._slaves:
            self._slaves.remove(link)
            self.reported()
        if not self._links:
            self._empty.set()

    def damaged(self, _link: HaLink, position: int) -> None:
        """Count a connection that ends before damaged bytes; see LinkOwner."""
        self.stopped += 1
        self.stopped_at = position

    def complain(self, link: HaLink, what: str) -> None:
        """Log why a connection is closed, at most once in a while per host."""
        self._closed_for[next((reason for said, reason in _REASONS.items() if what.startswith(said)), "report")] += 1
        if not link.in_use:
            self._refusals.tell(link.host, "link", f"it {what}")
        now = self.loop.time()
        complaint = self._complaints.get(link.host)
        if complaint is not None and now - complaint[0] < COMPLAINT_SECONDS:
            self._complaints[link.host] = (complaint[0], complaint[1] + 1)
            return
        if len(self._complaints) >= _COMPLAINTS_MAX:
            self._complaints.clear()
        self._complaints[link.host] = (now, 0)
        more = f" ({complaint[1]} more were closed like it)" if complaint is not None and complaint[1] else ""
        _log.warning("HA port: %s closed, it %s%s", link.address, what, more)

    # -- inside

    def _in_sync_from(self) -> int:
        """Return the least position that a slave in sync has reported."""
        return self.log.log_range()[1] - self.keys().haMaxGapNotInSync

    def _look(self) -> None:
        """Look at all connections: signs of life, silence, speed."""
        keys = self.keys()
        now = self.loop.time()
        for link in list(self._links):
            if not link.closed:
                link.look(now, keys)
        shortest = min(keys.haSendHeartbeatInterval, keys.haHousekeepingInterval) / 1000
        self._timer = self.loop.call_later(max(shortest / _LOOKS, _LOOK_SECONDS_MIN), self._look)

    async def _emptied(self) -> bool:
        self._empty.clear()
        if self._links:
            try:
                await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS)
            except TimeoutError:
                return False
        return True
