"""Proposals whose fate is open: each is told once what became of its entry."""

import logging

from raft.protocol.types import Fate, OnFate

_log = logging.getLogger(__name__)


class _Open:
    """An entry of ours; `place` is its index, 0 until that is known."""

    __slots__ = ("on_fate", "place", "term")

    def __init__(self, term: int, on_fate: OnFate) -> None:
        self.place, self.term, self.on_fate = 0, term, on_fate


class Proposals:
    """The table of them, in the order in which they were made."""

    def __init__(self) -> None:
        self._made = 0
        self.open: dict[int, _Open] = {}
        """Those whose fate nobody was told yet, in their order; for reading."""
        self._refused = ""

    def begin(self, term: int, on_fate: OnFate) -> int:
        """Note one that is about to be appended: if that fails midway, nobody knows what is on the disk."""
        self._made += 1
        self.open[self._made] = _Open(term, on_fate)
        return self._made

    def refused(self, key: int, why: str = "") -> None:
        """Forget one of which nothing was appended; the log says why, again only when it is something else."""
        del self.open[key]
        if why and why != self._refused:
            _log.warning("the log takes nothing: %s", why)
        self._refused = why

    def placed(self, key: int, index: int) -> None:
        """Note where it stands."""
        self._refused = ""
        self.open[key].place = index

    def settle(self, key: int, *, committed: bool) -> None:
        """Tell the fate of one, unless it was told already."""
        proposal = self.open.pop(key, None)
        if proposal is not None:
            _answer(proposal.on_fate, Fate.COMMITTED if committed else Fate.OVERWRITTEN)

    def has_older(self, term: int) -> bool:
        """Whether one of an earlier term is open."""
        return bool(self.open) and next(iter(self.open.values())).term < term

    def bury(self, applied: int, term: int) -> None:
        """Tell the fate of those of earlier terms that stand behind `applied`, a committed entry of this term.

        Terms never fall in a log, so they are in none that counts. The library would tell only when another entry is
        committed in their very place, and until somebody writes again there may be none.
        """
        for key, proposal in list(self.open.items()):
            if proposal.term < term and proposal.place > applied:
                self.settle(key, committed=False)

    def end(self) -> None:
        """Tell all that nobody knows."""
        open_, self.open = self.open, {}
        for proposal in open_.values():
            _answer(proposal.on_fate, Fate.UNKNOWN)


def _answer(on_fate: OnFate, fate: Fate) -> None:
    try:
        on_fate(fate)
    except Exception:
        # Whoever waits must not hold up the others, nor have an entry applied twice by the library.
        _log.exception("a proposal's owner failed to hear its fate %s", fate.name)
