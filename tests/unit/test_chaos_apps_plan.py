"""Plans come from their seed; histories are read from what killed processes have left."""

from collections import Counter
from pathlib import Path

import orjson

from chaos.apps.driver import APPS, EVENTS, PLAN, Missing
from chaos.apps.faults import FAULTS, KINDS
from chaos.apps.history import read_history
from chaos.apps.journal import AppJournal, Tail
from chaos.apps.names import LITE, PLAIN, WORKERS
from chaos.apps.plan import ACTS, CANCELLED, KILLED, SLOTS, STARTED, AppPlan, make_plan


def test_a_seed_is_a_plan() -> None:
    assert make_plan(7, 120.0) == make_plan(7, 120.0) != make_plan(8, 120.0)
    plan = make_plan(7, 120.0)
    assert AppPlan.from_dict(orjson.loads(orjson.dumps(plan.as_dict()))) == plan


def test_everything_happens_once_before_anything_happens_again() -> None:
    plan = make_plan(3, 600.0)
    faults = Counter(one.fault for one in plan.faults)
    assert set(faults) == set(FAULTS) == set(KINDS)
    assert max(faults.values()) - min(faults.values()) <= 1
    acts = Counter((one.slot, one.act) for one in plan.acts)
    assert max(acts.values()) - min(acts.values()) <= 1
    blocking = {slot.name for slot in SLOTS if slot.blocking}
    assert set(acts) == {
        (slot.name, act) for slot in SLOTS for act in ACTS if act != CANCELLED or slot.name not in blocking
    }
    assert any(one.twice for one in plan.acts)
    times = [*(act.at for act in plan.acts), *(fault.at for fault in plan.faults)]
    assert min(times) >= 3.0
    assert max(times) <= 597.0


def test_what_a_killed_process_was_doing_is_read_as_not_done(tmp_path: Path) -> None:
    (tmp_path / PLAN).write_bytes(orjson.dumps(make_plan(1, 30.0).as_dict()))
    events = AppJournal(tmp_path / EVENTS)
    who = {"app": "lite0-1", "slot": "lite0", "kind": "lite", "reader": LITE}
    events.note(STARTED, **who, pid=1)
    events.note("fault", kind=KINDS["kill-leader"], effect="pid 2 ended with -9")
    events.note(KILLED, **who, gone=2.0)
    events.close()
    path = tmp_path / APPS / "lite0-1.jsonl"
    journal = AppJournal(path)
    journal.note("consumes", group=LITE, topic=PLAIN)
    for number in (1, 2):
        journal.note("got", n=number, queue="q", offsets=[number], ids=[f"send-1:{number}"], again=[0])
    journal.note("done", n=1, ok=True)
    journal.note("committing", positions={"q": 3})
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"e":"done","at":3')
    history = read_history(tmp_path)
    assert [(one.ids, one.ok, one.until is None) for one in history.deliveries] == [
        (("send-1:1",), True, False),
        (("send-1:2",), False, True),
    ]
    assert [(one.ok, one.until, one.positions) for one in history.commits] == [(False, None, {"q": 3})]
    assert [(one.kind, one.app) for one in history.events] == [
        (STARTED, "lite0-1"),
        (KINDS["kill-leader"], ""),
        (KILLED, "lite0-1"),
    ]
    assert not history.over


def test_a_growing_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(path)
    assert list(tail.lines()) == []
    path.write_bytes(b'{"e":"one"}\n{"e":"tw')
    assert list(tail.lines()) == [{"e": "one"}]
    with path.open("ab") as file:
        file.write(b'o"}\n')
    assert list(tail.lines()) == [{"e": "two"}]


def test_what_was_refused_is_still_missing(tmp_path: Path) -> None:
    missing = Missing(tmp_path, {WORKERS: PLAIN})
    sender, worker = AppJournal(tmp_path / "send-1.jsonl"), AppJournal(tmp_path / "push0-1.jsonl")
    sender.note("sent", ids=["a:1", "a:2"], topic=PLAIN, fate="acked")
    worker.note("consumes", group=WORKERS, topic=PLAIN)
    assert (missing.look(), missing.acknowledged) == ({WORKERS: 2}, 2)
    for number, ok in ((1, False), (2, True)):
        worker.note("got", n=number, queue="q", offsets=[number], ids=[f"a:{number}"], again=[0])
        worker.note("done", n=number, ok=ok)
    assert missing.look() == {WORKERS: 1}
    worker.note("got", n=3, queue="q", offsets=[1], ids=["a:1"], again=[1])
    worker.note("done", n=3, ok=True)
    assert missing.look() == {WORKERS: 0}
    for journal in (sender, worker):
        journal.close()
