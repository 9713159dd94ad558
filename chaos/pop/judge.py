"""What became of messages that were popped: none lost, none again after its acknowledgement, none in two hands.

Each message is another id, sent at most once, so that what comes twice was given twice. Whose a message is, and until
when, stands in its handle, by the clock of the broker that gave it. All processes share one machine's clock:
ALLOWANCE_MS is for the milliseconds that are cut off, and for the time that a broker goes on by after a step.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from chaos.apps.findings import judged
from chaos.apps.producing import ACKED, FAILED
from chaos.pop.consuming import ACK
from chaos.pop.history import PopHistory, PopHold, Settlement
from pipeline.history.results import Finding

ALLOWANCE_MS = 50
# A put-off that is answered later, or so near to a new term, may have been done twice (the first time unheard): the
# handle that its consumer was told may be one of nothing then, as in RocketMQ.
PUT_OFF_S, TERM_NEAR_S = 1.0, 3.0

Witness = dict[str, Any]


class Holds:
    """All holds of a run by message, in the order in which brokers gave them, and for how long each was alone."""

    def __init__(self, history: PopHistory) -> None:
        self._terms = sorted(at for at, _term in history.leads)
        found: dict[str, list[PopHold]] = defaultdict(list)
        for hold in history.holds:
            found[hold.id].append(hold)
        for holds in found.values():
            holds.sort(key=lambda hold: (hold.pop_ms, hold.got_ms))
        self.by_id: Mapping[str, list[PopHold]] = found
        self.count = len(history.holds)

    def ends_ms(self, hold: PopHold) -> int:
        """Return the first moment at which somebody else may be given what is held."""
        return self._walk(hold)[0]

    def firm_ms(self, hold: PopHold) -> int | None:
        """Return when its holder was told that it is acknowledged, well within its time; None: it was not."""
        return self._walk(hold)[1]

    def _walk(self, hold: PopHold) -> tuple[int, int | None]:
        """Go through what was asked of it in order."""
        end, certain = hold.pop_ms + hold.invisible_ms, True
        for one in hold.settlements:
            in_time = one.ok and one.told_ms is not None and one.told_ms <= end - ALLOWANCE_MS
            if one.what == ACK:
                if in_time and certain:
                    return end, one.told_ms
            elif in_time and self._is_certain(one):
                end = one.pop_ms + one.invisible_ms
            else:
                # It may have taken effect, at the earliest when it was asked for.
                certain = False
                end = min(end, one.asked_ms + one.delay_ms)
        return end, None

    def _is_certain(self, one: Settlement) -> bool:
        """Tell whether a put-off was surely done once."""
        assert one.told is not None, "it was answered"
        place = bisect_left(self._terms, one.asked - TERM_NEAR_S)
        near = place < len(self._terms) and self._terms[place] <= one.told + TERM_NEAR_S
        return one.told - one.asked <= PUT_OFF_S and not near


def lost(history: PopHistory, holds: Holds) -> Finding:
    """Check that every message whose send was acknowledged came at least once."""
    sent = _sent(history, ACKED)
    bad = [{"id": one} for one in sorted(sent - holds.by_id.keys())]
    return judged("I-lost", "sent, acknowledged, and popped by nobody", len(sent), bad)


def unsettled(holds: Holds) -> Finding:
    """Check that whoever had a message last acknowledged it.

    One that was asked for and not answered is none that is missing: it did not come again, so that it was stored.
    """
    bad = [_shown(those[-1]) | {"times": len(those)} for those in holds.by_id.values() if not those[-1].tried_to_ack()]
    return judged("I-open", "taken, not acknowledged, and never given again", len(holds.by_id), bad)


def again(holds: Holds) -> Finding:
    """Check that what was acknowledged well within its invisible time did not come again."""
    bad: list[Witness] = []
    firm = 0
    for those in holds.by_id.values():
        for place, hold in enumerate(those):
            told_ms = holds.firm_ms(hold)
            if told_ms is None:
                continue
            firm += 1
            bad += [
                _shown(hold) | {"acknowledged_ms": told_ms, "again": _shown(later)}
                for later in those[place + 1 :]
                if later.pop_ms >= told_ms
            ]
    return judged("I-again", "came again after its acknowledgement was answered in time", firm, bad)


def together(holds: Holds) -> Finding:
    """Check that nobody was given a message while it was invisible for somebody."""
    bad: list[Witness] = []
    for those in holds.by_id.values():
        for before, after in pairwise(those):
            early_ms = holds.ends_ms(before) - after.pop_ms
            if early_ms > ALLOWANCE_MS:
                bad.append(_shown(before) | {"too": _shown(after), "early_ms": early_ms})
    return judged("I-together", "given to somebody while invisible for somebody", holds.count, bad)


def records(holds: Holds) -> Finding:
    """Check that no stored record was taken twice: what comes again is stored anew, and counted once more."""
    bad: list[Witness] = []
    for those in holds.by_id.values():
        seen: dict[str, PopHold] = {}
        for hold in those:
            known = seen.setdefault(hold.record, hold)
            if known is not hold:
                bad.append(_shown(known) | {"twice": _shown(hold)})
    return judged("I-record", "one stored record was taken twice", holds.count, bad)


def ghosts(history: PopHistory, holds: Holds) -> Finding:
    """Check that what came was sent, and its producer was not told that it is surely not stored."""
    sent = {one for send in history.sends for one in send.ids}
    # Of a producer that was ended while it sent nothing is known.
    bad = [{"id": one} for one in sorted((_sent(history, FAILED) & holds.by_id.keys()) | (holds.by_id.keys() - sent))]
    return judged("I-ghost", "not stored, and popped", len(sent), bad)


def comings(history: PopHistory, holds: Holds, killed: Iterable[str]) -> dict[str, Any]:
    """Return how often messages came again, by what their last holder had done, and how late that was."""
    dead = set(killed)
    why: dict[str, int] = defaultdict(int)
    late_ms: list[int] = []
    for those in holds.by_id.values():
        for before, after in pairwise(those):
            last = before.settlements[-1] if before.settlements else None
            if last is None or last.told_ms is None:
                why["holder killed" if before.app in dead else "not acknowledged"] += 1
            elif last.what != ACK:
                why["given back or put off"] += 1
            else:
                why["acknowledged late" if last.ok else "acknowledgement failed"] += 1
            late_ms.append(max(0, after.pop_ms - holds.ends_ms(before)))
    late_ms.sort()
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    parts = {name: late_ms[min(len(late_ms) - 1, int(len(late_ms) * part))] for name, part in at.items() if late_ms}
    return {"again": dict(sorted(why.items())), "late_ms": parts, "popped": len(history.holds)}


def _sent(history: PopHistory, fate: str) -> set[str]:
    return {one for send in history.sends if send.fate == fate for one in send.ids}


def _shown(hold: PopHold) -> Witness:
    return {
        "id": hold.id,
        "app": hold.app,
        "pop_ms": hold.pop_ms,
        "invisible_ms": hold.invisible_ms,
        "record": hold.record,
        "asked": [(one.what, one.asked_ms, one.told_ms, one.ok) for one in hold.settlements],
    }
