"""Plants that a cluster serves nobody for a while (A25), and that consumers are not served (A26); see plant.py."""

from dataclasses import replace
from typing import Any

from pipeline.history.rows import UNKNOWN, Act, Kind
from tests.planted.plant_edit import Edit, Planted
from tests.planted.plant_world import CONSUMED, GROUP, SCANNED

# An outage that no bound allows.
SILENCE_NS = 60 * 10**9
_S = 10**9
# A writer that a clean history does not have.
_STRANGER = 77


def plant_a25(edit: Edit) -> Planted:
    """Have everybody wait whom a broker does not answer."""
    # Before the fault, everything stands still for a while but senders who are refused.
    at = edit.history.faults[0].began - 2

    def later(time: int) -> int:
        return time + SILENCE_NS if time > at else time

    for op in list(edit.ops):
        due = op.delay_until if op.delay_until == UNKNOWN else later(op.delay_until)
        edit.change(op, invoked=later(op.invoked), completed=later(op.completed), delay_until=due)
    faults = [fault._replace(began=later(fault.began), ended=later(fault.ended)) for fault in edit.history.faults]
    looks = [look._replace(at=later(look.at)) for look in edit.history.looks]
    for counter in range(SILENCE_NS // _S):
        name: dict[str, Any] = {"topic": SCANNED, "queue": 0, "writer": _STRANGER, "counter": counter}
        edit.add(Act.SEND, at + 1 + counter * _S, Kind.FAIL, error="SYSTEM_BUSY", **name)
    edit.history = replace(edit.history, faults=faults, looks=looks)
    return edit.done("A25", why="without a fault")


def plant_a26(edit: Edit) -> Planted:
    """Have nobody ask for anything for a while, when something is due to a group whose consumers live."""
    came = {(read.writer, read.counter): read.op for read in reversed(edit.reads) if edit.ops[read.op].act == Act.POLL}
    waiting = [
        op
        for op in edit.history.acknowledged
        if op.topic == CONSUMED
        and op.completed < edit.history.faults[0].began
        and came.get((op.writer, op.counter), 0) > op.op + 1
    ]
    sent = edit.rng.choice(waiting)
    edge = edit.ops[sent.op + 1].invoked

    def later(time: int) -> int:
        return time + SILENCE_NS if time > edge else time

    # In the order in which they took effect, so that nothing else is turned round by it.
    for op in edit.ops[sent.op + 1 :]:
        began = op.invoked if op.act == Act.CONSUME else op.invoked + SILENCE_NS
        due = op.delay_until if op.delay_until == UNKNOWN else op.delay_until + SILENCE_NS
        edit.change(op, invoked=began, completed=op.completed + SILENCE_NS, delay_until=due)
    faults = [fault._replace(began=later(fault.began), ended=later(fault.ended)) for fault in edit.history.faults]
    looks = [look._replace(at=later(look.at)) for look in edit.history.looks]
    edit.history = replace(edit.history, faults=faults, looks=looks)
    return edit.done("A26", group=GROUP, queue=["", CONSUMED, sent.queue])
