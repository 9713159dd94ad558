"""Histories of POP runs that never were: a good one, of which tests spoil one thing each."""

from chaos.apps.faults import LEADER_KILLED
from chaos.apps.history import AppEvent, AppHistory, Ending, Send
from chaos.apps.plan import CLOSED, KILLED, AppPlan, PlannedAct, PlannedFault, Slot
from chaos.apps.producing import ACKED, UNKNOWN
from chaos.pop.consuming import ACK, NAK, PUT_OFF
from chaos.pop.history import PopHistory, PopHold, Settlement
from chaos.pop.plan import CONSUMER, GROUP, PRODUCER, TOPIC, PopPlan

SLOTS = (Slot("send", PRODUCER), Slot("pop0", CONSUMER, GROUP), Slot("pop1", CONSUMER, GROUP))
PLAN = PopPlan(
    AppPlan(1, 10.0, SLOTS, (PlannedAct(2.0, "pop0", KILLED),), (PlannedFault(4.0, "kill-leader", 1.0, 0),)),
    messages=6,
    invisible_s=(1.0, 1.0),
)
INVISIBLE_MS = 1000
# The clock that never goes back shows 0 when the time of day is this.
EPOCH_MS = 1_700_000_000_000


def hold(one: str, app: str, at_ms: int, *, offset: int, again: int = 0) -> PopHold:
    """Make one that was given so long after the epoch."""
    pop_ms = EPOCH_MS + at_ms
    return PopHold(one, app, pop_ms + 3, pop_ms, INVISIBLE_MS, f"{min(again, 1) * 2} broker-a 0 {offset}", again)


def asked(what: str, at_ms: int, told_ms: int | None, *, ok: bool = True, delay_ms: int = 0) -> Settlement:
    """Make a settlement; one of a put-off that went well has the handle that it should have."""
    told = None if told_ms is None else told_ms / 1000
    moved = what != ACK and ok and told_ms is not None
    return Settlement(
        what, at_ms / 1000, EPOCH_MS + at_ms, delay_ms, told, None if told_ms is None else EPOCH_MS + told_ms,
        ok and told_ms is not None, EPOCH_MS + at_ms + 1 if moved else 0, delay_ms if moved else 0,
    )  # fmt: skip


def good() -> PopHistory:
    """Everything took place, and everything holds: m2 and m3 were with who was killed; m4 and m5 are put off."""
    history = PopHistory(PLAN, AppHistory(PLAN.apps), leads=[(-10.0, 1), (6.0, 2)])
    processes = history.processes
    processes.sends += [Send("send-1", TOPIC, (f"m{number}",), ACKED) for number in range(1, 7)]
    processes.sends.append(Send("send-1", TOPIC, ("m7",), UNKNOWN))
    first = [
        hold(f"m{number}", "pop0-1" if number in {2, 3} else "pop1-1", 100, offset=number) for number in range(1, 7)
    ]
    second = [hold(f"m{number}", "pop0-2", 1200, offset=number, again=1) for number in (2, 3)]
    # The first one was killed before it heard; the second one's was asked for, and it is not known what came of it.
    first[2].settlements.append(asked(ACK, 300, None))
    for one in (first[0], *second):
        at_ms = one.pop_ms - EPOCH_MS
        one.settlements.append(asked(ACK, at_ms + 50, at_ms + 60))
    # Put off for two seconds, and acknowledged when the first time would be over; then given back, and taken again.
    first[3].settlements += [asked(PUT_OFF, 200, 210, delay_ms=2000), asked(ACK, 1700, 1710)]
    first[4].settlements.append(asked(NAK, 200, 210, delay_ms=300))
    third = hold("m5", "pop0-2", 520, offset=9, again=1)
    third.settlements.append(asked(ACK, 530, 540))
    # An answer that came too late: it may come again, and did.
    first[5].settlements.append(asked(ACK, 1080, 1120))
    fourth = hold("m6", "pop0-2", 1130, offset=10, again=1)
    fourth.settlements.append(asked(ACK, 1140, 1150))
    history.holds += [*first, *second, third, fourth]
    processes.events += [
        AppEvent(2.0, KILLED, "pop0-1", CONSUMER, GROUP, gone=2.1),
        AppEvent(2.2, "ended", "pop0-1", CONSUMER, GROUP, code=-9, ordered=KILLED),
        AppEvent(4.0, LEADER_KILLED),
        *(AppEvent(9.0, "ended", app, CONSUMER, GROUP, ordered=CLOSED) for app in ("pop0-2", "pop1-1", "send-1")),
    ]
    processes.endings += [Ending(app, 9.0, started=True) for app in ("pop0-2", "pop1-1", "send-1")]
    history.clocks += [(number / 10, EPOCH_MS + number * 100) for number in range(100)]
    return history


def of(history: PopHistory, one: str) -> list[PopHold]:
    """Return the holds of a message."""
    return [hold for hold in history.holds if hold.id == one]
