"""All ways of sends are equal, compiled ones, in Python and each by itself: of bytes, answers and figures."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.protocol.types import Fate
from remoting.codes import ResponseCode
from tests.parts.odd_sends import odd, usual
from tests.parts.run_brokers import TOPICS, RunBroker, Seen
from tests.parts.send_runs import WAYS, send_frame

SEEDS = st.integers(0, 1 << 32)
# How many usual sends, how many others between them, into how many reads all is cut.
READS = st.tuples(st.just("read"), st.sampled_from([1, 2, 20, 60, 600]), st.sampled_from([0, 0, 1, 3, 10]),
                  st.sampled_from([1, 1, 2, 5]), SEEDS)  # fmt: skip
STEPS = st.one_of(
    READS,
    READS,
    READS,
    st.tuples(st.just("turn")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("tick")),
    st.tuples(st.just("idle")),
    st.tuples(st.just("settled")),
    st.tuples(st.just("topic"), st.sampled_from("TUV"), st.integers(1, 4)),
    st.tuples(st.just("delete"), st.sampled_from("TUV")),
    st.tuples(st.just("quotas"), st.booleans()),
    st.sampled_from([
        ("config", "traceOn", "false"), ("config", "traceOn", "true"), ("config", "regionId", 'r"%d'),
        ("config", "regionId", "ü"), ("config", "maxMessageSize", "512"), ("config", "maxMessageSize", "17000"),
        ("config", "autoCreateTopicEnable", "false"), ("config", "brokerPermission", "4"),
    ]),
    st.tuples(st.just("full_disk")),
)  # fmt: skip
# Scripts are long, so that few tell much.
_FEW = settings(max_examples=max(12, settings().max_examples // 8))


def stream(usuals: int, others: int, pieces: int, seed: int, first: int) -> list[bytes]:
    """Return reads of so many usual sends with some others among them."""
    dice = Random(seed)
    calm = dice.random() < 0.7
    frames = [usual(dice, first + number, calm=calm) for number in range(usuals)]
    for number in range(others):
        frames.insert(dice.randrange(len(frames) + 1), odd(dice, first + usuals + number))
    data = b"".join(frames)
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(pieces - 1))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if begin < end]


async def played(script: Sequence[tuple[Any, ...]], folder: str, seen: list[Seen], **options: Any) -> None:
    broker = RunBroker(Path(folder), **options)
    # The first send to a topic is looked at, so that those behind it need not be.
    await broker.read(b"".join(send_frame(number, topic=topic) for number, topic in enumerate(TOPICS)))
    await broker.settled()
    count = len(TOPICS)
    for name, *arguments in script:
        if name == "read":
            usuals, others, pieces, seed = arguments
            for data in stream(usuals, others, pieces, seed, count):
                await broker.read(data)
            count += usuals + others
        else:
            await getattr(broker, name)(*arguments)
    # Not returned: when it ends, asyncio writes a task's result out in full, and throws that away.
    seen.append(await broker.end())


def play(script: Sequence[tuple[Any, ...]], way: str, **options: Any) -> Seen:
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory() as folder, WAYS[way]():
        asyncio.run(played(script, folder, seen, **options))
    return seen[0]


def check(script: Sequence[tuple[Any, ...]], **options: Any) -> Seen:
    seen = [play(script, way, **options) for way in WAYS]
    if options.get("sync"):
        # What is refused need not wait for what is flushed.
        seen = [each._replace(answers=sorted(each.answers)) for each in seen]
    wanted, *others = seen
    for found in others:
        for name, one, other in zip(Seen._fields, found, wanted, strict=True):
            assert one == other, name
    return wanted


@_FEW
@given(st.lists(STEPS, min_size=3, max_size=10))
def test_what_is_stored_and_answered_is_the_same(script: list[tuple[Any, ...]]) -> None:
    check(script)


@_FEW
@given(st.lists(STEPS, min_size=3, max_size=8), st.sampled_from([("10.0.0.7", 4711), ("fd00::1", 4711)]))
def test_what_is_flushed_before_it_is_answered_is_the_same(
    script: list[tuple[Any, ...]], host: tuple[str, int]
) -> None:
    check(script, sync=True, host=host)


FATES = st.tuples(st.just("fate"), st.sampled_from([Fate.COMMITTED, Fate.COMMITTED, Fate.OVERWRITTEN, Fate.UNKNOWN]))
GROUP_STEPS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from([1, 2, 20, 60]), st.sampled_from([0, 0, 1, 3]), st.sampled_from([1, 2]),
              SEEDS),
    st.sampled_from([("turn",), ("turn",), ("tick",), ("settled",), ("full_disk",)]),
    FATES,
)  # fmt: skip


@_FEW
@given(st.lists(GROUP_STEPS, min_size=3, max_size=10))
def test_what_a_groups_leader_stores_and_answers_is_the_same(script: list[tuple[Any, ...]]) -> None:
    # In one file: where the next one begins both guess, each in its way, and on the safe side.
    check(script, raft=True, file_bytes=1 << 21)


@pytest.mark.parametrize("fate", [*Fate])
@pytest.mark.parametrize("usuals", [30, 400])
def test_an_entry_that_not_all_find_room_in(fate: Fate, usuals: int) -> None:
    """Of 400 sends 64 KiB hold a part: the others are refused, whatever becomes of the entry."""
    seen = check([("fate", Fate.COMMITTED), ("read", usuals, 0, 1, 5), ("settled",), ("fate", fate)], raft=True)
    assert (ResponseCode.SYSTEM_BUSY in seen.counts) == (usuals == 400 and fate is not Fate.UNKNOWN)


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("usuals", [10, 90, 400])
def test_a_write_that_finds_no_room(usuals: int, sync: bool) -> None:
    """Of 400 sends in 64 KiB files not all stand in one, so that each was given its place by itself before."""
    script = [("read", usuals, 0, 1, 5), ("full_disk",), ("read", 20, 0, 1, 7), ("settled",), ("read", 20, 0, 1, 7)]
    seen = check(script, sync=sync)
    assert seen.failures >= usuals
    assert ResponseCode.SERVICE_NOT_AVAILABLE in seen.counts
