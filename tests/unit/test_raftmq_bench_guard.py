"""`raftmq bench guard`: when it fails, over made-up pairs, and what it takes for a version."""

import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from raftmq.bench.guard import KINDS, GuardLoad, GuardPair, guarded
from raftmq.bench.load import Result
from raftmq.bench.versions import RunVersion, newest_tag
from raftmq.cli.main import app


def measured(rate: int, *, in_flight: int = 64, busy: float = 0.5, refused: int = 0) -> Result:
    errors = {14: refused} if refused else {}
    return Result("send", 1, in_flight, 100, 0.8, rate, rate, rate, 1.0, 2.0, 3.0, errors, None, busy)


def pair(ratio: float, start: int, number: int, *, kind: str = "raft", in_flight: int = 64) -> GuardPair:
    """A pair of a machine whose rate is another one each time."""
    rate = 1000 * (1 + number) * (1 + start)
    return GuardPair(
        kind, in_flight, start, number, measured(rate, in_flight=in_flight),
        measured(round(rate * ratio), in_flight=in_flight),
    )  # fmt: skip


def pairs(*starts: tuple[float, ...], kind: str = "raft", in_flight: int = 64) -> list[GuardPair]:
    return [
        pair(ratio, start, number, kind=kind, in_flight=in_flight)
        for start, ratios in enumerate(starts)
        for number, ratio in enumerate(ratios)
    ]


def test_a_ratio_is_that_of_its_pairs_whatever_the_machine_did_between_them() -> None:
    (row,) = guarded(pairs((0.8, 0.8, 0.8), (0.9, 0.9, 0.9), (1.0, 1.0, 1.0)))
    assert (row.what, row.in_flight, row.starts, row.rounds) == ("raft, fsync", 64, 3, 9)
    assert row.ratio_of_starts == (0.8, 0.9, 1.0)
    assert (row.ratio, row.ratio_low, row.ratio_high) == (0.9, 0.8, 1.0)
    assert (row.base_p99_ms, row.load_busy, row.base_refused, row.this_refused) == (2.0, 0.5, 0, 0)


@pytest.mark.parametrize(
    ("starts", "slower"),
    [
        (((0.89, 0.88, 0.89), (0.85, 0.86, 0.87), (0.8, 0.8, 0.8)), True),
        (((0.89, 0.88, 0.89), (0.85, 0.86, 0.87), (0.9, 0.9, 0.9)), False),
        # Its median is far below, but nobody knows.
        (((0.5, 1.1, 0.6),), False),
        (((1.2, 1.3, 1.2),), False),
    ],
)
def test_slower_is_what_lies_below_nine_tenths_with_all_of_its_interval(
    starts: tuple[tuple[float, ...], ...], slower: bool
) -> None:
    (row,) = guarded(pairs(*starts))
    assert (row.slower, row.as_dict()["slower"]) == (slower, slower)


def test_rows_stand_in_the_order_of_kinds_and_what_was_refused_is_counted() -> None:
    found = guarded([
        *pairs((1.0,), in_flight=512), *pairs((1.0,), in_flight=1), *pairs((1.0,), kind="single-async"),
        GuardPair("pull", 64, 0, 0, measured(10, refused=2), measured(10, refused=3)),
    ])  # fmt: skip
    assert [(row.what, row.in_flight) for row in found] == [
        ("single, async flush", 64), ("single, pull of 32", 64), ("raft, fsync", 1), ("raft, fsync", 512),
    ]  # fmt: skip
    assert (found[1].base_refused, found[1].this_refused) == (2, 3)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[GuardPair]]:
    """What the command measures, in place of anything; by the key "pairs"."""
    told: dict[str, list[GuardPair]] = {}
    version = RunVersion("wheel x.whl", "0.9.0", "", "x/broker/main.py", Path("x"), "compiled")

    @contextmanager
    def base(_wheel: Path | None, _tree: Path | None) -> Iterator[RunVersion]:
        yield version

    async def run(_base: RunVersion, _this: RunVersion, load: GuardLoad, _folder: object) -> object:
        assert load == GuardLoad(list(KINDS), (1, 64, 512), 9, 0.8, 3)
        for one in told["pairs"]:
            yield one

    monkeypatch.setattr("raftmq.bench.versions.base_version", base)
    monkeypatch.setattr("raftmq.bench.versions.this_version", lambda: version)
    monkeypatch.setattr("raftmq.bench.guard.run_guard", run)
    return told


def test_the_command_fails_for_one_load_that_is_slower(made_up: dict[str, list[GuardPair]]) -> None:
    made_up["pairs"] = [*pairs((1.0, 1.0, 1.0)), *pairs((0.7, 0.7, 0.7), in_flight=512)]
    found = CliRunner().invoke(app, ["bench", "guard"])
    assert found.exit_code == 1
    assert "slower than 0.9.0 with confidence" in found.stderr
    assert "raft, fsync, 512 in flight: at most 0.7" in found.stderr
    assert "64 in flight: at most" not in found.stderr
    assert "base: 0.9.0 (wheel x.whl), hot path compiled, loaded from x/broker/main.py" in found.stdout
    told = CliRunner().invoke(app, ["bench", "guard", "--json"])
    assert told.exit_code == 1
    head, *rows = map(orjson.loads, told.stdout.splitlines())
    assert (head["base"]["version"], head["slower_below"]) == ("0.9.0", 0.9)
    assert [(row["in_flight"], row["slower"]) for row in rows] == [(64, False), (512, True)]


def test_the_command_ends_well_where_nothing_is_slower(made_up: dict[str, list[GuardPair]]) -> None:
    made_up["pairs"] = pairs((1.0, 0.9, 1.1), (0.8, 0.9, 0.85))
    found = CliRunner().invoke(app, ["bench", "guard"])
    assert found.exit_code == 0, found.output


def test_arguments_that_name_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, empty = tmp_path / "other.whl", tmp_path / "empty.whl"
    other.write_bytes(b"no archive")
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("another/__init__.py", "")
    monkeypatch.setattr("raftmq.bench.versions.newest_tag", lambda _checkout: None)
    for arguments, said in (
        (["--kind", "pair"], "--kind pair: it takes single-async, pull, single-sync, raft"),
        (["--wheel", str(other), "--base", str(tmp_path)], "--wheel and --base are two versions"),
        (["--wheel", str(other)], "cannot be unpacked"),
        (["--wheel", str(tmp_path / "none.whl")], "cannot be unpacked"),
        (["--wheel", str(empty)], "that is no wheel of RaftMQ"),
        (["--base", str(tmp_path)], "that is no checkout of RaftMQ"),
        ([], "there is nothing to compare with: give the last release's wheel (--wheel FILE)"),
    ):
        found = CliRunner().invoke(app, ["bench", "guard", *arguments])
        assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1), found.output
        assert said in found.stderr


def test_the_newest_tag_is_the_highest_version(tmp_path: Path) -> None:
    assert newest_tag(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    assert newest_tag(tmp_path) is None
    for tag in ("v0.9.0", "v0.10.0", "v0.2.0", "v1.0.0-rc1", "view"):
        subprocess.run([*git, "tag", tag], check=True)
    assert newest_tag(tmp_path) == "v0.10.0"
    assert newest_tag(tmp_path / "none") is None
