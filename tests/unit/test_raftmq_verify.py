"""`raftmq verify` over store folders and runs: what was not looked at is unknown, and members may share a name."""

import shutil
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from pipeline.history.folder import DATA, EARLIER, INFO, RESULTS, RunFolder
from pipeline.history.parquet import write_rows
from pipeline.history.rows import Act, Kind, Op
from raftmq.cli.main import app
from tests.planted.plant_stores import ENTRIES, MEMBERS, PAIR, RAFT, build
from tests.unit.test_pipeline_twin import make_run


def verify(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["verify", *map(str, arguments), "--engine", "plain"])


def by_store(*folders: Path) -> Result:
    return verify("--json", *(word for folder in folders for word in ("--store", str(folder))))


def finding(result: Result, check: str) -> dict[str, object]:
    found: dict[str, object] = next(one for one in orjson.loads(result.stdout)["findings"] if one["check"] == check)
    return found


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    """The store folders of a healthy group, each called store, in a folder of its member."""
    build(tmp_path / "built", 3, RAFT)
    return [
        shutil.copytree(tmp_path / "built" / name, tmp_path / "copied" / name / "store", dirs_exist_ok=True)
        for name in MEMBERS[RAFT]
    ]


def test_three_empty_stores_are_unknown(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        (folder / "commitlog").mkdir(parents=True)
    result = by_store(*folders)
    assert result.exit_code == 2, result.stdout
    assert finding(result, "V8")["count"] == 3


def test_one_empty_store_among_three_is_unknown(stores: list[Path]) -> None:
    shutil.rmtree(stores[1])
    (stores[1] / "commitlog").mkdir(parents=True)
    assert by_store(*stores).exit_code == 2


def test_folders_of_one_name_are_told_apart_by_the_path_above(stores: list[Path]) -> None:
    result = by_store(*stores)
    assert result.exit_code == 0, result.output
    assert finding(result, "V8")["text"] == "3 of 3 stores were judged"
    rotten = min((stores[1] / "commitlog").iterdir())
    with rotten.open("r+b") as file:
        file.seek(120)
        file.write(b"\xff\xff")
    found = finding(by_store(*stores), "B4")
    assert [witness["member"] for witness in found["witnesses"]] == ["n1/store"]  # type: ignore[attr-defined]


def test_a_folder_that_is_given_twice_is_refused_in_words(stores: list[Path]) -> None:
    result = by_store(stores[0], stores[0])
    assert result.exit_code == 254
    assert "given twice" in result.stderr


def test_stores_without_a_history_are_not_judged_by_what_nobody_told(stores: list[Path]) -> None:
    result = by_store(*stores)
    assert {check: finding(result, check)["verdict"] for check in ("B2", "B8", "B9", "B10")} == dict.fromkeys(
        ("B2", "B8", "B9", "B10"), "skipped"
    )


def test_a_group_whose_offsets_were_reset_is_valid(stores: list[Path]) -> None:
    for folder in stores:
        table = orjson.loads((folder / "config" / "consumerOffset.json").read_bytes())
        (folder / "config" / "consumerOffset.json.bak").write_bytes(orjson.dumps(table))
        for queues in table["offsetTable"].values():
            queues.update(dict.fromkeys(queues, 0))
        (folder / "config" / "consumerOffset.json").write_bytes(orjson.dumps(table))
    result = by_store(*stores)
    assert (finding(result, "B12")["verdict"], result.exit_code) == ("valid", 0), result.stdout


def test_a_result_that_rests_on_stores_is_not_replaced_by_one_without(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", RAFT).path
    assert verify(folder).exit_code == 0
    before = (folder / RESULTS).read_bytes()
    elsewhere = (folder / DATA).rename(tmp_path / "elsewhere")
    weaker = verify(folder)
    assert (weaker.exit_code, (folder / RESULTS).read_bytes()) == (2, before)
    assert "is kept" in weaker.stderr
    assert verify("--history", folder, "--out", folder).exit_code == 0
    assert (folder / RESULTS).read_bytes() == before
    elsewhere.rename(folder / DATA)
    info = orjson.loads((folder / INFO).read_bytes())
    info["promises"]["acknowledged_min"] = 10**6
    (folder / INFO).write_bytes(orjson.dumps(info))
    assert verify(folder).exit_code == 2
    assert orjson.loads((folder / RESULTS).read_bytes())["verdict"] == "unknown"


def test_a_result_that_rests_on_a_history_is_not_replaced_by_one_of_its_stores_alone(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", RAFT).path
    assert verify(folder).exit_code == 0
    before = (folder / RESULTS).read_bytes()
    words = [word for name in MEMBERS[RAFT] for word in ("--store", folder / DATA / name)]
    result = verify(*words, "--out", folder)
    assert (result.exit_code, (folder / RESULTS).read_bytes()) == (0, before)
    assert "it judged the history as well" in result.stderr


def run_with_earlier(root: Path, kind: str, *, entries: int = ENTRIES) -> Path:
    """Make a run, with a copy of all its stores of an earlier moment, when their logs had so many entries."""
    run = make_run(root / "run", kind)
    build(run.path / EARLIER / "0", 3, kind, entries=entries)
    return run.path


def without_earlier(folder: Path) -> tuple[int, bytes, str]:
    """Judge a run again when its earlier copies are gone: the exit code, what results.json holds, and what was said."""
    shutil.rmtree(folder / EARLIER)
    result = verify(folder)
    return result.exit_code, (folder / RESULTS).read_bytes(), result.stderr


@pytest.mark.parametrize("kind", [RAFT, PAIR])
def test_a_result_that_rests_on_earlier_copies_is_not_replaced_by_one_without(tmp_path: Path, kind: str) -> None:
    folder = run_with_earlier(tmp_path, kind)
    healthy = verify(folder, "--json")
    assert (healthy.exit_code, finding(healthy, "B10")["verdict"]) == (0, "valid"), healthy.output
    before = (folder / RESULTS).read_bytes()
    code, after, said = without_earlier(folder)
    assert (code, after) == (0, before)
    assert f"{folder / RESULTS} is kept" in said


def test_what_only_an_earlier_copy_shows_stays_though_its_check_still_has_something_to_look_at(tmp_path: Path) -> None:
    folder = run_with_earlier(tmp_path, RAFT, entries=ENTRIES + 2)
    ops = RunFolder(folder).ops()
    refused = Op(len(ops), 90, Act.SEND, Kind.FAIL, ops[0].invoked, ops[0].completed, topic="T", writer=9, counter=0)
    write_rows(RunFolder(folder).file(Op), [*ops, refused], Op)
    wrong = verify(folder, "--json")
    assert (wrong.exit_code, finding(wrong, "B9")["verdict"]) == (1, "invalid"), wrong.output
    before = (folder / RESULTS).read_bytes()
    code, after, said = without_earlier(folder)
    assert (code, after) == (0, before)
    assert "earlier copies" in said


def test_a_result_without_earlier_copies_is_replaced_by_one_with_them(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", RAFT).path
    assert verify(folder).exit_code == 0
    build(folder / EARLIER / "0", 3, RAFT, entries=ENTRIES + 2)
    assert verify(folder).exit_code == 1
    assert orjson.loads((folder / RESULTS).read_bytes())["verdict"] == "invalid"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give one of"),
        (("--frobnicate",), "frobnicate"),
        (("no-such-folder",), "does not exist"),
        (("--store", "no-such-folder"), "does not exist"),
        (("--history",), "requires an argument"),
        (("--mode", "magic", "--store", "."), "--mode is one of"),
        (("--engine", "steam", "--store", "."), "--engine is one of"),
    ],
)
def test_a_wrong_command_line_ends_254_for_2_is_a_verdict(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["verify", *arguments])
    assert result.exit_code == 254, result.output
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_breaking_down_ends_255_for_1_is_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("pipeline.judge.judge_run", broken)
    result = verify(tmp_path)
    assert (result.exit_code, "ZeroDivisionError: ours" in result.stderr) == (255, True), result.output
    assert "no verdict" in result.stderr
