"""What every way into a node has in common."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from raft.core.library_clock import clock


class Guarded(Protocol):
    """What has ways in, and an end."""

    ended: bool
    monotonic: Callable[[], float]

    def settle(self) -> None:
        """Tell the owner what changed."""
        ...

    def end(self, error: BaseException | None) -> None:
        """Do nothing any more."""
        ...


N = TypeVar("N", bound=Guarded)
P = ParamSpec("P")
R = TypeVar("R")


def entry(method: Callable[Concatenate[N, P], R]) -> Callable[Concatenate[N, P], R | None]:
    """Make a method a way in: the library sees this node's clock, a failure ends the node, and ended it does nothing.

    A result of None says that the node has ended.
    """

    def guarded(self: N, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self.ended:
            return None
        # What `entered` does, without its frames: a send comes in six times.
        before, clock.read = clock.read, self.monotonic
        try:
            result = method(self, *args, **kwargs)
            self.settle()
        except Exception as error:
            self.end(error)
            return None
        finally:
            clock.read = before
        return result

    guarded.__doc__ = method.__doc__
    return guarded
