"""What a slave's way behind its master looks like from outside: states, events, the master as seen last."""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from broker.master_slave.ha_compare import LogVerdict, MasterLog
from broker.master_slave.ha_receive import ReceivedLog, Receiver
from broker.master_slave.ha_source import OwnBytes
from broker.settings.restart import RestartAction
from runtime.clock import Clock


class State(Enum):
    """What the slave is doing; the values are for people."""

    NO_MASTER = "no master known"
    CONNECTING = "connecting"
    COMPARING = "comparing"
    FOLLOWING = "following"
    WAITING = "waiting for a person"
    REFUSED = "refusing this master"
    CUTTING = "cutting its log"
    ANEW = "copying anew"


class Held(NamedTuple):
    """What a person must decide about."""

    verdict: LogVerdict
    master: MasterLog
    """That it was found with."""
    words: str

    def status(self) -> dict[str, Any]:
        """Return it for tools; positions in bytes."""
        verdict = self.verdict
        return {"kind": verdict.kind.value, "position": verdict.position, "bytes": verdict.lost, "why": self.words}


def held_back(verdict: LogVerdict, master: MasterLog, address: str) -> Held:
    """Return a verdict with the words for the person who must agree to it."""
    words = (
        f"{verdict.why}. Nothing was changed. To follow {address} and take {verdict.lost} bytes from "
        f"{verdict.position} on out of this log (they are kept in the folder 'cut'): raftmq cluster accept-master; "
        "to go on with this log instead: raftmq cluster promote"
    )
    return Held(verdict, master, words)


class NotWaiting(Exception):
    """Nobody's decision is waited for; the text says what the slave does instead."""


class Followed(NamedTuple):
    """A master that is being followed: on one connection, with logs that were found to be the same."""

    address: str
    """Of its broker port, "host:port"."""
    incarnation: str
    """See MasterLog; empty of a RocketMQ master."""
    position: int
    """Up to here the logs were compared; what stands behind it came by this connection."""


class HaEvents(Protocol):
    """Whom the client tells; called in the loop."""

    def master_changed(self, alive: bool) -> None:
        """Learn that the master has come or gone, as far as this slave can tell."""
        ...

    def must_restart(self, action: RestartAction) -> None:
        """Close the broker, do the action, start it again; the client does nothing meanwhile."""
        ...

    def judged(self, verdict: LogVerdict) -> None:
        """Learn how a comparison of the logs ended."""
        ...

    def follows(self) -> None:
        """Learn that the master's log comes from now on; see HaClient.followed."""
        ...


class SlaveStore(OwnBytes, Protocol):
    """What is needed of a MessageStore that was opened as a slave's.

    Whoever opened it calls HaClient.flushed_in_thread(): StoreEvents.flushed.
    """

    @property
    def slave(self) -> ReceivedLog | None:
        """The log as a slave writes it."""
        ...

    def log_range(self) -> tuple[int, int]:
        """Return begin and end of the log."""
        ...


class Watch:
    """What is known of the master: what it said last, whether it lives, what it sent."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, on_change: Callable[[bool], None]) -> None:
        """`on_change` is told whether it lives, by tell()."""
        self._loop = loop
        self._clock = clock
        self._on_change = on_change
        self._told = False
        self.link: Receiver | None = None
        # Whether the master has answered since that connection was made.
        self._met = False
        self.facts: MasterLog | None = None
        # Loop times; 0 for never.
        self._facts_at = 0.0
        self._heard_at = 0.0
        self._frames_at = 0.0
        self._reported = 0

    def connected(self, link: Receiver | None) -> None:
        """Note the connection that is in use, or that none is any more."""
        if link is None and self.link is not None and self._met:
            self._heard_at = max(self._heard_at, self.link.heard_at)
            self._frames_at = self.link.frames_at or self._frames_at
            self._reported = self.link.reported
        self.link, self._met = link, False

    def said(self, facts: MasterLog) -> None:
        """Note what the master just said."""
        self.facts, self._met = facts, True
        self._heard_at = self._facts_at = self._loop.time()

    def gone(self) -> None:
        """Note that it is certainly not there."""
        self._heard_at = 0.0

    def alive(self, idle: float) -> bool:
        """Tell whether it is there: met and connected, or heard of within `idle` seconds and not known to be gone."""
        if self.link is not None and self._met:
            return True
        return bool(self._heard_at) and self._loop.time() - self._heard_at < idle

    def tell(self, idle: float) -> None:
        """Call back when that has changed."""
        if (alive := self.alive(idle)) != self._told:
            self._told = alive
            self._on_change(alive)

    def status(self, written: int) -> dict[str, Any]:
        """Return it for people: times in ms since the epoch, None for never; positions in bytes."""
        facts, link = self.facts, self.link
        end = facts.end if facts else None
        frames_at = link.frames_at if link is not None and link.frames_at else self._frames_at
        return {
            "role": facts.role if facts else None,
            "epoch": facts.epoch if facts else None,
            "max": end,
            "seenAt": self._wall_ms(self._facts_at),
            "behind": max(0, end - written) if end is not None else None,
            "reported": link.reported if link is not None else self._reported,
            "lastFrameAt": self._wall_ms(frames_at),
        }

    def _wall_ms(self, at: float) -> int | None:
        return self._clock.now_ms() - int((self._loop.time() - at) * 1000) if at else None
