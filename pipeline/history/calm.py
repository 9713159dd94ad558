"""Times without faults: what is promised outside of faults is judged there, and nowhere else."""

from collections.abc import Iterable

from pipeline.history.rows import UNKNOWN, Fault

_NEVER = 2**63 - 1


class Calm:
    """The times outside of faults; each fault counts until the cluster has had its time to recover from it."""

    def __init__(self, faults: Iterable[Fault], recovery_s: float) -> None:
        wait = int(recovery_s * 1e9)
        self._broken = [(one.began, _NEVER if one.ended == UNKNOWN else one.ended + wait) for one in faults]

    def all_of(self, began: int, ended: int) -> bool:
        """Return whether nothing was broken from one time to another, monotonic ns."""
        return all(ended < first or began > last for first, last in self._broken)
