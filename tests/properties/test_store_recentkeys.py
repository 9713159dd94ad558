"""The table of recent keys against a list that holds everything (habit 12)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from store.derived.recentkeys import SEGMENTS, RecentKeys

# Two keys of three have the hash of another one.
KEYS = st.integers(0, 30).map(lambda number: b"key %d" % number)


def few_hashes(key: bytes) -> int:
    return int(key[4:]) % 10 * (1 if key[-1] & 1 else -(2**60))


@settings(max_examples=300, deadline=None)
@given(
    added=st.lists(st.tuples(KEYS, st.integers(0, 40)), max_size=120),
    keys_max=st.integers(1, 60),
    window_ms=st.integers(1, 300),
    segment=st.integers(1, 9),
)
def test_it_finds_what_a_list_finds(
    added: list[tuple[bytes, int]], keys_max: int, window_ms: int, segment: int
) -> None:
    table = RecentKeys(keys_max, window_ms, segment_keys=segment, hash_of=few_hashes)
    everything: list[tuple[int, int, int]] = []
    now = 0
    for position, (key, pause) in enumerate(added):
        now += pause
        table.add(key, position, now)
        everything.append((few_hashes(key), position, now))
        assert len(table) <= keys_max
        # Sure: what is young enough, unless more came since than there is room for, less the part that goes at once.
        room = keys_max - max(1, keys_max // SEGMENTS)
        sure = [
            entry for number, entry in enumerate(everything)
            if entry[2] >= now - window_ms and number >= len(everything) - max(1, room)
        ]  # fmt: skip
        for wanted in {entry[0] for entry in everything}:
            found = table.find(next(b"key %d" % n for n in range(31) if few_hashes(b"key %d" % n) == wanted))
            assert list(found) == sorted(found), "the oldest first"
            assert set(found) <= {at for hashed, at, _ in everything if hashed == wanted}
            assert set(found) >= {at for hashed, at, _ in sure if hashed == wanted}
        every = [b"key %d" % number for number in range(31)]
        assert table.find_many(every) == [(at, found) for at, key in enumerate(every) if (found := table.find(key))]


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.lists(st.tuples(KEYS, st.integers(0, 40)), max_size=40), max_size=6),
    keys_max=st.integers(1, 60),
    window_ms=st.integers(1, 300),
    segment=st.integers(1, 9),
)
def test_many_at_once_are_kept_as_one_by_one(
    pieces: list[list[tuple[bytes, int]]], keys_max: int, window_ms: int, segment: int
) -> None:
    together, singly = [
        RecentKeys(keys_max, window_ms, segment_keys=segment, hash_of=few_hashes) for _ in range(2)
    ]  # fmt: skip
    position = now = 0
    for piece in pieces:
        rows = []
        for key, pause in piece:
            position, now = position + 100, now + pause
            rows.append((key, position, now))
            singly.add(key, position, now)
        together.add_many([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
        assert len(together) == len(singly)
        # But for the bytes by which most look-ups end: those are made anew at other moments.
        assert together.memory_bytes - len(together._seen) == singly.memory_bytes - len(singly._seen)
        for number in range(31):
            key = b"key %d" % number
            assert together.find(key) == singly.find(key)


def test_what_is_kept_grows_with_the_keys_and_not_with_the_bound() -> None:
    table = RecentKeys(1_000_000, 60_000)
    table.add(b"one", 7, 1)
    assert table.find(b"one") == (7,)
    assert table.find(b"two") == ()
    assert table.memory_bytes < 300_000
    for number in range(300_000):
        table.add(b"%d" % number, number, 2)
    assert table.memory_bytes / len(table) < 50
    assert len(table._segments) <= 8


def test_at_the_bound_the_oldest_part_is_forgotten() -> None:
    table = RecentKeys(1600, 60_000, segment_keys=400)
    for number in range(1600):
        table.add(b"%d" % number, number, 1)
    assert len(table) == 1600
    assert table.find(b"0") == (0,)
    table.add(b"more", 1600, 1)
    part = 1600 // SEGMENTS
    assert len(table) == 1601 - part
    assert table.find(b"%d" % (part - 1)) == ()
    assert table.find(b"%d" % part) == (part,)


def test_what_is_too_old_goes_with_its_segment() -> None:
    table = RecentKeys(8, 1000, segment_keys=2)
    for number, at in enumerate((0, 500, 600, 1400)):
        table.add(b"%d" % number, number, at)
    assert len(table) == 4
    table.add(b"4", 4, 1501)
    assert len(table) == 3
    assert table.find(b"0") == table.find(b"1") == ()
    assert table.find(b"2") == (2,)
