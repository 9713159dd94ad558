"""What the processes of a POP run write down is read back, half done settlements of the killed included."""

from pathlib import Path

from chaos.apps.journal import AppJournal
from chaos.pop.consuming import ACK, NAK, PUT_OFF
from chaos.pop.driver import APPS, EVENTS, Outstanding
from chaos.pop.history import Settlement, read_pop_history
from chaos.pop.plan import make_pop_plan

FIRST = "5 1000 3000 0 0 broker-a 2 5"
SECOND = "5 1000 3000 0 0 broker-a 2 6"
PUT_OFF_HANDLE = "6 2000 4000 0 0 broker-a 2 6"


def settle(journal: AppJournal, number: int, what: str, *, told: bool, ok: bool = True, handle: str = "") -> None:
    journal.note("settling", n=number, what=what, id=f"m{number}", at=1.0, ms=1500, delay_ms=40 if what != ACK else 0)
    if told:
        journal.note(
            "settled", n=number, what=what, ok=ok, at=1.25, ms=1750, handle=handle, began=1.0, took=0.25, deadline=3.0,
            stalled=0.0, error="" if ok else "no",
        )  # fmt: skip


def write(folder: Path) -> None:
    """Write what a producer, a consumer that was killed and the run itself would."""
    make_pop_plan(1, 1000).save(folder)
    with_folder = folder / APPS
    sender = AppJournal(with_folder / "send-1.jsonl")
    for number, fate in ((1, "acked"), (2, "acked"), (3, "unknown"), (4, "acked")):
        sender.note(
            "sent", ids=[f"m{number}"], topic="t", fate=fate, began=0.0, took=0.1, deadline=3.0, stalled=0.0, error=""
        )
    consumer = AppJournal(with_folder / "pop0-1.jsonl")
    consumer.note("popped", n=1, at=1.0, ms=1010, ids=["m1", "m2"], handles=[FIRST, SECOND], again=[0, 0])
    settle(consumer, 1, ACK, told=False)
    settle(consumer, 2, PUT_OFF, told=True, handle=PUT_OFF_HANDLE)
    settle(consumer, 2, NAK, told=True, ok=False)
    with (with_folder / "pop0-1.jsonl").open("ab") as file:
        file.write(b'{"e":"settling","n":2')
    run = AppJournal(folder / EVENTS)
    run.note("started", app="pop0-1", slot="pop0", kind="pop", reader="pop_workers", pid=1)
    run.note("term", at=3.5, term=2)
    run.note("planned", fault="kill-leader")
    run.note("fault", at=4.0, kind="leader killed", effect="it ended")
    run.note("drained", missing=0)
    run.note("over")


def test_all_that_was_written_is_read_back(tmp_path: Path) -> None:
    write(tmp_path)
    history = read_pop_history(tmp_path)
    first, second = history.holds
    assert (first.id, first.app, first.pop_ms, first.invisible_ms, first.record) == (
        "m1", "pop0-1", 1000, 3000, "0 broker-a 2 5"
    )  # fmt: skip
    assert first.settlements == [Settlement(ACK, 1.0, 1500)]
    assert second.settlements == [
        Settlement(PUT_OFF, 1.0, 1500, 40, 1.25, 1750, True, 2000, 4000),
        Settlement(NAK, 1.0, 1500, 40, 1.25, 1750, False),
    ]
    assert [send.fate for send in history.sends] == ["acked", "acked", "unknown", "acked"]
    assert [(call.what, call.error) for call in history.processes.calls if call.what != "send"] == [
        ("put-off", ""), ("nak", "no")
    ]  # fmt: skip
    assert history.leads == [(3.5, 2)]
    assert [event.kind for event in history.processes.events] == ["started", "leader killed"]
    assert history.over


def test_what_is_outstanding_is_known_while_it_is_written(tmp_path: Path) -> None:
    write(tmp_path)
    outstanding = Outstanding(tmp_path / APPS)
    # m1 was tried, of m3 its producer was not told that it is there; m2 and m4 are to come.
    assert outstanding.look() == 2
    assert (outstanding.acknowledged, outstanding.popped, outstanding.all_sent) == (3, 2, False)
    settle(AppJournal(tmp_path / APPS / "pop1-1.jsonl"), 4, ACK, told=False)
    AppJournal(tmp_path / APPS / "send-1.jsonl").note("all-sent")
    assert (outstanding.look(), outstanding.all_sent) == (1, True)
