"""Bounds what is sent and not answered yet: a producer's own share, and that of all producers of one instance.

All producers of an instance share its connections, so what they may have on their way together is bounded too, below
what one connection holds back before it refuses (`ClientLimits.output_bytes_max`).
"""

import asyncio
from collections import deque

from client.options import count_of

# Sends without an answer yet, and the bytes of their bodies, of one producer and of all producers of an instance.
# Beyond it `send` waits and `send_async` fails at once with SendBacklogFull: what a slow broker makes pile up is small.
IN_FLIGHT_MAX = 16_384
IN_FLIGHT_BYTES_MAX = 64 * 1024 * 1024
# Who waits for room is woken so many at a time: each looks again, and most would find it taken.
WAKE_AT_A_TIME = 64
BOUND_MAX = 2**63 - 1


class Flight:
    """Counts sends and bytes on their way against bounds, and lets others wait for room in order."""

    def __init__(self, count_max: int, bytes_max: int, shared: "Flight | None" = None) -> None:
        """`shared`: a wider bound that what is counted here counts against as well."""
        self.count_max = count_of("in_flight_max", count_max, BOUND_MAX)
        self.bytes_max = count_of("in_flight_bytes_max", bytes_max, BOUND_MAX)
        self.count = 0
        self.bytes = 0
        self._shared = shared
        # Bounded by the tasks that wait.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waking = False

    @property
    def full(self) -> bool:
        """Whether one more send has to wait; one that fits no bound at all goes alone."""
        return self._own_full or (self._shared is not None and self._shared.full)

    @property
    def _own_full(self) -> bool:
        return self.count >= self.count_max or self.bytes >= self.bytes_max

    def describe(self) -> str:
        """Return what is on its way and what may be, for an error text."""
        shared = self._shared
        if shared is not None and not self._own_full:
            return f"{shared.describe()}, of all producers of this instance"
        return (
            f"{self.count} sends with {self.bytes} bytes have no answer yet "
            f"({self.count_max} and {self.bytes_max} at most)"
        )

    def enter(self, size: int) -> None:
        """Count a send in."""
        self.count += 1
        self.bytes += size
        if self._shared is not None:
            self._shared.enter(size)

    def leave(self, size: int, count: int = 1) -> None:
        """Count a send out, or `count` of them with `size` bytes together, and wake who waits for its place."""
        self.count -= count
        self.bytes -= size
        if self._shared is not None:
            self._shared.leave(size, count)
        if self._waiting and not self._waking:
            self._wake()

    async def room(self) -> None:
        """Wait until there may be room; the caller looks again."""
        if self._own_full:
            await self._turn()
        elif self._shared is not None:
            await self._shared.room()

    def wake_all(self) -> None:
        """End all waiting: no room will come."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _wake(self) -> None:
        """Wake as many as there may be room for, and look again in the next turn.

        Who is woken need not take the place (it may have been cancelled, or its message refused), and nobody else
        would tell the next one then.
        """
        self._waking = False
        places = 0 if self._own_full else min(self.count_max - self.count, WAKE_AT_A_TIME)
        while self._waiting and places > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                places -= 1
                self._waking = True
        if self._waking:
            asyncio.get_running_loop().call_soon(self._wake)
