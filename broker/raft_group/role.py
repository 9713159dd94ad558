"""The role of a member of a Raft group, as clients are to see it: what the node says, once all of it is dispatched."""

import logging
from collections.abc import Callable, Sequence

from broker.role import MASTER_ID
from broker.settings.raft_keys import broker_id_of
from raft.protocol.group_node import GroupNode

_log = logging.getLogger(__name__)


class GroupRole:
    """See BrokerRole. `refresh` is called after everything that may have changed it."""

    def __init__(self, self_id: str) -> None:
        """`self_id` is this member's; it follows until a node is attached."""
        self._self_id = self_id
        self._own_broker_id = broker_id_of(self_id)
        self._node: GroupNode | None = None
        self._addresses: dict[str, str] = {}
        self._features: dict[str, Sequence[str]] = {}
        self._subscribers: list[Callable[[], None]] = []
        self.leads = False
        self.term = 0
        self.broker_id = self._own_broker_id
        self.leader_address: str | None = None

    def attach(self, node: GroupNode) -> None:
        """Take the node whose role this is."""
        self._node = node
        self.refresh()

    def lease(self) -> bool:
        """Tell whether no other member can lead at this very moment."""
        return self.leads and self._node is not None and self._node.has_lease()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after each change; see BrokerRole."""
        self._subscribers.append(callback)

    def introduced(self, member_id: str, broker_address: str, features: Sequence[str] = ()) -> None:
        """Note where another member takes clients' requests, and what it can do: it says so when it connects."""
        self._addresses[member_id] = broker_address
        self._features[member_id] = features
        self.refresh()

    def all_can(self, feature: str) -> bool:
        """Tell whether every member of the group has said that it can do something, when it connected last."""
        config = None if self._node is None else self._node.config
        if config is None:
            return False
        others = [member.id for member in config.members if member.id != self._self_id]
        return all(feature in self._features.get(other, ()) for other in others)

    def others(self) -> list[str]:
        """Return where the other members take clients' requests, as far as they have said so."""
        return [address for member_id, address in self._addresses.items() if member_id != self._self_id and address]

    def refresh(self) -> None:
        """Ask the node what it is, and tell the subscribers when that is news."""
        node = self._node
        if node is None:
            return
        leader = node.leader_id
        address = None if leader is None or leader == self._self_id else self._addresses.get(leader)
        now = (node.serving, node.term, MASTER_ID if node.serving else self._own_broker_id, address)
        if now == (self.leads, self.term, self.broker_id, self.leader_address):
            return
        self.leads, self.term, self.broker_id, self.leader_address = now
        for callback in self._subscribers:
            try:
                callback()
            except Exception:
                _log.exception("a change of role could not be followed everywhere")
