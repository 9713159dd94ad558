"""The judge's own decoder of control records says what the store's says, of every record and of every damaged one."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.logs import control as judge
from raft.protocol.types import EntryType
from store.controlrecord import Control, ControlError, chained, continues, decode_control, encode_control

LONG = st.integers(0, 2**63 - 1)
INT = st.integers(0, 2**32 - 1)


@st.composite
def controls(draw: st.DrawFn) -> tuple[Control, int, bytes]:
    """A control record, the chain before it, and its bytes."""
    payload = draw(st.binary(max_size=40))
    host = draw(st.sampled_from((bytes(range(8)), bytes(range(20)))))
    made = Control(
        draw(LONG), draw(LONG), 0, draw(LONG), draw(st.sampled_from(list(EntryType))), draw(st.integers(0, 65535)),
        draw(LONG), draw(LONG), draw(INT), draw(INT), draw(INT), draw(LONG), draw(LONG), 0, payload,
    )  # fmt: skip
    before = draw(INT)
    made = chained(made, before)
    data = encode_control(made, host)
    return made._replace(size=len(data)), before, data


def plain(found: Any) -> tuple[Any, ...] | None:
    return tuple(found) if not isinstance(found, str) else None


@given(controls(), INT)
def test_both_read_the_same(drawn: tuple[Control, int, bytes], other: int) -> None:
    made, before, data = drawn
    found = judge.decode_control(memoryview(data), 0)
    assert plain(found) == tuple(made)
    assert isinstance(found, judge.JudgedControl)
    assert (found.end, found.ends_group) == (made.end, made.is_classic)
    assert judge.continues(found, before)
    assert judge.continues(found, other) == continues(made, other)


@given(controls(), st.data())
def test_both_refuse_the_same(drawn: tuple[Control, int, bytes], data: st.DataObject) -> None:
    """What keeps the frame whole; frames are checked before."""
    _, _, record = drawn
    changed = bytearray(record)
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    # Sizes, and what moves the fields, are the frame's.
    if bit // 8 in {*range(8), *range(36, 40)}:
        bit = 8 * 8
    changed[bit // 8] ^= 1 << bit % 8
    view = memoryview(changed)
    try:
        said: tuple[Any, ...] | str = tuple(decode_control(view))
    except ControlError as error:
        said = str(error)
    except Exception:
        # A length that leads out of the record: no whole frame.
        return
    found = judge.decode_control(view, 0)
    assert (found if isinstance(found, str) else tuple(found)) == said
