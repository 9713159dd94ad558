"""A popped message: read like any other, and acknowledged by itself."""

from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from client.consume.pophandle import PopHandle
from client.errors import ArgumentRefused, raises_client_errors
from client.options import milliseconds, optional_seconds
from remoting.message import MessageExt

# Seconds: for how long a message can be invisible, and a call may take.
INVISIBLE_S_MAX = 3 * 24 * 3600.0
WAIT_S_MAX = 24 * 3600.0


class Settler(Protocol):
    """What tells brokers of the fate of messages."""

    async def acknowledge(self, message: "PoppedMessage", seconds: float | None) -> None:
        """Have done with it within so many seconds (None: the consumer's own bound)."""
        ...

    async def change_invisible(self, message: "PoppedMessage", invisible_ms: int, seconds: float | None) -> None:
        """Have it come again so long from now."""
        ...


@raises_client_errors
@dataclass(slots=True, kw_only=True, eq=False)
class PoppedMessage(MessageExt):
    """A message that is this consumer's until its invisible time is over; then it comes again, to anybody.

    `origin` is the topic that was subscribed, `handle` what the broker knows it by. `expires_at` is when the time is
    over, by time.monotonic(). It may be settled from the loop of its consumer only.
    """

    origin: str
    handle: PopHandle
    expires_at: float
    settler: Settler = field(repr=False)
    acknowledged: bool = False

    async def ack(self, *, timeout: float | None = None) -> None:
        """Tell the broker that the message is done with; returns when that is safe. A second time does nothing.

        Tried again until `timeout` s are over (by default the consumer's `ack_timeout`), whoever leads the broker by
        then. Raises RequestFailed: `sent` tells whether it may have been acknowledged all the same; a later `ack` may
        be tried. A message whose invisible time was over before may come again nevertheless.
        """
        await self.settler.acknowledge(self, optional_seconds("timeout", timeout, 0.0, WAIT_S_MAX))

    async def nak(self, delay: float = 0.0, *, timeout: float | None = None) -> None:
        """Give the message back: it comes again `delay` s from now, to whichever member asks; see change_invisible."""
        await self.change_invisible(delay, timeout=timeout)

    async def change_invisible(self, seconds: float, *, timeout: float | None = None) -> None:
        """Have the message come again `seconds` from now, instead of when its time is over; it can be acked until then.

        Raises RequestFailed as `ack` does, ArgumentRefused when it was acknowledged already.
        """
        invisible_ms = milliseconds("invisible time", seconds, 0.0, INVISIBLE_S_MAX)
        within = optional_seconds("timeout", timeout, 0.0, WAIT_S_MAX)
        if self.acknowledged:
            raise ArgumentRefused(f"message {self.msg_id} is acknowledged: it does not come again")
        await self.settler.change_invisible(self, invisible_ms, within)


def popped(message: MessageExt, **more: Any) -> PoppedMessage:
    """Return a message with what makes it a popped one."""
    return PoppedMessage(**{each.name: getattr(message, each.name) for each in fields(MessageExt)}, **more)
