"""What followers and dispatch do compiled equals what they do in Python, on what is usual, unusual and damaged."""

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.messages.arrivals import sums_of
from remoting.javahash import java_hash
from remoting.msgid import pack_host
from remoting.record import MAGIC_V1, MAGIC_V2, RecordError, encode_record
from runtime.clock import ManualClock
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.errors import StoreError
from store.files.queuefile import pack_entries
from store.log.dispatch import SCHEDULE_TOPIC
from store.raftlog.covered_records import CoveredReader, check_covered
from store.types import Dispatched
from tests.parts.send_runs import needs_hotpath, pure

pytestmark = needs_hotpath

HOSTS = (pack_host("10.0.0.1", 10911), pack_host("fd00::1", 10911))
POSITION = 5000
SEEDS = st.integers(0, 1 << 32)
PAIRS = (
    b"TAGS\x01A", b"TAGS\x01", b"TAGS\x01zzzzzzzzz", b"TAGS\x01\xc3\xa9", b"KEYS\x01k1 k2", b"KEYS\x01  a  b ",
    b"KEYS\x01",
    b"KEYS\x01\xff", b"UNIQ_KEY\x01U1", b"UNIQ_KEY\x01", b"a\x01TAGS", b"TAGSX\x01x", b"XTAGS\x01x", b"\x01v", b"n\x01",
    b"", b"noseparator", b"a\x01b\x01c", b"TAGS\x01a\x01b", b"DELAY\x012", b"\x00\x01\x00",
)  # fmt: skip
TOPICS = ("T", "T", "T", "U", "A" * 127, "B" * 128, "long" * 60, "T\u00e4", SCHEDULE_TOPIC)


def both(call: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what comes of it compiled, and in Python: a value, or an error."""
    found = []
    for way in (nullcontext(), pure()):
        with way:
            try:
                found.append((call(), ""))
            except (RecordError, StoreError) as error:
                found.append((type(error), str(error)))
    return found[0], found[1]


def made_records(dice: Random, count: int, *, usual: bool) -> bytes:
    """Return records back to back; properties of a usual one are well-formed."""
    data = b""
    for number in range(count):
        pairs = dice.sample(PAIRS[: 9 if usual else len(PAIRS)], dice.randrange(5))
        text = b"\x02".join(pairs) + dice.choice((b"", b"\x02", b"\x02"))
        data += encode_record(
            dice.choice(TOPICS[:4] if usual else TOPICS), dice.choice((0, 1, 7, (1 << 31) - 1)),
            bytes(dice.choice((0, 1, 30))), text if pairs else b"",
            queue_offset=number * dice.choice((1, 1 << 40)), physical_offset=POSITION + len(data),
            sys_flag=dice.choice((0, 0, 1, 4, 8, 0xC, 1 << 30)), store_timestamp=1_700_000_000_000 + number,
            born_host=dice.choice(HOSTS), store_host=dice.choice(HOSTS),
        )  # fmt: skip
    return data


def damaged(dice: Random, data: bytes) -> bytes:
    """Return it with some bytes changed, where lengths, flags and magics stand mostly, cut out, or cut off."""
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(4):
            case 0:
                changed[at : at + 4] = dice.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4), b"\x00\x00\x00\x58")
                )
            case 1 if len(changed) > 110:
                changed[dice.choice((3, 7, 35, 39, 84, 87, 88, 89, 99, 103, 108))] = dice.choice(
                    (0, 1, 0x10, 0x30, 0x58, 0xFF)
                )
            case 2:
                del changed[at : at + dice.randrange(1, 100)]
            case _:
                changed[at : at + 1] = dice.randbytes(1)
    return bytes(changed)


def check_reading(data: bytes, start: int, count: int) -> None:
    for _ in range(2):
        reader = CoveredReader((1000, 5000))
        # The first time names are learnt.
        found, wanted = both(lambda: [reader.read(data, start, count), reader.read(data, start, count)])  # noqa: B023
        assert found == wanted
        if found[1] == "":
            assert all(type(each) is Dispatched for each in found[0][1])
            assert [*map(repr, found[0][1])] == [*map(repr, wanted[0][1])], "types and all"
    for position in (POSITION - start, POSITION, -1, (1 << 63) - 1):
        found, wanted = both(lambda: check_covered(memoryview(data)[start:], position, count))  # noqa: B023
        assert found == wanted


@given(SEEDS, st.integers(0, 12), st.booleans(), st.sampled_from([0, 0, 1, -1, 1 << 31, 1 << 62]))
def test_covered_records(seed: int, count: int, usual: bool, more: int) -> None:
    dice = Random(seed)
    data = made_records(dice, count, usual=usual)
    check_reading(data, 0, count + more)
    check_reading(b"control" + data, 7, count)
    check_reading(damaged(dice, data), 0, count)


@given(st.binary(max_size=300), st.integers(-1, 310), st.integers(0, 5))
def test_covered_records_that_are_none(data: bytes, start: int, count: int) -> None:
    check_reading(data, max(start, 0), count)
    for magic in (MAGIC_V1, MAGIC_V2):
        size = len(data)
        check_reading(size.to_bytes(4, "big") + magic.to_bytes(4, "big") + data[8:], 0, count)


def made_batch(dice: Random, count: int, *, usual: bool) -> list[Dispatched]:
    """Return what records of some queues are dispatched as; what is unusual jumps, or stands twice."""
    offsets: dict[tuple[str, int], int] = {}
    position, batch = dice.choice((0, 5000)), []
    for number in range(count):
        topic, queue_id = dice.choice(TOPICS[:4] if usual else TOPICS), dice.choice((0, 0, 1))
        offset = offsets.get((topic, queue_id), 0)
        size = dice.choice((88, 100, 1000))
        if not usual and dice.random() < 0.1:
            offset += dice.choice((-1, 1, 7))
        if not usual and dice.random() < 0.1:
            position -= dice.choice((1, 88, 1000))
        tags = dice.choice((b"", b"A", b"zzzzzzzzz", *([] if usual else [b"\xc3\xa9", b"\xff"])))
        batch.append(Dispatched(
            topic, queue_id, max(offset, 0), max(position, 0), size, java_hash(tags) if tags else 0,
            1_700_000_000_000 + number * 700, dice.choice((b"", b"U%d" % number)),
            dice.choice((b"", b"k", b"k1 k2", b"  a   b ", b" ", b"polygenelubricants",
            *([] if usual else [b"\xff k"]))),
            dice.choice((0, 0, 0, 4, 8, 0xC, 0x30)), tags,
        ))  # fmt: skip
        offsets[topic, queue_id] = max(offset, 0) + 1
        position = max(position, 0) + size + dice.choice((0, 91))
    return batch


def parts_of(dice: Random, batch: list[Dispatched]) -> list[list[Dispatched]]:
    cuts = sorted(dice.randrange(len(batch) + 1) for _ in range(dice.randrange(4)))
    return [batch[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(batch)], strict=True)]


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def queued(parts: list[list[Dispatched]], *, rebuilding: bool, settle: int) -> tuple[Any, ...]:
    with tempfile.TemporaryDirectory() as name:
        queues = ConsumeQueues(Path(name) / "consumequeue", file_bytes=200)
        said = []
        for number, part in enumerate(parts):
            try:
                queues.append_many(part, rebuilding=rebuilding)
            except StoreError as error:
                said.append(repr(error))
            if number == settle:
                queues.persist()
        slots = {
            key: [getattr(queue, slot) for slot in queue.__slots__ if slot != "folder"]
            for key, queue in queues._queues.items()
        }
        states = {key: repr(state) for key, state in slots.items()}
        dirty = [Path(queue.folder).relative_to(name) for queue in queues._dirty]
        buffered = queues.buffered
        queues.close()
        return said, states, dirty, buffered, files_in(Path(name))


@given(SEEDS, st.integers(0, 60), st.booleans(), st.booleans(), st.integers(0, 3))
def test_queues(seed: int, count: int, usual: bool, rebuilding: bool, settle: int) -> None:
    dice = Random(seed)
    parts = parts_of(dice, made_batch(dice, count, usual=usual))
    found, wanted = both(lambda: queued(parts, rebuilding=rebuilding, settle=settle))
    assert found == wanted


def indexed(parts: list[list[Dispatched]]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        index = MessageIndex(Path(name), slots=50, entries=60, clock=ManualClock())
        for part in parts:
            index.append_many(part)
            index.persist()
        index.close()
        return files_in(Path(name))


@given(SEEDS, st.integers(0, 60), st.booleans())
def test_index(seed: int, count: int, usual: bool) -> None:
    dice = Random(seed)
    parts = parts_of(dice, made_batch(dice, count, usual=usual))
    found, wanted = both(lambda: indexed(parts))
    assert found == wanted


@given(SEEDS, st.integers(0, 60), st.booleans())
def test_sums(seed: int, count: int, usual: bool) -> None:
    batch = made_batch(Random(seed), count, usual=usual)
    found, wanted = both(lambda: sums_of(batch))
    assert found == wanted
    assert [*found[0][0]] == [*wanted[0][0]], "in the same order"


@given(st.lists(st.tuples(
    st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63),
    (1 << 63) - 1)
), max_size=20))  # fmt: skip
def test_packed_entries(entries: list[tuple[int, int, int]]) -> None:
    found, wanted = both(lambda: pack_entries(entries))
    assert found == wanted
