"""Every decoder of others' bytes against some hundred inputs each, and what the harness finds in decoders that are bad.

`make fuzz` gives them a hundred thousand (tests/fuzz/run.py) and strict bounds on time.
"""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import cbor2
import pytest
from rich.console import Console

from remoting.codec import FRAME_BYTES_MAX
from remoting.fastjson import DIALECT_BYTES_MAX
from tests.fuzz import targets_http
from tests.fuzz.bounds import BOUNDS, GENEROUS, KIB, MIB, Bounds, Target, measure
from tests.fuzz.run import Row, fed, keep_broken, repeat
from tests.fuzz.targets import input_at, least, shares, targets
from tests.fuzz.targets_remoting import DEEP

SEED = 7
# For each of its weight; bodies, of which there are dozens, have a weight of one.
INPUTS = 60


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    """Decoders log what they refuse."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    targets_http.close()


@pytest.mark.parametrize("name", targets())
def test_each_decoder_keeps_its_bounds_and_raises_its_own_errors(name: str) -> None:
    target = targets()[name]
    first, made = len(target.seeds), least(target)
    row = fed(target, SEED, [*range(first), *range(made, made + INPUTS * target.weight)], GENEROUS)
    assert row.breaches == []
    assert row.accepted, "a seed at least is read"
    assert row.accepted + row.refused == row.inputs


def test_large_inputs_keep_the_bounds_on_memory_too() -> None:
    """One of each decoder: `make fuzz` feeds them all."""
    found = Row("all")
    for name, target in targets().items():
        if target.heavy and (not name.startswith("body.") or name == "body.HeartbeatData"):
            data = target.heavy[0]()
            found.add(measure(target, data[:MIB], GENEROUS, memory=False), 0, GENEROUS)
    assert found.breaches == []
    assert found.refused > found.accepted > 0


# What the issue was filed with, by decoder: each of these has stopped a server for seconds, or taken gigabytes.
NAMED = {
    "raft.handshake.accept": rb"\xd8\x23.*\(a\?\)",
    "raft.messages": rb"\x81\xc2",
    "json.dialect": rb"\[0,0,",
    "registration.compressed": rb"x\x9c",
    "frames.stream": rb"\x01\x00\x00\x00",
    "compressed.zlib": rb"x",
    "compressed.lz4": rb"\x04\x22\x4d\x18",
    "compressed.zstd": rb"\x28\xb5\x2f\xfd",
}


@pytest.mark.parametrize(("name", "pattern"), NAMED.items())
def test_the_inputs_that_stopped_servers_are_among_the_seeds(name: str, pattern: bytes) -> None:
    assert any(re.match(pattern, make(), re.DOTALL) for make in targets()[name].heavy)


def test_inputs_go_up_to_the_decoders_own_limits() -> None:
    assert len(targets()["frames.stream"].heavy[0]()) == FRAME_BYTES_MAX + 4
    assert len(targets()["body.HeartbeatData"].heavy[-len(DEEP) - 1]()) > MIB
    dialect = [len(make()) for make in targets()["json.dialect"].heavy]
    assert any(DIALECT_BYTES_MAX - 50 < size <= DIALECT_BYTES_MAX for size in dialect)
    assert max(dialect) > 4 * MIB - 50
    assert any(len(make()) == 712 for make in targets()["raft.handshake.accept"].heavy)


def test_inputs_are_the_same_from_the_same_seed_alone() -> None:
    target = targets()["cbor"]
    indexes = range(least(target), least(target) + 50)
    first = [input_at(target, SEED, index) for index in indexes]
    assert [input_at(target, SEED, index) for index in reversed(indexes)] == first[::-1]
    assert [input_at(target, SEED + 1, index) for index in indexes] != first


def test_a_number_of_inputs_is_divided_among_all() -> None:
    counts = shares(list(targets().values()), 100_000)
    assert sum(counts.values()) >= 100_000
    assert min(counts.values()) >= 300
    assert counts["cbor"] > 5 * counts["body.KVTable"]


def _slow(data: bytes) -> int:
    """Look at each byte once for each byte before it, from 2 KiB on."""
    return sum(sum(data[:at]) for at in range(len(data))) if len(data) > 2 * KIB else 0


def _endless(data: bytes) -> None:
    while len(data) > 2 * KIB:
        pass


def _hog(data: bytes) -> list[bytes]:
    """Keep a KiB for each byte, once there is a word of the format."""
    return [bytes(KIB) for _ in data] if b"null" in data else []


def _wrong(data: bytes) -> None:
    if b"null" in data:
        raise KeyError("seven")
    raise ValueError("documented")


@pytest.mark.parametrize(
    ("decode", "bounds", "found"),
    [
        (_slow, BOUNDS, "it took .* ms for"),
        (_endless, Bounds(seconds_per_kib=0.00001), "it was stopped after"),
        (_hog, GENEROUS, "bytes of memory for"),
        (_wrong, GENEROUS, "it raised KeyError: 'seven'"),
    ],
)
def test_the_harness_finds_what_is_planted(decode: object, bounds: Bounds, found: str) -> None:
    assert callable(decode)
    target = Target("planted", decode, (ValueError,), (b'{"a":12,"b":[3]}' * 300,), bytes_max=8 * KIB)
    index = 0
    while not (row := fed(target, SEED, [index], bounds)).breaches:
        index += 1
        assert index < 3000, "not found"
    assert re.search(found, row.breaches[0][1])


def test_what_breaks_a_bound_is_kept_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    target = targets()["cbor"]
    row = Row("cbor", breaches=[(0, "it was wrong")])
    (kept,) = keep_broken([row], SEED)
    assert Path(kept["file"]).read_bytes() == target.seeds[0]
    assert kept["repeat"] == f"python -m tests.fuzz.run --only cbor --file {kept['file']}"
    said = Console(file=io.StringIO(), width=200)
    assert repeat(target, Path(kept["file"]), said) == 0
    assert repeat(Target("cbor", _wrong, (), ()), Path(kept["file"]), said) == 1


def test_bounds_are_of_what_a_packed_body_comes_to() -> None:
    target = targets()["compressed.zlib"]
    bomb = target.heavy[0]()
    assert len(bomb) < 2 * KIB
    assert target.unfolded(bomb) == MIB
    assert cbor2.loads(targets()["raft.config"].seeds[0])[0] == 1
