"""What a recorder writes, and what becomes of it."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.load import recorder as module
from chaos.load.recorder import OPS, RING_RECORDS, TOO_MANY, Recorder, Texts, compact
from chaos.runs.run import beat
from pipeline.history.folder import HISTORY, RunFolder
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Look, Op, Read
from remoting.errors import ConnectError, InvokeTimeout


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    ticks = itertools.count(1000)
    made = Recorder(tmp_path, clock=lambda: next(ticks))
    yield made
    made.close()


def test_operations_end_as_they_did(recorder: Recorder, tmp_path: Path) -> None:
    sent = recorder.invoke(Act.SEND, 3, topic="t", queue=1, writer=9, counter=2, digest=77)
    done = recorder.ok(sent, offset=5, position=640)
    refused = recorder.ended(recorder.invoke(Act.COMMIT, 3, group="g", value=4), ConnectError("down"))
    late = recorder.ended(recorder.invoke(Act.SEND, 3), InvokeTimeout("late"))
    recorder.close()
    compact(tmp_path)
    ops = RunFolder(tmp_path).ops()
    assert ops == [done, refused, late]
    assert [op.kind for op in ops] == [Kind.OK, Kind.FAIL, Kind.INFO]
    assert (ops[0].offset, ops[0].position, ops[0].topic) == (5, 640, "t")
    assert ops[0].invoked < ops[0].completed < ops[1].invoked
    assert (ops[1].error, ops[2].error) == ("ConnectError", "InvokeTimeout")
    assert recorder.acknowledged == 1


def test_an_operation_without_an_end_may_have_happened(recorder: Recorder, tmp_path: Path) -> None:
    recorder.invoke(Act.SEND, 0, topic="t")
    recorder.close()
    compact(tmp_path)
    (op,) = RunFolder(tmp_path).ops()
    assert (op.kind, op.completed) == (Kind.INFO, UNKNOWN)


def test_more_than_a_ring_is_kept_in_order(recorder: Recorder, tmp_path: Path) -> None:
    count = RING_RECORDS + 10
    for number in range(count):
        recorder.ok(recorder.invoke(Act.SEND, number, topic=f"t{number % 7}"))
    recorder.close()
    compact(tmp_path)
    ops = RunFolder(tmp_path).ops()
    assert [op.op for op in ops] == list(range(count))
    assert all(op.topic == f"t{op.op % 7}" and op.process == op.op for op in ops)


def test_reads_faults_and_looks_are_kept(recorder: Recorder, tmp_path: Path) -> None:
    poll = recorder.invoke(Act.POLL, 0)
    read = Read(poll.op, "t", 0, 4, 99, 1, 2, 0, 55)
    recorder.reads([read])
    fault = Fault(recorder.fault_number(), "kill-leader", "", "", 5)
    recorder.fault(fault)
    healed = fault._replace(target="n0", ended=9, effect="pid 1")
    recorder.fault(healed)
    look = Look(7, "n0", "leader", 1, "n0", 3, 3, 3, 300)
    recorder.look(look)
    recorder.close()
    compact(tmp_path)
    run = RunFolder(tmp_path)
    assert (run.reads(), run.faults(), run.looks()) == ([read], [healed], [look])
    assert {path.suffix for path in (tmp_path / HISTORY).iterdir()} == {".parquet"}


async def test_the_turns_of_the_loop_are_kept(recorder: Recorder, tmp_path: Path) -> None:
    beating = asyncio.create_task(beat(recorder, 0.0))
    for _ in range(5):
        await asyncio.sleep(0)
    beating.cancel()
    recorder.close()
    compact(tmp_path)
    moments = [one.at for one in RunFolder(tmp_path).beats()]
    assert len(moments) >= 3
    assert moments == sorted(moments)
    assert {path.suffix for path in (tmp_path / HISTORY).iterdir()} == {".parquet"}
    (tmp_path / HISTORY / "beats.parquet").unlink()
    assert RunFolder(tmp_path).beats() == [], "of a run of an older harness"


def test_a_recorder_that_died_leaves_whole_records(recorder: Recorder, tmp_path: Path) -> None:
    done = recorder.ok(recorder.invoke(Act.SEND, 0, topic="t"))
    recorder.ok(recorder.invoke(Act.SEND, 0, topic="u"))
    recorder.close()
    ring = tmp_path / HISTORY / "ops.ring"
    # The last two records: one is cut, one was not written.
    ring.write_bytes(ring.read_bytes()[: -OPS.packer.size - 1])
    compact(tmp_path)
    assert RunFolder(tmp_path).ops() == [done]


def test_records_whose_texts_were_not_written_are_left_out(recorder: Recorder, tmp_path: Path) -> None:
    done = recorder.ok(recorder.invoke(Act.SEND, 0, topic="t"))
    recorder.ok(recorder.invoke(Act.SEND, 0, topic="later"))
    recorder.close()
    texts = tmp_path / HISTORY / "texts.jsonl"
    texts.write_bytes(b"".join(texts.read_bytes().splitlines(keepends=True)[:-1]))
    compact(tmp_path)
    assert RunFolder(tmp_path).ops() == [done]


def test_a_history_of_nothing_is_a_history(recorder: Recorder, tmp_path: Path) -> None:
    recorder.close()
    compact(tmp_path)
    assert RunFolder(tmp_path).ops() == []


def test_a_full_disk_is_told_to_whoever_records(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    (tmp_path / HISTORY / "texts.jsonl").mkdir()
    recorder.invoke(Act.SEND, 0, topic="t")
    with pytest.raises(OSError, match="texts"):
        recorder.close()
    assert not any(thread.name == "recorder" for thread in threading.enumerate())


def test_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXTS_MAX", 4)
    texts = Texts()
    numbers = [texts.number(text) for text in ("a", "b", "c", "d", "a", "")]
    assert numbers == [1, 2, 3, 3, 1, 0]
    assert texts.new == ["", "a", "b", TOO_MANY]


def test_processes_and_operations_are_numbered_once(recorder: Recorder) -> None:
    assert [recorder.process() for _ in range(3)] == [0, 1, 2]
    assert [recorder.invoke(Act.SEND, 0).op for _ in range(3)] == [0, 1, 2]


def test_a_group_waits_while_a_queue_holds_more_and_nothing_new_of_it_came(recorder: Recorder) -> None:
    def send(offset: int, queue: int = 0, **fields: int) -> None:
        recorder.ok(recorder.invoke(Act.SEND, 0, topic="t", queue=queue, **fields), offset=offset)

    def poll(offset: int, value: int, queue: int = 0) -> int:
        return recorder.ok(
            recorder.invoke(Act.POLL, 1, topic="t", queue=queue, group="g", offset=offset), value=value
        ).completed

    assert not recorder.waits("g", "t", 0), "there is nothing"
    send(4)
    send(9, delay_until=1)
    assert recorder.waits("g", "t", 0), "it never had anything"
    assert not recorder.waits("g", "other", 0)
    poll(0, 3)
    at = poll(3, 5)
    assert not recorder.waits("g", "t", recorder.now()), "it has had all; what is delayed stands elsewhere"
    send(5)
    assert not recorder.waits("g", "t", at - 1), "something came since"
    assert recorder.waits("g", "t", at)
    poll(0, 4)
    assert recorder.waits("g", "t", at), "it has had that before"
    poll(5, 6)
    assert not recorder.waits("g", "t", recorder.now())
    send(0, queue=1)
    assert recorder.waits("g", "t", recorder.now()), "of another queue"


def test_rings_hold_every_field() -> None:
    assert OPS.dtype.itemsize == OPS.packer.size
    assert OPS.dtype.names == Op._fields
