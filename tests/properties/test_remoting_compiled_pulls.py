"""Pulls that are cut as runs are the commands that their frames are, however they come."""

from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.codec import decode_parts
from remoting.command import JSON, Command
from remoting.compiled.door import hotpath
from remoting.framing import FrameReader
from remoting.headers.registry import PullMessageRequestHeader
from remoting.runs import PullRun, RequestRun, cut_any
from tests.parts import odd_pulls, odd_sends
from tests.parts.odd_sends import framed
from tests.parts.send_runs import needs_hotpath

pytestmark = needs_hotpath

SEEDS = st.integers(0, 1 << 32)
Found = list[tuple[int, int, int, dict[str, str], bytes]]


def read(pieces: list[bytes], *, runs: bool) -> tuple[Found, str, int]:
    """Return the commands, the error, and how many pulls came in runs."""
    reader, found, in_runs = FrameReader(), [], 0
    reader.cuts = cut_any if runs else None
    for piece in pieces:
        if reader.error is not None:
            break
        for command in reader.feed(piece):
            in_runs += len(command) if isinstance(command, PullRun) else 0
            each = command.commands() if isinstance(command, RequestRun) else [command]
            found += [(one.code, one.opaque, one.flag, dict(one.ext), bytes(one.body)) for one in each]
    return found, str(reader.error or ""), in_runs


def stream(dice: Random, usuals: int, others: int) -> bytes:
    makers = [odd_pulls.usual] * usuals + [dice.choice((odd_pulls.odd, odd_sends.usual)) for _ in range(others)]
    if dice.random() < 0.7:
        dice.shuffle(makers)
    return b"".join(make(dice, number) for number, make in enumerate(makers))


@given(SEEDS, st.integers(0, 100), st.integers(0, 20), st.integers(1, 6))
def test_reads_with_pulls_cut_as_runs_bring_the_same(seed: int, usuals: int, others: int, cuts: int) -> None:
    dice = Random(seed)
    data = stream(dice, usuals, others)
    places = sorted(dice.randrange(len(data) + 1) for _ in range(cuts))
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    found, error, in_runs = read(pieces, runs=True)
    assert (found, error) == read(pieces, runs=False)[:2]
    if not others:
        assert in_runs >= usuals - cuts, "usual ones are taken, but for those that come in two pieces"


def test_reads_of_pulls_cut_at_every_byte() -> None:
    dice = Random(1)
    data = b"".join(odd_pulls.usual(dice, number) for number in range(4))
    wanted = read([data], runs=False)[:2]
    assert read([data], runs=True)[2] == 4
    for at in range(len(data)):
        assert read([data[:at], data[at:]], runs=True)[:2] == wanted


@given(SEEDS, st.integers(1, 40), st.integers(0, 20))
def test_what_is_known_of_a_run_is_what_its_pulls_say(seed: int, usuals: int, others: int) -> None:
    dice = Random(seed)
    data, at, taken = stream(dice, usuals, others), 0, 0
    while at < len(data):
        rows = hotpath.cut_pulls(data, at, 64, 1 << 24)
        if rows is None:
            at += 4 + int.from_bytes(data[at : at + 4], "big")
            continue
        assert rows.data == data[at : at + len(rows.data)]
        at += len(rows.data)
        taken += len(rows)
        before: tuple[object, object] = (None, None)
        for number, row in enumerate(rows.asked):
            command = decode_parts(JSON, *rows.frame(number))
            header = command.header(PullMessageRequestHeader)
            size = -1 if header.maxMsgBytes is None else header.maxMsgBytes
            texts = (header.consumerGroup, header.topic, header.subscription, header.expressionType)
            assert (command.code, command.flag, command.opaque) == (11, 0, row[1])
            assert row == (
                texts, command.opaque, header.queueId, header.queueOffset, header.maxMsgNums, header.sysFlag,
                header.commitOffset, header.suspendTimeoutMillis, header.subVersion, size,
            )  # fmt: skip
            assert texts != before[0] or row[0] is before[1], "the same object for the same"
            before = (texts, row[0])
    assert taken >= usuals, "usual ones are taken"


def test_limits_of_a_run_of_pulls() -> None:
    dice = Random(2)
    frame = odd_pulls.usual(dice, 1)
    many = frame * 100
    assert [len(hotpath.cut_pulls(many, 0, most, 1 << 24) or ()) for most in (-1, 0, 1, 2, 64, 65, 1 << 40)] == [
        0, 0, 1, 2, 64, 64, 64
    ]  # fmt: skip
    assert len(hotpath.cut_pulls(many, 0, 10, len(frame) - 4) or ()) == 10
    assert hotpath.cut_pulls(many, 0, 10, len(frame) - 5) is None
    for at in (-1, len(many), len(many) + 1, 1 << 40, len(many) - 31):
        assert hotpath.cut_pulls(many, at, 10, 1 << 24) is None
    assert hotpath.cut_pulls(framed(b"{}" * 16), 0, 10, 1 << 24) is None
    with pytest.raises(OverflowError):
        hotpath.cut_pulls(b"", 1 << 70, 1, 1)


def test_a_run_of_pulls_goes_on_where_it_was_stopped() -> None:
    dice = Random(3)
    data = b"".join(odd_pulls.usual(dice, number) for number in range(5))

    def made() -> PullRun:
        rows = hotpath.cut_pulls(data, 0, 10, 1 << 24)
        assert rows is not None
        run = PullRun(rows)
        run.until, run.read_at, run.waited = 3.0, 2.0, 1.0
        return run

    def opaques(commands: list[Command]) -> list[int]:
        return [each.opaque for each in commands]

    assert opaques(made().left()) == [0, 1, 2, 3, 4], "whoever knows no runs has each by itself"
    run = made()
    assert run.stopped(2, apart=False).left() == [cast(Command, run)]
    assert (len(run), opaques(run.left())) == (3, [2, 3, 4])
    first, rest = run.stopped(3, apart=True).left()
    assert (first.opaque, first.until, first.read_at, first.waited) == (3, 3.0, 2.0, 1.0)
    assert rest is cast(Command, run)
    assert opaques(run.left()) == [4]
    assert opaques(run.stopped(4, apart=True).left()) == [4], "none is left behind it"
