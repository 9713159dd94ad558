"""Makes sure that a slave's HA connection ends at the master that was asked, wherever haMasterAddress leads to.

The wire has no identity. So nothing that comes is taken before the master, asked at its broker address, tells of a
slave that has reported what this one just has; and while it follows, what came is compared with the master's digests.
"""

import asyncio
from collections.abc import Awaitable, Callable

from broker.master_slave.ha_compare import MasterLog
from broker.master_slave.ha_receive import ReceivedLog, Receiver
from broker.master_slave.ha_source import FactsMissing, HaSource

# Bytes at the end of what came that are compared with the master's while following.
RECHECK_BYTES = 64 * 1024
# Seconds that a master has to tell of this slave's report, and between two questions.
CONFIRM_SECONDS = 3.0
CONFIRM_PAUSE_SECONDS = 0.02

_MISLED = "does haMasterAddress lead to another broker?"


class FollowedCheck:
    """Asks; ends the connection when the answer is wrong."""

    def __init__(
        self, source: HaSource, look: Callable[[str], Awaitable[MasterLog]], log: ReceivedLog, file_bytes: int
    ) -> None:
        """`look` asks the broker at an address what it is; FactsMissing."""
        self._source = source
        self._look = look
        self._log = log
        self._file_bytes = file_bytes

    async def confirm(self, address: str, followed: MasterLog, link: Receiver) -> None:
        """Return when the master has this slave's report, or the connection is over. Raises FactsMissing.

        A RocketMQ master, which has no incarnation, is believed.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + CONFIRM_SECONDS
        while followed.incarnation and not link.lost.done():
            facts = await self._look(address)
            if (facts.incarnation, facts.role) != (followed.incarnation, followed.role):
                link.drop(f"another master answers at {address}")
            elif facts.slaves is None or link.reported in facts.slaves:
                return
            elif loop.time() >= until:
                link.drop(f"the master {address} has no slave whose log ends at {link.reported}: {_MISLED}")
            else:
                await asyncio.wait({link.lost}, timeout=CONFIRM_PAUSE_SECONDS)

    async def again(self, address: str, followed: MasterLog, link: Receiver, checked: int) -> int:
        """See whether who sends is still the one that was compared with; return up to where that was looked at."""
        written = self._log.written
        try:
            facts = await self._look(address)
            if (facts.incarnation, facts.role) != (followed.incarnation, followed.role):
                link.drop(f"another master answers at {address}")
            elif facts.end is not None and written > facts.end:
                link.distrust(f"this log ends at {written}, the master's at {facts.end}: {_MISLED}")
            elif facts.incarnation and written > checked:
                file = (written - 1) // self._file_bytes * self._file_bytes
                begin = max(file, checked, written - RECHECK_BYTES)
                if not (await self._source.logs(address, facts.incarnation).same([(begin, written)]))[0]:
                    link.distrust(f"{begin} to {written} of what came is not what the master has there: {_MISLED}")
        except FactsMissing:
            # Once more the next time; whether the master lives the connection tells.
            return checked
        return written
