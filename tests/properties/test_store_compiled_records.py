"""One record is looked at compiled as it is in Python: taken or refused alike, and for the same reason."""

from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.compiled.door import hotpath
from remoting.record import MAGIC_V1, encode_record
from runtime.clock import ManualClock
from runtime.crc import crc32
from store.integrity import verifier
from store.integrity.ranges import Ranges
from store.integrity.verifier import Asked
from store.log import logscan
from store.log.commitlog import CommitLog
from store.log.logscan import check_record
from tests.parts.send_runs import needs_hotpath
from tests.properties.test_store_compiled import POSITION, SEEDS, both, damaged, made_records

pytestmark = needs_hotpath

ASKED = Asked(b"T", 1, 0, 1 << 41)


def looked_at(data: bytes, dice: Random) -> tuple[Any, Any]:
    """Return what is said of the records in some bytes, of each that one leads to, and of some odd place."""
    view, odd = memoryview(data), dice.randrange(len(data) + 1)

    def look() -> list[Any]:
        said: list[Any] = []
        for check_crc in (True, False):
            at = 0
            while at < len(data):
                found = check_record(view, at, POSITION + at, check_crc=check_crc)
                said.append(found)
                if isinstance(found, str):
                    break
                said.append(verifier._judge(view, at, POSITION + at, ASKED, 0))
                at += found[0]
            said.append(check_record(view, odd, POSITION + odd, check_crc=check_crc))
        said.append(check_record(view, 0, POSITION + 1, check_crc=True))
        return said

    return both(look)


@given(SEEDS, st.integers(1, 12), st.booleans())
def test_records_as_they_are_written(seed: int, count: int, usual: bool) -> None:
    dice = Random(seed)
    found, wanted = looked_at(made_records(dice, count, usual=usual), dice)
    assert found == wanted


@given(SEEDS, st.integers(1, 4))
def test_records_that_changed(seed: int, count: int) -> None:
    dice = Random(seed)
    data = damaged(dice, made_records(dice, count, usual=dice.random() < 0.5))
    if data:
        found, wanted = looked_at(data, dice)
        assert found == wanted


@pytest.mark.parametrize("body", [b"", b"x", b"y" * 511, b"z" * 512, b"w" * 513, b"v" * 70_000])
def test_every_byte_that_changed_is_seen_alike(body: bytes) -> None:
    data = encode_record("T", 1, body, b"KEYS\x01k", queue_offset=4, physical_offset=POSITION)
    dice = Random(1)
    for at in [*range(120), *range(len(data) - 20, len(data))]:
        content = bytearray(data)
        content[at % len(data)] ^= 1 << dice.randrange(8)
        found, wanted = looked_at(bytes(content), dice)
        assert found == wanted, at


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        (ASKED, 4), (ASKED, 5), (ASKED._replace(end=4), 0), (ASKED._replace(end=5), 4), (ASKED._replace(queue_id=2), 0),
        (ASKED._replace(topic=b""), 0), (ASKED._replace(topic=b"TT"), 0), (ASKED._replace(topic=b"U"), 0),
        (ASKED._replace(queue_id=1 << 40), 0),
    ],
)  # fmt: skip
def test_what_is_asked_for(asked: Asked, offset: int) -> None:
    data = memoryview(encode_record("T", 1, b"x", queue_offset=4, physical_offset=POSITION))
    found, wanted = both(lambda: verifier._judge(data, 0, POSITION, asked, offset))
    assert found == wanted


class AnswerLog:
    """Stands in for a log of which nothing was written lately."""

    written = 1 << 60


def judged(runs: list[tuple[int, int]], buffers: list[memoryview | bytes], asked: Asked) -> Any:
    """Return what a verifier says of an answer, twice, and which ranges it then knows."""
    checks = verifier.Verifier(cast("CommitLog", AnswerLog()), ManualClock())
    said = [checks.first_bad(runs, buffers, asked), checks.first_bad(runs, buffers, asked)]
    # Python does not look again at what it knows, and so names fewer offsets that are due.
    said[1] = said[1] and said[1]._replace(reason="")
    return said, vars(checks)["_ranges"]._young.starts, vars(checks)["_ranges"]._young.ends


@given(SEEDS, st.integers(1, 40), st.integers(0, 3))
def test_answers_are_judged_alike(seed: int, count: int, wrong: int) -> None:
    """Runs of one record and of several, of which some are another queue's, not in order, or not what they were."""
    dice = Random(seed)
    runs: list[tuple[int, int]] = []
    buffers: list[memoryview | bytes] = []
    position, offset = POSITION, 3
    for _ in range(count):
        content = b""
        for _ in range(dice.choice([1, 1, 1, 4])):
            size = dice.choice([0, 5, 511, 600])
            content += encode_record(
                "T", 1, dice.randbytes(size), b"KEYS\x01k", queue_offset=offset, physical_offset=position + len(content)
            )
            offset += dice.choice([1, 1, 2])
        runs.append((position, len(content)))
        buffers.append(dice.choice([bytes, memoryview])(content))
        position += len(content) + dice.choice([0, 300])
    for _ in range(wrong):
        number = dice.randrange(count)
        hurt = bytearray(buffers[number])
        hurt[dice.randrange(len(hurt))] ^= 1 << dice.randrange(8)
        buffers[number] = bytes(hurt)
    asked = Asked(b"T", 1, 3, offset + dice.choice([0, 1, -1]))
    found, wanted = both(lambda: judged(runs, buffers, asked))
    assert found == wanted
    assert wrong or asked.end < offset or found[0][0] == [None, None]


@given(SEEDS)
def test_ranges_are_joined_alike_and_know_what_was_added(seed: int) -> None:
    dice = Random(seed)
    answers = [[(dice.randrange(3_000), dice.randrange(1, 60)) for _ in range(dice.randrange(33))] for _ in range(12)]

    def join() -> tuple[list[int], list[int]]:
        ranges, known = Ranges(), set[int]()
        for runs in answers:
            ranges.add(runs)
            known |= {at for start, size in runs for at in range(start, start + size)}
            for start, size in answers[0]:
                assert ranges.covers(start, start + size) == known.issuperset(range(start, start + size))
        young = vars(ranges)["_young"]
        assert young.starts == sorted(young.starts)
        return young.starts, young.ends

    found, wanted = both(join)
    assert found == wanted


def test_a_buffer_that_is_not_its_run_is_no_right_one() -> None:
    data = encode_record("T", 1, b"x", queue_offset=0, physical_offset=POSITION)
    for size in (0, len(data) - 1, len(data) + 1):
        assert hotpath.judge_runs([(POSITION, size)], [data], b"T", 1, 0, 9, MAGIC_V1, crc32) == (0, 0)


def test_usual_records_are_looked_at_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(encode_record("T", 1, b"x" * 600, b"KEYS\x01k", queue_offset=4, physical_offset=POSITION))
    assert check_record(data, 0, POSITION, check_crc=True) == (len(data), 0)
    monkeypatch.setattr(logscan, "HEADS", None)
    monkeypatch.setattr(verifier, "HEADS", None)
    assert check_record(data, 0, POSITION, check_crc=True) == (len(data), 0)
    assert verifier._judge(data, 0, POSITION, ASKED, 3) == (len(data), 5)
    assert hotpath is not None
