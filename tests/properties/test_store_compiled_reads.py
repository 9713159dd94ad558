"""A pull gets the same records, and is told the same, whether they are gathered compiled or chosen one by one."""

import os
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.compiled.door import hotpath
from remoting.javahash import java_hash
from runtime.clock import ManualClock
from store.config import QUEUE_ENTRY_BYTES, StoreConfig
from store.files.mappedfile import file_name
from store.files.queuefile import pack_entries
from store.integrity.ranges import Ranges
from store.messagestore import MessageStore
from store.reads import gathering
from tests.parts.send_runs import needs_hotpath
from tests.parts.store_tools import HOST, expire, fill, make_config
from tests.properties.test_store_compiled import SEEDS, both

pytestmark = needs_hotpath

TAGS = ("", "A", "B")
SIZES = (0, 10, 100, 100, 100, 3000, 20_000)


def asked(store: MessageStore, dice: Random) -> tuple[Any, ...]:
    tags = dice.choice((None, None, None, frozenset({java_hash("A")}), frozenset({java_hash("A"), java_hash("B")})))
    offset = dice.randrange(-1, store.max_offset("T", 0) + 2)
    return (
        "T",
        dice.randrange(2),
        offset,
        dice.choice((0, 1, 2, 5, 32, 200, 2000)),
        dice.choice((1, 500, 1 << 20)),
        tags,
    )


def told(store: MessageStore, question: tuple[Any, ...]) -> Any:
    got = store.get(*question)
    if got.cold:
        store.verify_cold(store.read_cold(got))
    numbers = (got.count, got.size, got.next_offset, got.min_offset, got.max_offset, got.behind_bytes, got.damaged)
    return got.status, numbers, b"".join(got.buffers)


def config_of(folder: str, dice: Random) -> StoreConfig:
    return make_config(
        Path(folder),
        maxTransferCountOnMessageInMemory=dice.choice((1, 3, 32, 500)),
        maxTransferBytesOnMessageInMemory=dice.choice((1000, 256 * 1024)),
        maxFilterMessageSize=dice.choice((20, 200, 16_000)),
    )


def live(store: MessageStore, dice: Random, clock: ManualClock, count: int) -> int:
    """Write and read for a while; return how many files the log has then."""
    for _ in range(count):
        fill(store, dice.randrange(1, 4), queue_id=dice.randrange(2), tags=dice.choice(TAGS),
             body=bytes(dice.choice(SIZES)))  # fmt: skip
        if dice.random() < 0.2:
            clock.advance(dice.choice((0.1, 400.0)))
            store.idle()
    for _ in range(20):
        question = asked(store, dice)
        found, wanted = both(partial(told, store, question))
        assert found == wanted, question
    return store.stats().log_files


def rot(config: StoreConfig, dice: Random) -> bool:
    """Change a byte of the log, or have an entry of a queue lead where another does: as a disk may, unnoticed.

    Returns whether it was an entry.
    """
    if dice.random() < 0.5:
        with dice.choice(sorted(config.log_folder.iterdir())).open("r+b") as file:
            at = dice.randrange(config.mappedFileSizeCommitLog)
            was = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([was[0] ^ (1 << dice.randrange(8))]), at)
        return False
    queues = sorted((config.root / "consumequeue" / "T").glob("*/*"))
    with dice.choice(queues).open("r+b") as file:
        at = dice.randrange(1, 60) * QUEUE_ENTRY_BYTES
        other = at + dice.choice((-1, -1, 1, 3)) * QUEUE_ENTRY_BYTES
        os.pwrite(file.fileno(), os.pread(file.fileno(), QUEUE_ENTRY_BYTES, max(other, 0)), at)
    return True


def told_knowing(store: MessageStore, known: Ranges, question: tuple[Any, ...]) -> Any:
    """Return what is told when so much of the log was checked before."""
    store._verifier._ranges = deepcopy(known)
    return told(store, question)


@given(SEEDS, st.integers(1, 60), st.integers(1, 3), st.sampled_from((0, 10_000, 200_000)), st.integers(0, 3))
def test_answers_of_what_is_not_new_are_alike(seed: int, count: int, lives: int, hot: int, rotten: int) -> None:
    dice = Random(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr("store.log.commitlog.HOT_BYTES", hot)
        patched.setattr("store.integrity.verifier.HOT_BYTES", hot)
        config, clock = config_of(folder, dice), ManualClock()
        for _ in range(lives):
            store = MessageStore.open(config, store_host=HOST, clock=clock)
            live(store, dice, clock, count)
            store.close()
        store = MessageStore.open(config, store_host=HOST, clock=clock)
        rotted = [rot(config, dice) for _ in range(rotten)]
        for _ in range(20):
            question = asked(store, dice)
            known = Ranges()
            # At first nothing of the log was checked, then what the first answer was checked for. A record that was is
            # not looked at again in Python: that a queue leads to it twice is noticed where it is.
            for _ in range(1 if any(rotted) else 2):
                found, wanted = both(partial(told_knowing, store, known, question))
                assert found == wanted, (len(known), question)
                known = store._verifier._ranges
        store.close()


@given(SEEDS, st.integers(1, 60), st.integers(1, 4))
def test_answers_are_alike(seed: int, count: int, lives: int) -> None:
    dice = Random(seed)
    with TemporaryDirectory() as folder:
        config, clock, files = config_of(folder, dice), ManualClock(), 0
        for _ in range(lives):
            if files > 2 and dice.random() < 0.5 and (config.log_folder / file_name(0)).exists():
                expire(config, config.mappedFileSizeCommitLog)
            store = MessageStore.open(config, store_host=HOST, clock=clock)
            try:
                files = live(store, dice, clock, count)
            finally:
                store.close()


def test_what_is_new_leaves_in_one_piece_and_what_is_large_uncopied(tmp_path: Path) -> None:
    config = make_config(tmp_path, mappedFileSizeCommitLog=1024 * 1024)
    store = MessageStore.open(config, store_host=HOST, clock=ManualClock())
    for _ in range(5):
        for queue in range(2):
            fill(store, 1, queue_id=queue, body=bytes(10_000))
    most = gathering.JOINED_BYTES_MAX
    two, five = store.get("T", 0, 0, 2), store.get("T", 0, 0, 32)
    assert [type(one) for one in two.buffers] == [bytes]
    assert two.size < five.size <= most
    assert [type(one) for one in five.buffers] == [bytes]
    for queue in range(2):
        fill(store, 3, queue_id=queue, body=bytes(10_000))
    large = store.get("T", 0, 0, 32)
    assert large.size > most
    assert {type(one) for one in large.buffers} == {memoryview}
    store.close()


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([(1000, 10, 0), (990, 10, 0)], "back"),
        ([(1000, 10, 0), (1005, 10, 0)], "into the one before"),
        ([(999, 10, 0)], "before the file"),
        ([(1095, 10, 0)], "behind what is written"),
        ([(1000, 10, 0), (0, 0x7FFFFFFF, 0)], "a filler"),
        ([(1000, 0, 0)], "no record"),
        ([(1000, -5, 0)], "nothing that can be"),
        ([(1000, 1 << 30, 0)], "larger than all"),
        ([((1 << 63) - 1, 10, 0)], "over the end of numbers"),
        ([(-(1 << 63), 10, 0)], "under it"),
        ([], "nowhere"),
    ],
)
def test_what_leads_elsewhere_is_not_gathered(entries: list[tuple[int, int, int]], why: str) -> None:
    view = memoryview(bytes(200))
    two = [(1000, 10, 0), (1010, 90, 0)]
    good = hotpath.gather(pack_entries(two), None, view, 1000, 1100, 0, 0x7FFFFFFF, 32, 1000, 1000, True, None, None)
    assert good == (bytes(100), 2, 2, 1100, None, 100)
    found = hotpath.gather(
        pack_entries(entries), None, view, 1000, 1100, 0, 0x7FFFFFFF, 2000, 1 << 50, 1 << 50, True, None, None
    )
    assert found is None, why


def test_no_more_is_read_than_the_view_holds() -> None:
    assert (
        hotpath.gather(
            pack_entries([(0, 10, 0)]), None, memoryview(bytes(9)), 0, 10, 0, 0x7FFFFFFF, 1, 10, 10, True, None, None
        )
        is None
    )


def test_the_most_entries_that_are_gathered_at_once() -> None:
    view = memoryview(bytes(2000))
    for count, taken in ((1024, True), (1025, False)):
        entries = [(at, 1, 0) for at in range(count)]
        found = hotpath.gather(
            pack_entries(entries), None, view, 0, 2000, 0, 0x7FFFFFFF, 2000, 2000, 2000, True, None, None
        )
        assert found == ((bytes(count), count, count, count, None, count) if taken else None)
