"""Random scripts against a group member's log and its twin: appends, cuts, commits, crashes, in any order."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.store_group_twin import GroupTwin

KINDS = st.sampled_from([0, 1, 1, 1, 1, 2, 3])
SIZES = st.lists(st.sampled_from([8, 301, 700]), min_size=1, max_size=3)
SEEDS = st.integers(0, 1 << 16)

STEPS = st.one_of(
    st.tuples(st.just("lead"), KINDS, SIZES),
    st.tuples(st.just("lead"), KINDS, SIZES),
    st.tuples(st.just("follow"), st.sampled_from([1, 2000, 20_000])),
    st.tuples(st.just("follow"), st.sampled_from([1, 2000, 20_000])),
    st.tuples(st.just("stray"), KINDS, SIZES),
    st.tuples(st.just("flush")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("release"), st.integers(0, 3)),
    st.tuples(st.just("help")),
    st.tuples(st.just("idle"), st.integers(0, 6)),
    st.tuples(st.just("turn_clock"), st.integers(-1000, 1000)),
    st.tuples(st.just("set_fuse"), st.integers(1, 20)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("kill"), SEEDS, st.integers(0, 14)),
    st.tuples(st.just("power"), SEEDS, st.integers(0, 14)),
)


def play(script: list[tuple[Any, ...]], folder: Path) -> None:
    twin = GroupTwin(folder)
    for number, (name, *arguments) in enumerate(script):
        if name in {"kill", "power"}:
            seed, again_after = arguments
            twin.crash(seed, power=name == "power", again_after=again_after)
        else:
            twin.survive(partial(getattr(twin, name), *arguments), number)
        twin.check()
    twin.crash(len(script), power=False)
    twin.check()
    twin.store.close()


# Without a least length most scripts are too short for anything to happen.
@given(st.lists(STEPS, min_size=10, max_size=40))
def test_R4_R5_R11_R12_log_of_entries_equals_its_twin(script: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        play(script, Path(folder))
