"""Pulls of one read are answered the same, served as runs or each by itself: frames, offsets, counts, who is parked."""

import asyncio
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.parts import odd_pulls
from tests.parts.odd_sends import framed
from tests.parts.puller import Puller, PullsSeen, puller
from tests.parts.send_runs import needs_hotpath

pytestmark = needs_hotpath

SEEDS = st.integers(0, 1 << 32)
TAGS = ("", "A", "B", "C")
BODIES = (0, 10, 100, 1000, 9000)


def put(dice: Random, broker: Puller, count: int) -> None:
    for _ in range(count):
        tags = {"TAGS": tag} if (tag := dice.choice(TAGS)) else {}
        broker.parts.put(dice.choice("TTU"), dice.randrange(2), bytes(dice.choice(BODIES)), **tags)


def read(dice: Random, first: int) -> bytes:
    """Return what one read brings: pulls, mostly usual ones, often of the same queue one behind the other."""
    frames = []
    for number in range(first, first + dice.choice((1, 2, 5, 20, 70))):
        if dice.random() < 0.1:
            frames.append(odd_pulls.odd(dice, number))
        elif frames and dice.random() < 0.5:
            fields = odd_pulls.fields_of(Random(first)) | {"queueOffset": str(dice.randrange(odd_pulls.OFFSETS))}
            frames.append(framed(odd_pulls.header_of(dice, number, fields)))
        else:
            frames.append(odd_pulls.usual(dice, number))
    return b"".join(frames)


async def step(dice: Random, broker: Puller, number: int) -> None:
    kind, parts = dice.random(), broker.parts
    if kind < 0.3:
        put(dice, broker, dice.choice((1, 3, 30)))
        await broker.settled()
    elif kind < 0.4:
        parts.offsets.reset("G", "T", dice.randrange(2), dice.randrange(5))
    elif kind < 0.45:
        role = broker.setting.role
        role.leads = not role.leads
    elif kind < 0.5:
        parts.config.update({"slaveReadEnable": dice.choice(("true", "false"))})
    elif kind < 0.55:
        parts.store.idle()
    elif kind < 0.6:
        parts.groups.set_readable("H", "U", readable=dice.random() < 0.5)
    await broker.read(read(dice, number * 100))


async def told(seed: int, steps: int, *, runs: bool) -> tuple[PullsSeen, list[str]]:
    dice = Random(seed)
    with TemporaryDirectory() as folder:
        async with puller(Path(folder), runs=runs) as broker:
            put(dice, broker, dice.choice((0, 40, 200)))
            for number in range(steps):
                await step(dice, broker, number)
            broker.setting.pulls.wake_all()
            await broker.settled()
            return broker.seen(), [str(each) for each in broker.setting.forwarded]


@given(SEEDS, st.integers(1, 8))
def test_pulls_in_runs_are_answered_as_each_by_itself(seed: int, steps: int) -> None:
    found = asyncio.run(told(seed, steps, runs=True))
    assert found == asyncio.run(told(seed, steps, runs=False))
