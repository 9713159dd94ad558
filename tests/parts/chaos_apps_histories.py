"""Histories of applications that never ran: a good one, of which tests spoil one thing each."""

from collections.abc import Sequence
from dataclasses import replace

from chaos.apps.faults import LEADER_KILLED
from chaos.apps.history import AppCall, AppDelivery, AppEvent, AppHistory, Commit, Ending, Send
from chaos.apps.names import BROADCAST, GROUPS, LITE, ORDERED, ORDERLY, PLAIN, QUEUES, WORKERS, message_id
from chaos.apps.plan import CANCELLED, CLOSED, KILLED, STARTED, AppPlan, PlannedAct, PlannedFault, Slot
from chaos.apps.producing import ACKED, ONE_WAY

SLOTS = (
    Slot("send", "send"),
    Slot("oneway", "oneway"),
    Slot("order", "in-order"),
    Slot("push0", "push", WORKERS),
    Slot("push1", "push", WORKERS),
    Slot("cast0", "broadcast", BROADCAST),
    Slot("orderly0", "orderly", ORDERLY),
    Slot("lite0", "lite", LITE),
)
ACTS = tuple(PlannedAct(float(number), "push0", act) for number, act in enumerate((CLOSED, CANCELLED, KILLED)))
PLAN = AppPlan(1, 2.0, SLOTS, ACTS, (PlannedFault(1.0, "kill-leader", 1.0, 0),))
MESSAGES = 40


def queue_of(topic: str, number: int) -> str:
    return f"{topic}/broker-a/{number % QUEUES}"


def delivery(
    app: str, reader: str, at: float, queue: str, offset: int, one: str, *, ok: bool = True, again: int = 0
) -> AppDelivery:
    return AppDelivery(app, reader, at, at + 0.001, ok, queue, (offset,), (one,), (again,))


def event(at: float, kind: str, app: str, **more: object) -> AppEvent:
    slot = next(slot for slot in SLOTS if slot.name == app.rpartition("-")[0])
    return replace(AppEvent(at, kind, app, slot.kind, slot.reader), **more)  # type: ignore[arg-type] # as the caller gives


def good() -> AppHistory:
    """Everything took place, and everything holds. Process 1 of each slot consumes all from second 10 on."""
    history = AppHistory(PLAN)
    for number in range(MESSAGES):
        for topic, app, stream in ((PLAIN, "send-1", "send-1"), (ORDERED, "order-1", f"order-1.{number % QUEUES}")):
            count = number // QUEUES + 1 if topic == ORDERED else number
            one, offset = message_id(stream, count), number // QUEUES
            history.sends.append(Send(app, topic, (one,), ACKED, 10 + (number - 1) * 0.1))
            history.calls.append(AppCall(app, "send", number * 0.1, 0.01, 3.0))
            for slot in SLOTS:
                if slot.group and GROUPS[slot.group] == topic and slot.name != "push1":
                    app_of = f"{slot.name}-1"
                    history.deliveries.append(
                        delivery(app_of, slot.reader, 10 + number * 0.1, queue_of(topic, number), offset, one)
                    )
    history.sends.append(Send("oneway-1", PLAIN, ("oneway-1:1",), ONE_WAY))
    end = MESSAGES // QUEUES
    queues = {queue_of(PLAIN, number): end for number in range(QUEUES)}
    history.commits.append(Commit("lite0-1", LITE, 9.0, 9.5, True, dict.fromkeys(queues, 0)))
    history.commits.append(Commit("lite0-1", LITE, 15.0, 15.1, True, queues))
    # Its next life goes on behind that.
    history.deliveries.append(delivery("lite0-2", LITE, 21.0, queue_of(PLAIN, 0), end, "send-1:1000"))
    history.events += [event(0.0, STARTED, f"{slot.name}-1") for slot in SLOTS]
    history.events += [AppEvent(5.0, LEADER_KILLED), event(20.0, STARTED, "lite0-2")]
    for at, act, app in ((6.0, CLOSED, "push1-1"), (7.0, CANCELLED, "push1-2"), (8.0, KILLED, "push1-3")):
        killed = act == KILLED
        history.events.append(event(at, act, app, gone=at + 0.01 if killed else 0.0))
        history.events.append(event(at + 0.1, "ended", app, code=-9 if killed else 0, ordered=act))
        if not killed:
            history.endings.append(Ending(app, at + 0.05, True))
    history.deliveries.sort(key=lambda one: one.at)
    return history


def of(history: AppHistory, reader: str) -> list[AppDelivery]:
    return [one for one in history.deliveries if one.reader == reader]


def drop(history: AppHistory, gone: Sequence[AppDelivery]) -> None:
    history.deliveries = [one for one in history.deliveries if one not in gone]
