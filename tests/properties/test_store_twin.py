"""The store against its twin: whatever is done to it, it holds what the list holds; crashes come at every write."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.store_twin import Twin

TOPICS = st.integers(0, 1)
QUEUES = st.integers(0, 1)
# Few sizes, so that what a crash left behind often stands exactly where a successor would.
SIZES = st.sampled_from([8, 300, 300, 700, 2500])
# A batch stands in one file, and a file is small.
BATCH_SIZES = st.sampled_from([8, 300, 700])
SEEDS = st.integers(0, 1 << 16)

STEPS = st.one_of(
    st.tuples(st.just("put"), TOPICS, QUEUES, SIZES),
    st.tuples(st.just("put"), TOPICS, QUEUES, SIZES),
    st.tuples(st.just("put_batch"), TOPICS, QUEUES, st.lists(BATCH_SIZES, min_size=1, max_size=3)),
    st.tuples(st.just("write")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("idle"), st.integers(0, 6)),
    st.tuples(st.just("turn_clock"), st.integers(-1000, 1000)),
    st.tuples(st.just("fill_disk"), st.integers(0, 2000)),
    st.tuples(st.just("set_fuse"), st.integers(1, 20)),
    st.tuples(st.just("expire")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("kill"), SEEDS, st.integers(0, 12)),
    st.tuples(st.just("power"), SEEDS, st.integers(0, 12)),
)


def play(script: list[tuple[Any, ...]], folder: Path) -> None:
    twin = Twin(folder / "store")
    for number, (name, *arguments) in enumerate(script):
        if name in {"kill", "power"}:
            seed, again_after = arguments
            twin.crash(seed, power=name == "power", again_after=again_after)
        else:
            twin.survive(partial(getattr(twin, name), *arguments), number)
        if name in {"write", "flush", "restart", "kill", "power", "expire"}:
            twin.check()
    twin.crash(len(script), power=False)
    twin.check()
    twin.store.close()


# Without a least length most scripts are too short for anything to happen.
@given(st.lists(STEPS, min_size=10, max_size=40))
def test_store_equals_its_twin(script: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        play(script, Path(folder))
