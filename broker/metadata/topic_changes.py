"""Which topics changed since somebody last asked: so that a change of one need not be told as a change of all."""

from collections.abc import Iterable
from typing import NamedTuple

# Names that are remembered; of more changes it is only known that there were many.
NAMES_MAX = 4096


class ChangedTopics(NamedTuple):
    """What changed."""

    names: frozenset[str]
    """Made or altered; some may be gone again."""
    gone: bool
    """Some were deleted."""
    all: bool
    """Every topic may have changed, or what is told of them did."""


class TopicChanges:
    """Gathers changes until they are taken."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._gone = False
        self._all = False

    def put(self, names: Iterable[str]) -> None:
        """Note topics that were made or altered."""
        self._names.update(names)
        if len(self._names) > NAMES_MAX:
            self.everything()

    def deleted(self) -> None:
        """Note that topics are gone."""
        self._gone = True

    def everything(self) -> None:
        """Note that any topic may be another one."""
        self._all = True
        self._names.clear()

    def take(self) -> ChangedTopics:
        """Return what was noted since the last time."""
        taken = ChangedTopics(frozenset(self._names), self._gone, self._all)
        self._names.clear()
        self._gone = self._all = False
        return taken
