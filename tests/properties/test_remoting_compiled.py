"""Cutting sends out of a stream, compiled or in Python, equals decoding each frame, wherever reads are cut."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.messages.send_checks import special
from remoting import sendrows
from remoting.command import Command
from remoting.compiled.door import hotpath
from remoting.framing import FrameReader
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.record import topic_field
from remoting.runs import Cut, SendRun
from runtime.crc import crc32
from store.types import Dispatched
from tests.parts.odd_sends import SPECIAL, framed, header_of, odd, usual
from tests.parts.send_runs import CUTS, needs_hotpath, send_frame

SEEDS = st.integers(0, 1 << 32)
each_way = pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)


def rows_of(cut: Cut, data: bytes, at: int, most: int, limit: int = 1 << 24) -> Any:
    """Return the rows of a run, () where none begins."""
    run = cut(data, at, most, limit)
    return () if run is None else run.rows


def read(
    reads: list[bytes], cut: Cut | None, *, most: int = 1 << 30, limit: int = 1 << 24
) -> tuple[list[Any], str, int]:
    """Return what was read, why no more is, and how many runs it came in."""
    reader = FrameReader(limit)
    reader.cuts = cut
    found, runs_seen = list[Command](), 0
    for data in reads:
        if reader.error is not None:
            break
        commands = reader.feed(data, most)
        while True:
            count = 0
            for command in commands:
                each = command.commands() if isinstance(command, SendRun) else [command]
                runs_seen += isinstance(command, SendRun)
                count += len(each)
                found += each
            # One that was begun before comes on top.
            assert count <= most + 1
            if not reader.unread or reader.error is not None:
                break
            commands = reader.more(most)
    shown = [(each.code, each.opaque, each.flag, each.serialize_type, each.version, each.language, each.remark,
              bytes(each.body), type(each.body), type(each.typed_header), each.raw_header, each.raw_ext)
             for each in found]  # fmt: skip
    return shown, str(reader.error), runs_seen


def stream(dice: Random, usuals: int, others: int) -> bytes:
    frames = [usual(dice, number) for number in range(usuals)]
    for number in range(others):
        frames.insert(dice.randrange(len(frames) + 1), odd(dice, usuals + number))
    return b"".join(frames)


def pieces(dice: Random, data: bytes, count: int) -> list[bytes]:
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(count - 1))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@each_way
@given(SEEDS, st.integers(0, 30), st.integers(0, 5), st.integers(1, 4), st.sampled_from([1, 2, 16, 1 << 30]))
def test_the_same_commands(cut: Cut, seed: int, usuals: int, others: int, count: int, most: int) -> None:
    dice = Random(seed)
    reads = pieces(dice, stream(dice, usuals, others), count)
    for limit in (1 << 24, 600):
        found, error, _ = read(reads, cut, most=most, limit=limit)
        assert (found, error) == read(reads, None, most=most, limit=limit)[:2]


@each_way
@given(SEEDS, st.integers(1, 5))
def test_the_same_of_bytes_that_were_changed(cut: Cut, seed: int, changes: int) -> None:
    dice = Random(seed)
    data = bytearray(stream(dice, 4, 1))
    for _ in range(changes):
        data[dice.randrange(len(data))] = dice.choice(
            (0, 1, 2, 0x22, 0x2C, 0x30, 0x5C, 0x7B, 0x7D, 0xFF, dice.randrange(256))
        )
    found, error, _ = read([bytes(data)], cut)
    assert (found, error) == read([bytes(data)], None)[:2]


@each_way
@pytest.mark.parametrize("properties", ["", "TAGS\x01A\x02KEYS\x01k1 k2"])
def test_reads_cut_at_every_byte(cut: Cut, properties: str) -> None:
    data = b"".join(send_frame(number, properties=properties) for number in range(4))
    wanted = read([data], None)[:2]
    assert read([data], cut)[2] == 1
    for at in range(len(data)):
        found, error, _ = read([data[:at], data[at:]], cut)
        assert (found, error) == wanted


@each_way
@given(SEEDS, st.integers(0, 40), st.integers(0, 20))
def test_what_is_known_of_a_run_is_what_its_sends_say(cut: Cut, seed: int, usuals: int, others: int) -> None:
    dice = Random(seed)
    data, at, sizes = stream(dice, usuals, others), 0, list[int]()
    while at < len(data):
        rows = rows_of(cut, data, at, 64)
        if not rows:
            at += 4 + int.from_bytes(data[at : at + 4], "big")
            continue
        assert rows.data == data[at : at + len(rows.data)]
        at += len(rows.data)
        sizes.append(len(rows))
        commands = SendRun(rows).commands()
        flags, queues, texts = 0, dict.fromkeys(rows.topics, 0), list[str]()
        for command, fields, place in zip(commands, rows.fields(b"end"), rows.places(), strict=True):
            header = command.typed_header
            assert isinstance(header, SendMessageRequestHeaderV2)
            text = header.properties or ""
            assert special("\x02" + text) is None, "it would have to be looked at"
            assert (command.flag, header.reconsumeTimes or 0, header.unitMode, header.batch) == (0, 0, False, False)
            stored = text if text.endswith("\x02") else text + "\x02"
            assert fields == (
                header.topic, header.queueId, header.flag, header.sysFlag, header.bornTimestamp, command.body,
                stored.encode() + b"end",
            )  # fmt: skip
            assert place[:2] == (header.topic, header.queueId)
            assert f"\x02UNIQ_KEY\x01{place[2]}\x02" in "\x02" + stored
            flags |= header.sysFlag
            queues[header.topic] = max(queues[header.topic], header.queueId)
            texts.append(stored)
        assert (rows.sys_flags, dict(zip(rows.topics, rows.queues_max, strict=True))) == (flags, queues)
        bodies = [len(command.body) for command in commands]
        assert (rows.body_bytes, rows.body_max) == (sum(bodies), max(bodies))
        assert (rows.properties_bytes, rows.properties_max) == (sum(map(len, texts)), max(map(len, texts)))
    assert sum(sizes) >= usuals, "usual ones are taken"


@each_way
@pytest.mark.parametrize("pair", SPECIAL)
@pytest.mark.parametrize("before", ["", "a\x01b\x02"])
def test_what_has_to_be_looked_at_is_in_no_run(cut: Cut, pair: str, before: str) -> None:
    data = send_frame(1, properties=f"{before}{pair}\x02")
    taken = rows_of(cut, data, 0, 1)
    if special(f"\x02{pair}"):
        assert not taken


@each_way
@pytest.mark.parametrize(
    "changes",
    [
        {"a": "P" * 1300}, {"b": "\u00dc"}, {"e": "-1"}, {"f": "-1"}, {"g": "-1"}, {"h": "2147483648"}, {"j": "1"},
        {"k": "true"}, {"l": "-1"}, {"m": "true"}, {"o": "x"}, {"i": "TAGS\x01A\x02"}, {"i": "UNIQ_KEY\x01\x02"},
        {"i": 'UNIQ_KEY\x01a"b\x02'}, {"i": "UNIQ_KEY\x01A\x02UNIQ_KEY\x01A\x02"}, {"i": "UNIQ_KEY\x01A\x02\x01v\x02"},
        {"i": "UNIQ_KEY\x01A\x02TAGS\x01A\x02TAGS\x01A\x02"}, {"i": "UNIQ_KEY\x01A\x02KEYS\x01A\x02KEYS\x01A\x02"},
        {"i": "UNIQ_KEY\x01A\x02WAIT\x01true\x02WAIT\x01false\x02"}, {"i": "UNIQ_KEY\x01A\x02v\x02"},
        {"i": "UNIQ_KEY\x01A\x02v\x01w\x01\x02"}, {"i": "UNIQ_KEY\x01A\x02v\x01\x00\x02"},
    ],
)  # fmt: skip
def test_what_is_unusual_is_in_no_run(cut: Cut, changes: dict[str, str]) -> None:
    fields = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "UNIQ_KEY\x01A"}
    usual_one, other = (framed(header_of(Random(1), 1, each)) for each in (fields, fields | changes))
    assert len(rows_of(cut, usual_one + other, 0, 10)) == 1
    assert not rows_of(cut, other + usual_one, 0, 10)


@needs_hotpath
@given(SEEDS, st.integers(1, 40), st.sampled_from([8, 20]), st.sampled_from([8, 20]), st.integers(0, 1 << 40))
def test_records_and_answers_of_a_run_are_the_same(seed: int, usuals: int, born: int, store: int, end: int) -> None:
    dice = Random(seed)
    data = stream(dice, usuals, 0)
    pieces = tuple(dice.choice((b"", b"%", b"%d", b"piece")) for _ in range(6))
    seen = []
    for cut in CUTS.values():
        dice.seed(seed)
        rows = rows_of(cut, data, 0, 64)
        named = [topic_field(topic.encode()) for topic in rows.topics]
        flags = [dice.choice((0, 2, 0x30, 0x400)) for _ in named]
        known = {(topic, 0): dice.randrange(9) for topic in rows.topics}
        placed = rows.place(
            Dispatched, named, flags, dice.randbytes(born), dice.randbytes(store), b"suffix\x01\x02", known,
            lambda topic, queue_id: len(topic) + queue_id, end, 1_700_000_000_000, crc32,
        )  # fmt: skip
        assert {type(each) for each in placed[1]} == {Dispatched}
        seen.append((placed, rows.placed(), known, rows.answers(pieces)))
    assert seen[0] == seen[1]


@each_way
def test_limits_of_a_run(cut: Cut) -> None:
    data = b"".join(send_frame(number, topic=f"T{number}") for number in range(100))
    assert [len(rows_of(cut, data, 0, most)) for most in (-1, 0, 1, 2, 64, 65, 1 << 40)] == [0, 0, 1, 2, 64, 64, 64]
    frame = send_frame(1)
    many = frame * 3000
    assert len(rows_of(cut, many, 0, 1 << 40)) == 1024
    assert len(rows_of(cut, many, 0, 1 << 40, len(frame) - 4)) == 1024
    assert not rows_of(cut, many, 0, 1 << 40, len(frame) - 5)
    for at in (-1, len(many), len(many) + 1, 1 << 40, len(many) - 31):
        assert not rows_of(cut, many, at, 10)
    for size, taken in ((16_383, True), (16_384, False)):
        assert bool(rows_of(cut, send_frame(1, body=bytes(size)), 0, 1)) is taken
    assert not rows_of(cut, framed(b"{}" * 16), 0, 10)


def test_what_is_kept_of_the_names_of_properties_has_a_bound() -> None:
    cut = CUTS["runs in Python"]
    for number in range(1000):
        assert rows_of(cut, send_frame(1, properties=f"n{number}\x01v\x02"), 0, 1)
    kept = sendrows._known_where.cache_info()
    assert kept.currsize == kept.maxsize == 256
    assert rows_of(cut, send_frame(1, properties=f"{'n' * 600}\x01v\x02"), 0, 1)
    assert sendrows._known_where.cache_info() == kept
    for pairs, taken in ((31, True), (32, False)):
        # With the unique key.
        assert bool(rows_of(cut, send_frame(1, properties="a\x01b\x02" * pairs), 0, 1)) is taken


@needs_hotpath
def test_numbers_of_64_bits_and_more_are_told_not_cut() -> None:
    assert hotpath is not None
    for wrong in (1 << 63, -(1 << 63) - 1, 1 << 70):
        with pytest.raises(OverflowError):
            hotpath.cut_sends(b"", wrong, 1, 1)
        with pytest.raises(OverflowError):
            hotpath.pack_entries([(wrong, 1, 1)])
    with pytest.raises(OverflowError):
        hotpath.pack_entries([(1, 1 << 31, 1)])
