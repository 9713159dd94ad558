"""One record is looked at compiled as it is in Python: taken or refused alike, and for the same reason."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.compiled.door import hotpath
from remoting.record import encode_record
from store.integrity import verifier
from store.integrity.verifier import Asked
from store.log import logscan
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


def test_usual_records_are_looked_at_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(encode_record("T", 1, b"x" * 600, b"KEYS\x01k", queue_offset=4, physical_offset=POSITION))
    assert check_record(data, 0, POSITION, check_crc=True) == (len(data), 0)
    monkeypatch.setattr(logscan, "HEADS", None)
    monkeypatch.setattr(verifier, "HEADS", None)
    assert check_record(data, 0, POSITION, check_crc=True) == (len(data), 0)
    assert verifier._judge(data, 0, POSITION, ASKED, 3) == (len(data), 5)
    assert hotpath is not None
