"""Late binding: for two parts that tell each other, of which one must be made first.

    events = StoreEvents(flushed=late(lambda: self._mode.flushed_in_thread))

The one that is made first is handed the call of a part that is not there yet, and makes it when it is.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def late(find: Callable[[], Callable[P, R]]) -> Callable[P, R]:
    """Return a function that does what the one that `find` returns at the time of each call does."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return find()(*args, **kwargs)

    return call
