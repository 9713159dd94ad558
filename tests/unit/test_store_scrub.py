"""R18: the log is read again in the background, at a rate, and what is wrong in it is found, in every mode."""

from pathlib import Path

import pytest

from remoting.record import BLANK_BYTES
from runtime.clock import ManualClock
from store.integrity.scrub import PASS_SECONDS, PLACE_NAME, read_direct
from store.integrity.scrubcheck import UNITS_MAX, check_piece
from store.messagestore import MessageStore
from tests.parts.entry_tools import Node, damage, lead, open_node
from tests.parts.store_tools import FILE_BYTES, HOST, fill, make_config

RATE = 1 << 40
# In a control record: the queue offset, and the topic.
INDEX_AT = 20
TOPIC_AT = 141


def open_store(folder: Path, clock: ManualClock, rate: int = RATE) -> MessageStore:
    config = make_config(folder, scrubBytesPerSecond=rate)
    return MessageStore.open(config, store_host=HOST, clock=clock, stepped=True)


def run(store: MessageStore, clock: ManualClock, passes: int = 1) -> None:
    """Let the scrub go over the whole log."""
    for _ in range(10_000):
        if store.integrity().passes >= passes:
            return
        clock.advance(0.05)
        store.idle()
        while store.step_helper():
            pass
    raise AssertionError("the scrub does not come to an end")


def filled(folder: Path, clock: ManualClock, files: float = 2.5) -> MessageStore:
    store = open_store(folder, clock)
    while store.written < files * FILE_BYTES:
        fill(store, 1, body=bytes(1000))
    return store


def positions(store: MessageStore) -> list[int]:
    return [entry.physical_offset for entry in store.queue_entries("T", 0, 0, 1000)]


def test_R18_the_scrub_finds_what_nobody_reads(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    hurt = [positions(store)[number] for number in (0, 7, 8, 70, 100)]
    store.close()
    for position, at in zip(hurt, (500, 500, 2, 30, 1090), strict=True):
        # In a body, a size, a position, a topic's length.
        damage(tmp_path, position + at)
    store = open_store(tmp_path, clock)
    run(store, clock)
    found = store.integrity()
    assert sorted(found.places) == hurt
    assert found.checked == found.until
    store.close()


def test_R18_a_whole_log_has_nothing_to_find(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    fill(store, UNITS_MAX * 2, topic="U")
    store.close()
    store = open_store(tmp_path, clock)
    run(store, clock)
    assert (store.integrity().found, store.integrity().checked) == (0, store.integrity().until)
    store.close()


def test_R18_a_file_of_garbage_is_one_finding_and_the_next_file_is_checked(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    later = next(position for position in positions(store) if position > 2 * FILE_BYTES)
    store.close()
    damage(tmp_path, FILE_BYTES, b"\x17" * FILE_BYTES)
    damage(tmp_path, later + 300)
    store = open_store(tmp_path, clock)
    run(store, clock)
    assert sorted(store.integrity().places) == [FILE_BYTES, later]
    store.close()


def test_R18_the_rate_holds_and_zero_is_none(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    store.close()
    store = open_store(tmp_path, clock, rate=1000)
    for _ in range(2):
        store.idle()
        store.step_helper()
    assert store.integrity().checked == 0, "the slice is not taken over yet"
    store.idle()
    first = store.integrity().checked
    assert first > 0
    for _ in range(int(first / 1000) * 2 - 2):
        clock.advance(0.5)
        store.idle()
        while store.step_helper():
            pass
    assert store.integrity().checked == first, "it comes so much later as it was large"
    clock.advance(2)
    for _ in range(2):
        store.idle()
        while store.step_helper():
            pass
    assert store.integrity().checked > first
    store.close()
    store = open_store(tmp_path, clock, rate=0)
    for _ in range(100):
        clock.advance(10)
        store.idle()
        while store.step_helper():
            pass
    assert store.integrity().checked == 0
    store.close()


def test_R18_a_start_goes_on_in_the_file_where_the_last_one_ended(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    store.close()
    store = open_store(tmp_path, clock)
    while store.integrity().position < FILE_BYTES:
        clock.advance(0.05)
        store.idle()
        store.step_helper()
    store.close()
    store = open_store(tmp_path, clock)
    assert store.integrity().position == FILE_BYTES
    run(store, clock)
    # Garbage in the note, or one of another log, means the beginning.
    for note in (b"\x00\xff", b"[]", b'{"position": "x"}', b'{"position": 65537}', b'{"position": -65536}', b"{"):
        store.close()
        (tmp_path / "store" / PLACE_NAME).write_bytes(note)
        store = open_store(tmp_path, clock)
        assert store.integrity().position == 0
    store.close()


def test_R18_passes_come_at_intervals(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    store.close()
    store = open_store(tmp_path, clock)
    run(store, clock)
    checked = store.integrity().checked
    for _ in range(10):
        clock.advance(PASS_SECONDS / 20)
        store.idle()
        while store.step_helper():
            pass
    assert store.integrity().checked == checked
    clock.advance(PASS_SECONDS)
    run(store, clock, passes=2)
    assert store.integrity().checked > checked
    store.close()


def grown(folder: Path, clock: ManualClock) -> tuple[Node, list[int]]:
    """Return a member started again, and where its entries begin."""
    node = open_node(folder, clock=clock, scrubBytesPerSecond=RATE)
    lead(node, 4)
    while node.store.written < 2.5 * FILE_BYTES:
        node.records(bytes(3000), bytes(3000))
    node.sync()
    node.log.release(node.log.last.index)
    starts = [0, *[node.start_of(index) for index in range(1, node.log.last.index + 1)]]
    node.store.close()
    return node.again(clock=clock, scrubBytesPerSecond=RATE), starts


def test_R18_a_member_finds_rot_in_any_byte_of_an_entry(tmp_path: Path) -> None:
    clock = ManualClock()
    node, starts = grown(tmp_path, clock)
    # The properties of a message, a control record, a host in a head.
    damage(tmp_path, starts[5] - 3)
    damage(tmp_path, starts[9] + 120)
    damage(tmp_path, starts[15] + 133 + 57)
    run(node.store, clock)
    assert node.log.holes.ranges == [(4, 4), (9, 9), (15, 15)]
    assert node.store.integrity().found >= 3
    node.store.close()


@pytest.mark.parametrize("byte", [INDEX_AT, TOPIC_AT])
def test_R18_a_member_finds_rot_in_what_no_crc_covers(tmp_path: Path, byte: int) -> None:
    """In the index, or the topic of control records: of the first entry, one within a piece, the last of a file."""
    clock = ManualClock()
    node, starts = grown(tmp_path, clock)
    border = next(index for index, start in enumerate(starts) if start >= FILE_BYTES)
    hurt = [1, 7, border - 1, border + 2]
    for index in hurt:
        damage(tmp_path, starts[index] + byte + index % 8)
    run(node.store, clock)
    assert [first for first, _ in node.log.holes.ranges] == hurt
    assert (node.store.integrity().found, node.store.integrity().rewritten) == (4, 0)
    node.store.close()


def test_R18_the_first_index_that_a_piece_meets_is_found_out_by_the_next(tmp_path: Path) -> None:
    node, starts = grown(tmp_path, ManualClock())
    node.store.close()
    data = bytearray((tmp_path / "store" / "commitlog" / f"{0:020d}").read_bytes())
    data[starts[3] + INDEX_AT] ^= 4
    piece = memoryview(data)[starts[3] : starts[6]]
    checked = check_piece(piece, starts[3], FILE_BYTES, entries_from=0)
    assert [at for at, _ in checked.bad] == [starts[3]]
    # A piece that ends in between: what it knows is handed on.
    for cut in range(starts[3] + BLANK_BYTES, starts[6], 97):
        first = check_piece(memoryview(data)[starts[3] : cut], starts[3], FILE_BYTES, entries_from=0)
        rest = memoryview(data)[first.end : starts[6]]
        second = check_piece(rest, first.end, FILE_BYTES, entries_from=0, before=first.before)
        assert [at for at, _ in first.bad + second.bad] == [starts[3]]
        assert second.end == starts[6]


def test_R18_no_bit_of_an_entry_can_change_unseen(tmp_path: Path) -> None:
    node, starts = grown(tmp_path, ManualClock())
    node.store.close()
    data = bytearray((tmp_path / "store" / "commitlog" / f"{0:020d}").read_bytes())
    begin = starts[4]
    # Its control record and the head of the first message, each bit; of the bodies, which are alike, some bytes.
    for at in [*range(begin, begin + 300), *range(begin + 300, starts[5], 997), starts[5] - 1]:
        for bit in range(8):
            data[at] ^= 1 << bit
            checked = check_piece(memoryview(data), 0, FILE_BYTES, entries_from=0)
            found = [position for position, _ in checked.bad]
            assert found[:1] == [begin], (at - begin, bit)
            assert found[-1] < starts[5], "no entry is called wrong that is right"
            data[at] ^= 1 << bit
    assert check_piece(memoryview(data), 0, FILE_BYTES, entries_from=0).bad == []


def test_R18_what_memory_still_holds_right_is_written_again(tmp_path: Path) -> None:
    clock = ManualClock()
    node, starts = grown(tmp_path, clock)
    again = node.log.read(9, 1)[0]
    # As if the disk alone were wrong: memory, which is asked next, is right.
    node.store._scrub._look_again(starts[9], "a sector")
    assert (node.store.integrity().rewritten, node.log.whole, node.store.integrity().found) == (1, True, 0)
    assert bytes(node.log.read(9, 1)[0].data) == bytes(again.data)
    node.store.close()


@pytest.mark.parametrize("offset", [0, 1, 4095, 4096, 10_000])
@pytest.mark.parametrize("size", [1, 511, 4096, 30_000])
def test_R18_a_direct_read_gives_the_bytes_that_were_asked_for(tmp_path: Path, offset: int, size: int) -> None:
    content = bytes(range(251)) * 200
    path = tmp_path / "file"
    path.write_bytes(content)
    assert bytes(read_direct(path, offset, size)) == content[offset : offset + size]


def test_R18_a_piece_that_ends_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock, files=0.2)
    end = store.written
    store.close()
    data = memoryview((tmp_path / "store" / "commitlog" / f"{0:020d}").read_bytes())
    for size in range(BLANK_BYTES, end, 97):
        checked = check_piece(data[:size], 0, FILE_BYTES, entries_from=None)
        assert checked.bad == []
        assert checked.end <= size
        again = check_piece(data[checked.end : end], checked.end, FILE_BYTES, entries_from=None)
        assert (again.end, again.bad) == (end, [])
