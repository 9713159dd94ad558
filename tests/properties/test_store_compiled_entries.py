"""Entries are made and checked compiled as they are in Python: the same bytes, and the same ones refused."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raft.protocol.types import Entry, EntryRefused, EntryType, Mark
from remoting.msgid import pack_host
from remoting.record import encode_record
from runtime.crc import crc32
from store.controlrecord import Control, chained, control_bytes, encode_control
from store.raftlog import entrycheck
from store.raftlog.entrycheck import Checked, check_entries
from tests.parts.entry_tools import lead, open_node, sent
from tests.parts.send_runs import needs_hotpath, pure

pytestmark = needs_hotpath

HOSTS = (pack_host("10.0.0.1", 10911), pack_host("fd00::1", 10911))
FILE_BYTES = 1 << 20
# What the control record of an entry may say, and what it says one time in ten.
LAST, LAST_CONFIG = Mark(6, 3, 5000, 0xCAFE), 2
ODD = {
    "index": (6, 8, 0), "position": (4999, 0, FILE_BYTES), "term": (2, 4, 1 << 61), "previous_term": (2, 4),
    "flags": (1, 2), "kind": tuple(EntryType), "covered_bytes": (0, 1), "covered_count": (0, 1, 2, 5),
    "covered_crc": (0, 1), "commit": (7, 8, 1 << 61), "config": (0, 7), "payload": (b"p", b"\0" * 9),
}  # fmt: skip


def both(entry: Entry) -> list[list[Checked] | str]:
    """Return what comes of it compiled, and in Python."""
    found: list[list[Checked] | str] = []

    def check() -> None:
        try:
            found.append(check_entries([entry], LAST, LAST_CONFIG, FILE_BYTES))
        except EntryRefused as error:
            found.append(str(error))

    check()
    with pure():
        check()
    return found


def made(dice: Random, *, odd: float) -> Entry:
    host, covered, count = dice.choice((HOSTS[0], HOSTS[0], HOSTS[1])), b"", dice.choice((1, 1, 2, 9))
    size = control_bytes(host)
    for number in range(count):
        covered += encode_record(
            "T", number, bytes(dice.choice((0, 30, 600))), physical_offset=LAST.end + size + len(covered),
            queue_offset=number, store_host=host,
        )  # fmt: skip
    control = Control(
        7, LAST.end, size, 1_700_000_000_000, EntryType.MESSAGES, 0, 3, 3, len(covered), count, crc32(covered), 6, 2, 0,
        b"",
    )  # fmt: skip
    for name, values in ODD.items():
        if dice.random() < odd:
            control = control._replace(**{name: dice.choice(values)})  # type: ignore[arg-type] # each of its own type
    control = chained(control, LAST.chain ^ (dice.random() < odd))
    return Entry(7, dice.choice((3, 3, 3, 2)) if odd else 3, LAST.end, encode_control(control, host) + covered)


@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.1]))
@example(1, 0.0)
def test_an_entry_is_taken_or_refused_alike(seed: int, odd: float) -> None:
    compiled, python = both(made(Random(seed), odd=odd))
    assert compiled == python
    if not odd:
        assert isinstance(compiled, list)
        assert type(compiled[0].control) is Control
        assert [type(value) for value in compiled[0].control] == [type(value) for value in python[0].control]  # type: ignore[union-attr] # as the other one


@given(st.integers(0, 1 << 32), st.data())
def test_an_entry_of_which_bytes_changed_is_refused_alike(seed: int, data: st.DataObject) -> None:
    entry = made(Random(seed), odd=0.0)
    content = bytearray(entry.data)
    at = data.draw(st.integers(0, min(len(content) - 1, 250)))
    content[at] ^= data.draw(st.integers(1, 255))
    compiled, python = both(entry._replace(data=bytes(content)))
    assert compiled == python


def test_every_byte_of_the_control_record_counts() -> None:
    entry = made(Random(1), odd=0.0)
    for at in range(len(entry.data)):
        content = bytearray(entry.data)
        content[at] ^= 0x41
        compiled, python = both(entry._replace(data=bytes(content)))
        assert compiled == python, at
        # Of the records that it covers the entry's CRC tells.
        assert isinstance(compiled, str), at


@pytest.mark.parametrize("cut", [0, 1, 87, 88, 140, 164, 165])
def test_an_entry_that_is_cut_off(cut: int) -> None:
    entry = made(Random(1), odd=0.0)
    compiled, python = both(entry._replace(data=entry.data[:cut]))
    assert compiled == python
    assert isinstance(compiled, str)


def test_a_leader_writes_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for place, compiled in (("compiled", True), ("python", False)):
        node = open_node(tmp_path / place)
        if compiled:
            lead(node, 3)
        else:
            with pure():
                lead(node, 3)
        found.append(([entry.data for entry in sent(node, 1)], [node.log.control(index) for index in range(1, 5)]))
        node.store.close()
    assert found[0] == found[1]


def test_usual_entries_are_read_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = open_node(tmp_path / "a"), open_node(tmp_path / "b")
    lead(leader, 3)
    entries = sent(leader, 1)
    # The first one is a CONFIG.
    follower.log.accept(entries[:1])
    monkeypatch.setattr(entrycheck, "_check_entry", lambda *_: pytest.fail("the general way"))
    follower.log.accept(entries[1:])
    assert follower.content == leader.content
    leader.store.close()
    follower.store.close()
