"""What a message costs the servers as something grows: topics, queues, connections, consumers, a backlog, groups."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from raftmq.bench.growing import GROWING_AT_A_BROKER, GrowthProgress, growing_broker
from raftmq.bench.growinggroups import GROUPS, MEMBERS, GrowingGroups
from raftmq.bench.growthrows import GrowthLoad, GrowthSample
from raftmq.bench.security import turned

# What grows: name → the values that are measured.
GROWTH_VALUES: Mapping[str, tuple[int, ...]] = {
    "topics": (1, 10, 100, 1_000, 10_000),
    "queues": (1, 4, 16, 64, 256, 1_024),
    "connections": (1, 10, 100, 1_000, 5_000),
    "consumers": (1, 10, 100),
    "backlog": (0, 100_000, 1_000_000, 5_000_000),
    GROUPS: (1, 2, 4),
    MEMBERS: (1, 3, 5),
}
# The highest that may be asked for of each.
GROWTH_MOST: Mapping[str, int] = {
    "topics": 100_000,
    "queues": 10_000,
    "connections": 20_000,
    "consumers": 10_000,
    "backlog": 1_000_000_000,
    GROUPS: 32,
    MEMBERS: 9,
}


def values_of(of: str, text: str = "") -> tuple[int, ...]:
    """Return the values of `of` that are measured, the lowest first: those of a text such as "1,4", else its own.

    Raises ValueError, a sentence, when there are none or they are out of bounds.
    """
    if not text.strip():
        return GROWTH_VALUES[of]
    lowest, most = (0 if of == "backlog" else 1), GROWTH_MOST[of]
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ValueError(f"{text}: it takes numbers with commas between them, such as 1,4,16") from None
    if found[0] < lowest or found[-1] > most:
        raise ValueError(f"{text}: of {of} it takes {lowest} to {most:,}")
    return tuple(found)


async def run_growth(
    of: str, values: Sequence[int], load: GrowthLoad, progress: GrowthProgress, parent: Path | None = None
) -> AsyncGenerator[GrowthSample]:
    """Yield each measurement: all values by turns, round after round.

    Raises ProcessError, BadAnswer, OSError, NoRoomForBacklog.
    """
    total = load.rounds * len(values)
    if of in GROWING_AT_A_BROKER:
        async with growing_broker(of, values, load, progress, parent) as growing:
            for done, (number, value) in enumerate(_turns(values, load.rounds)):
                progress(of, done, total)
                for sample in await growing.measure(value, number):
                    yield sample
    else:
        groups = GrowingGroups(of, load, progress, parent)
        for done, (number, value) in enumerate(_turns(values, load.rounds)):
            progress(of, done, total)
            for sample in await groups.measure(value, number):
                yield sample
    progress(of, total, total)


def _turns(values: Sequence[int], rounds: int) -> list[tuple[int, int]]:
    """Return (round, value) in the order of measuring: in each round another value comes first."""
    return [(number, value) for number in range(rounds) for value in turned(values, number)]
