"""enableSlaveActingMaster: a slave that grants queue locks while its group has no master.

NameServers of RocketMQ 5 (and ours, supportActingMaster=true) then name the slave with the lowest brokerId where
clients look for the master, for reading alone. Ordered consumers need one thing more from it: locks on their queues.
All slaves come to the same answer by asking the NameServers who belongs to the group; where none answers, none acts.
"""

import logging
from collections.abc import Callable

from broker.peers import Caller, members
from broker.queue_locks import TRUSTED_SECONDS
from broker.role import MASTER_ID
from broker.settings.config import LiveConfig
from runtime.clock import Clock

_log = logging.getLogger(__name__)

# Seconds between two looks at who belongs to the group.
LOOK_SECONDS = 1.0


class Acting:
    """Decides whether this slave acts."""

    def __init__(self, live: LiveConfig, client: Caller, clock: Clock, master_alive: Callable[[], bool]) -> None:
        self._live = live
        self._client = client
        self._clock = clock
        self._master_alive = master_alive
        self._lowest = False
        # When the master was last there, as far as is known; a lock that it granted is trusted for a while after that.
        self._alone_since = clock.monotonic()

    @property
    def acts(self) -> bool:
        """Whether locks are this slave's to grant, and nobody can still trust one that the master granted (R14)."""
        return self._lowest and self._clock.monotonic() - self._alone_since >= TRUSTED_SECONDS

    async def look(self) -> None:
        """Find out anew; called every LOOK_SECONDS."""
        if self._master_alive():
            self._alone_since = self._clock.monotonic()
            self._set(lowest=False)
            return
        if not self._live.broker.enableSlaveActingMaster:
            self._set(lowest=False)
            return
        known = (await members(self._live, self._client)).values()
        ids = {broker_id for table in known for broker_id in table}
        self._set(lowest=bool(ids) and MASTER_ID not in ids and min(ids) == self._live.broker.brokerId)

    def _set(self, *, lowest: bool) -> None:
        if lowest != self._lowest:
            self._lowest = lowest
            _log.warning("this slave %s the acting master", "is" if lowest else "is no longer")
