"""The role of a broker in a classic mode, as clients are to see it: a master, a slave, or a master that was deposed.

A master leads from its start on, without asking anybody: there is no election. What keeps a second one apart is the
epoch (rule R15): the stateVersion of the topic table, kept in its file, one more at each promotion. A master that
learns of a higher one is fenced: it goes on serving what it has, and takes nothing more. A promoted one that has still
to tell the master before it holds back until it has tried.
"""

import logging
from collections.abc import Callable

from broker.role import MASTER_ID
from broker.settings.decision import Fence

_log = logging.getLogger(__name__)


class ClassicRole:
    """See BrokerRole; changed in the loop only."""

    def __init__(self, broker_id: int, epoch: int = 0) -> None:
        """`broker_id` is 0 for a master; `epoch` is the stateVersion that its tables were kept with."""
        self.broker_id = broker_id
        self.term = epoch
        self.leads = broker_id == MASTER_ID
        self.leader_address: str | None = None
        self.fenced: str | None = None
        """Why a master takes nothing, None when it does."""
        self.suspect: Fence | None = None
        """Who is said to have been promoted in its place, and has not said so: it is fenced until that one answers."""
        self.holds: str | None = None
        """What a master does before it takes anything, None once that is done."""
        self._subscribers: list[Callable[[], None]] = []

    def lease(self) -> bool:
        """Tell whether it leads: no group could lead elsewhere without fencing it."""
        return self.leads

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after each change; see BrokerRole."""
        self._subscribers.append(callback)

    def fence(self, why: str, suspect: Fence | None = None) -> None:
        """Lead no more, until unfence(); a slave does not lead anyway. `why` is told to clients."""
        self.suspect = suspect
        if self.fenced == why:
            return
        _log.warning("this broker takes nothing more: %s", why)
        self.fenced = why
        self.leads = False
        self._tell()

    def unfence(self) -> None:
        """Lead again, as before fence()."""
        if self.fenced is None:
            return
        _log.warning("this broker takes messages again; it did not because: %s", self.fenced)
        self.fenced = self.suspect = None
        self.leads = self.broker_id == MASTER_ID and self.holds is None
        self._tell()

    def hold(self, why: str | None) -> None:
        """Take nothing yet, for a reason that is told to clients; None: begin."""
        self.holds = why
        self.leads = self.broker_id == MASTER_ID and why is None and self.fenced is None
        self._tell()

    def set_leader(self, address: str | None) -> None:
        """Note where the master takes clients' requests, "host:port"; None when none is known, or this is it."""
        if address != self.leader_address:
            self.leader_address = address
            self._tell()

    def set_epoch(self, epoch: int) -> None:
        """Take over the stateVersion of the tables; a lower one changes nothing: it never falls (R15)."""
        if epoch > self.term:
            self.term = epoch
            self._tell()

    def _tell(self) -> None:
        for callback in self._subscribers:
            try:
                callback()
            except Exception:
                _log.exception("a change of role could not be followed everywhere")
