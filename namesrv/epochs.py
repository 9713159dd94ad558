"""What a NameServer remembers of broker names whose brokers are gone: the highest epoch, and who belonged to them.

A promotion in a pair, and an election in a group, raise the stateVersion that a master registers with (its epoch). The
route goes when the promoted master dies; the epoch stays here for as long as this process lives, so that a deposed one
that comes back meanwhile is refused brokerId 0 and learns why. It is memory, as all of a NameServer's: a restart
forgets it, and so does an administrator (`raftmq cluster forget`), for a name that is to begin again with new stores.

An address that had the highest epoch itself may come with a lower one: that is the same broker with another store,
and who wiped it knows. Others are refused all the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Brokers of one name that are remembered; nobody has so many slaves. Beyond it the one heard longest ago goes.
MEMBERS_MAX = 64


@dataclass(slots=True)
class RememberedEpoch:
    """What is known of a broker name; version 0: nothing was ever promoted."""

    version: int = 0
    """The highest stateVersion with which brokerId 0 was claimed."""
    holder: str = ""
    """The address that claimed it so last."""
    members: dict[int, str] = field(default_factory=dict)
    """brokerId → the address that had it last, in the order of being heard."""


_NOTHING = RememberedEpoch()


class Epochs:
    """A bounded table: beyond `names_max` the name without a broker that was heard of longest ago is forgotten."""

    def __init__(self, names_max: int, registered: Callable[[str], bool]) -> None:
        """Keep at most `names_max` names, and each as long as a broker of it is `registered`."""
        self._names_max = names_max
        self._registered = registered
        # In the order of being heard.
        self._names: dict[str, RememberedEpoch] = {}

    def __len__(self) -> int:
        return len(self._names)

    def of(self, name: str) -> RememberedEpoch:
        """Return what is known of a name."""
        return self._names.get(name, _NOTHING)

    def refuses(self, name: str, version: int, address: str) -> bool:
        """Tell whether brokerId 0 is not for a broker of this stateVersion at this address."""
        known = self.of(name)
        return version < known.version and address != known.holder

    def heard(self, name: str, broker_id: int, address: str) -> None:
        """Note a broker that was registered."""
        known = self._names.pop(name, None)
        if known is None:
            known = RememberedEpoch()
            self._make_room()
        self._names[name] = known
        # A broker has one id, the last one.
        for other in [i for i, at in known.members.items() if at == address or i == broker_id]:
            del known.members[other]
        known.members[broker_id] = address
        if len(known.members) > MEMBERS_MAX:
            del known.members[next(iter(known.members))]

    def leads(self, name: str, version: int, address: str) -> None:
        """Note that a broker was registered as the master; heard() comes first."""
        known = self._names[name]
        if version >= known.version:
            known.version, known.holder = version, address

    def members(self, name: str) -> Mapping[int, str]:
        """Return who had which brokerId of a name last, registered or not."""
        return self.of(name).members

    def forget(self, name: str) -> bool:
        """Forget a name, for an administrator; False when nothing was known of it."""
        return self._names.pop(name, None) is not None

    def _make_room(self) -> None:
        for _ in range(len(self._names)):
            if len(self._names) < self._names_max:
                return
            oldest = next(iter(self._names))
            known = self._names.pop(oldest)
            if self._registered(oldest):
                # To the end, so that it is not in the way of the next search.
                self._names[oldest] = known
