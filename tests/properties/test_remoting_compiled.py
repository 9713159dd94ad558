"""Cutting sends out of a stream compiled equals decoding each frame: the same commands, wherever reads are cut."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.messages.send_checks import special
from remoting.command import Command
from remoting.compiled.door import hotpath
from remoting.framing import FrameReader
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.runs import SendRun, cut_any
from tests.parts.odd_sends import SPECIAL, framed, odd, usual
from tests.parts.send_runs import needs_hotpath, send_frame

pytestmark = needs_hotpath

SEEDS = st.integers(0, 1 << 32)


def read(reads: list[bytes], *, runs: bool, most: int = 1 << 30, limit: int = 1 << 24) -> tuple[list[Any], str, int]:
    """Return what was read, why no more is, and how many runs it came in."""
    reader = FrameReader(limit)
    reader.cuts = cut_any if runs else None
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


@given(SEEDS, st.integers(0, 30), st.integers(0, 5), st.integers(1, 4), st.sampled_from([1, 2, 16, 1 << 30]))
def test_the_same_commands(seed: int, usuals: int, others: int, count: int, most: int) -> None:
    dice = Random(seed)
    reads = pieces(dice, stream(dice, usuals, others), count)
    for limit in (1 << 24, 600):
        found, error, _ = read(reads, runs=True, most=most, limit=limit)
        assert (found, error) == read(reads, runs=False, most=most, limit=limit)[:2]


@given(SEEDS, st.integers(1, 5))
def test_the_same_of_bytes_that_were_changed(seed: int, changes: int) -> None:
    dice = Random(seed)
    data = bytearray(stream(dice, 4, 1))
    for _ in range(changes):
        data[dice.randrange(len(data))] = dice.choice(
            (0, 1, 2, 0x22, 0x2C, 0x30, 0x5C, 0x7B, 0x7D, 0xFF, dice.randrange(256))
        )
    found, error, _ = read([bytes(data)], runs=True)
    assert (found, error) == read([bytes(data)], runs=False)[:2]


@pytest.mark.parametrize("properties", ["", "TAGS\x01A\x02KEYS\x01k1 k2"])
def test_reads_cut_at_every_byte(properties: str) -> None:
    data = b"".join(send_frame(number, properties=properties) for number in range(4))
    wanted = read([data], runs=False)[:2]
    assert read([data], runs=True)[2] == 1
    for at in range(len(data)):
        found, error, _ = read([data[:at], data[at:]], runs=True)
        assert (found, error) == wanted


@given(SEEDS, st.integers(0, 40), st.integers(0, 20))
def test_what_is_known_of_a_run_is_what_its_sends_say(seed: int, usuals: int, others: int) -> None:
    assert hotpath is not None
    dice = Random(seed)
    data, at, sizes = stream(dice, usuals, others), 0, list[int]()
    while at < len(data):
        rows = hotpath.cut_sends(data, at, 64, 1 << 24)
        if rows is None:
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


@pytest.mark.parametrize("pair", SPECIAL)
@pytest.mark.parametrize("before", ["", "a\x01b\x02"])
def test_what_has_to_be_looked_at_is_in_no_run(pair: str, before: str) -> None:
    assert hotpath is not None
    data = send_frame(1, properties=f"{before}{pair}\x02")
    taken = hotpath.cut_sends(data, 0, 1, 1 << 24)
    if special(f"\x02{pair}"):
        assert taken is None


def test_limits_of_a_run() -> None:
    assert hotpath is not None
    data = b"".join(send_frame(number, topic=f"T{number}") for number in range(100))
    assert [len(hotpath.cut_sends(data, 0, most, 1 << 24) or ()) for most in (-1, 0, 1, 2, 64, 65, 1 << 40)] == [
        0, 0, 1, 2, 64, 64, 64
    ]  # fmt: skip
    frame = send_frame(1)
    many = frame * 3000
    assert len(hotpath.cut_sends(many, 0, 1 << 40, 1 << 24) or ()) == 1024
    assert len(hotpath.cut_sends(many, 0, 1 << 40, len(frame) - 4) or ()) == 1024
    assert hotpath.cut_sends(many, 0, 1 << 40, len(frame) - 5) is None
    for at in (-1, len(many), len(many) + 1, 1 << 40, len(many) - 31):
        assert hotpath.cut_sends(many, at, 10, 1 << 24) is None
    for size, taken in ((16_383, True), (16_384, False)):
        assert (hotpath.cut_sends(send_frame(1, body=bytes(size)), 0, 1, 1 << 24) is not None) is taken
    assert hotpath.cut_sends(framed(b"{}" * 16), 0, 10, 1 << 24) is None


def test_numbers_of_64_bits_and_more_are_told_not_cut() -> None:
    assert hotpath is not None
    for wrong in (1 << 63, -(1 << 63) - 1, 1 << 70):
        with pytest.raises(OverflowError):
            hotpath.cut_sends(b"", wrong, 1, 1)
        with pytest.raises(OverflowError):
            hotpath.pack_entries([(wrong, 1, 1)])
    with pytest.raises(OverflowError):
        hotpath.pack_entries([(1, 1 << 31, 1)])
