"""R18: what comes from the disk is checked before anybody gets it."""

from pathlib import Path

import pytest

from remoting.properties import encode_properties
from remoting.record import decode_records
from runtime.clock import ManualClock
from store.config import QUEUE_ENTRY_BYTES
from store.errors import RecordDamaged
from store.integrity.verifier import TRUST_SECONDS, Asked, Bad, Verifier
from store.log.commitlog import CommitLog
from store.messagestore import MessageStore
from store.types import GetResult, GetStatus
from tests.parts.entry_tools import damage, lead, mend, open_node
from tests.parts.store_tools import HOST, fill, make_config, record


def open_store(folder: Path, clock: ManualClock | None = None) -> MessageStore:
    return MessageStore.open(make_config(folder), store_host=HOST, clock=clock or ManualClock(), stepped=True)


def position_of(store: MessageStore, offset: int, topic: str = "T") -> int:
    return store.queue_entries(topic, 0, offset, 1)[0].physical_offset


def offsets(result: GetResult) -> list[int]:
    return [message.queue_offset for buffer in result.buffers for message in decode_records(buffer)]


def rotten(folder: Path, hurt: int = 3, at: int = 90, count: int = 6) -> tuple[MessageStore, int]:
    """Return a store that was started again after byte `at` of one of its records has changed."""
    store = open_store(folder)
    for number in range(count):
        fill(store, 1, body=b"%04d" % number * 20, properties=encode_properties({"KEYS": f"k{number}"}))
        fill(store, 1, topic="U")
    position = position_of(store, hurt)
    store.close()
    damage(folder, position + at)
    return open_store(folder), position


# In the CRC, the body; the queue id, the queue offset (its last byte), the topic.
@pytest.mark.parametrize("at", [9, 100, 15, 27, 169])
def test_R18_a_rotten_record_is_never_served(tmp_path: Path, at: int) -> None:
    store, position = rotten(tmp_path, at=at)
    result = store.get("T", 0, 0, 32)
    assert (result.status, offsets(result), result.next_offset) == (GetStatus.FOUND, [0, 1, 2], 3)
    assert (result.count, result.size) == (3, sum(map(len, result.buffers)))
    assert result.damaged == position
    result = store.get("T", 0, 3, 32)
    assert (result.status, result.count, result.buffers, result.next_offset) == (GetStatus.MESSAGE_DAMAGED, 0, [], 3)
    assert offsets(store.get("T", 0, 4, 32)) == [4, 5]
    assert list(store.integrity().places) == [position]
    assert store.integrity().found == 1, "met twice, counted once"
    store.close()


def test_R18_an_entry_that_leads_back_vouches_for_nothing_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four entries two are answered with; the last one leads to where all was checked."""
    store, position = rotten(tmp_path, hurt=1, at=100)
    monkeypatch.setattr(store._reader._limits, "_memory", (1 << 20, 2))
    assert offsets(store.get("T", 0, 0, 1)) == [0]
    queue = next(tmp_path.rglob("consumequeue/T/0/0*"))
    with queue.open("r+b") as file:
        first = file.read(QUEUE_ENTRY_BYTES)
        file.seek(3 * QUEUE_ENTRY_BYTES)
        file.write(first)
    result = store.get("T", 0, 0, 4)
    assert (offsets(result), result.damaged) == ([0], position)
    store.close()


def test_R18_neither_by_position_nor_by_key(tmp_path: Path) -> None:
    store, position = rotten(tmp_path, at=100)
    with pytest.raises(RecordDamaged, match=f"at {position} of the CommitLog"):
        store.record_at(position)
    assert store.query("T", "k3", 32, 0, 1 << 60).records == []
    assert len(store.query("T", "k2", 32, 0, 1 << 60).records) == 1
    store.close()


def test_R18_what_the_disk_does_not_give_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = rotten(tmp_path)
    where = position_of(store, 2)
    read = CommitLog.read_blocking

    def failing(self: CommitLog, position: int, size: int) -> memoryview | bytes:
        if position == where:
            raise OSError(5, "Input/output error")
        return read(self, position, size)

    monkeypatch.setattr("store.reads.reads.read_runs", lambda *_: None)
    monkeypatch.setattr(CommitLog, "read_blocking", failing)
    for offset, given in ((0, [0, 1]), (2, [])):
        result = store.get("T", 0, offset, 32)
        assert result.cold
        store.read_cold(result)
        store.verify_cold(result)
        assert (offsets(result), result.damaged, result.next_offset) == (given, where, 2)
    assert result.status is GetStatus.MESSAGE_DAMAGED
    store.close()


class _Trusting(Verifier):
    """The planted bug: what comes from the disk is served unchecked."""

    def first_bad(self, _runs: list[tuple[int, int]], _buffers: list[memoryview | bytes], _asked: Asked) -> Bad | None:
        return None


def test_R18_serving_what_is_not_checked_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.messagestore.Verifier", _Trusting)
    with pytest.raises(AssertionError):
        test_R18_a_rotten_record_is_never_served(tmp_path, 100)


def test_R18_what_was_written_lately_costs_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    fill(store, 5)
    asked: list[int] = []
    check = Verifier.first_bad
    remember = Verifier.judged

    def counted(
        self: Verifier, runs: list[tuple[int, int]], buffers: list[memoryview | bytes], wanted: Asked
    ) -> Bad | None:
        asked.append(wanted.offset)
        return check(self, runs, buffers, wanted)

    def judged(self: Verifier, runs: list[tuple[int, int]]) -> None:
        """Compiled it was checked before."""
        asked.append(runs[0][0])
        remember(self, runs)

    monkeypatch.setattr(Verifier, "first_bad", counted)
    monkeypatch.setattr(Verifier, "judged", judged)
    store.get("T", 0, 0, 32)
    assert asked == []
    # It may have left the page cache by now.
    for _ in range(2):
        clock.advance(TRUST_SECONDS)
        store.idle()
    fill(store, 1)
    assert offsets(store.get("T", 0, 0, 32)) == [0, 1, 2, 3, 4, 5]
    store.get("T", 0, 5, 32)
    assert asked == [0]
    store.close()


def test_R18_a_check_does_not_hold_for_ever(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock)
    fill(store, 5)
    store.close()
    store = open_store(tmp_path, clock)
    assert offsets(store.get("T", 0, 0, 32)) == [0, 1, 2, 3, 4]
    damage(tmp_path, position_of(store, 3) + 90)
    assert len(offsets(store.get("T", 0, 0, 32))) == 5, "checked a moment ago"
    for _ in range(2):
        clock.advance(TRUST_SECONDS)
        store.idle()
    assert offsets(store.get("T", 0, 0, 32)) == [0, 1, 2]
    store.close()


# In the properties, which no record's CRC covers, and elsewhere.
@pytest.mark.parametrize("at", [60, 95, 110])
def test_R18_a_member_checks_every_byte_and_marks_the_entry(tmp_path: Path, at: int) -> None:
    node = open_node(tmp_path)
    lead(node, 6)
    node.log.release(node.log.last.index)
    node.sync()
    position = position_of(node.store, 4)
    node.store.close()
    node = node.again()
    damage(tmp_path, position + at)
    result = node.store.get("T", 0, 0, 32)
    assert (offsets(result), result.next_offset) == ([0, 1, 2, 3], 4)
    assert node.log.holes.ranges == [(4, 4)]
    assert node.store.get("T", 0, 4, 32).status is GetStatus.MESSAGE_DAMAGED
    # Both messages of the entry wait.
    assert node.store.get("T", 0, 5, 32).status is GetStatus.MESSAGE_DAMAGED
    assert offsets(node.store.get("T", 0, 6, 32)) == [6, 7, 8, 9, 10, 11]
    with pytest.raises(RecordDamaged):
        node.store.record_at(position)
    node.store.close()


def test_R18_what_was_mended_is_served_again(tmp_path: Path) -> None:
    node = open_node(tmp_path / "a")
    lead(node, 6)
    node.log.release(node.log.last.index)
    node.sync()
    position = position_of(node.store, 4)
    node.store.close()
    node = node.again()
    good = node.content
    damage(tmp_path / "a", position + 60)
    assert node.store.get("T", 0, 4, 32).status is GetStatus.MESSAGE_DAMAGED
    mend(node, good)
    assert offsets(node.store.get("T", 0, 0, 32)) == list(range(12))
    node.store.idle()
    assert (node.store.integrity().places, node.store.integrity().found) == ({}, 1)
    node.store.close()


def test_R18_a_queue_that_leads_elsewhere_serves_nothing_wrong(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 4)
    fill(store, 1, topic="U")
    fill(store, 1, body=record().body, queue_id=1)
    elsewhere = store.queue_entries("T", 1, 0, 1)[0]
    store.close()
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(2 * 20)
        file.write(elsewhere.physical_offset.to_bytes(8, "big"))
    store = open_store(tmp_path)
    assert offsets(store.get("T", 0, 0, 32)) == [0, 1]
    assert "leads to a record of another" in store.integrity().places[elsewhere.physical_offset]
    store.close()
