"""`raftmq verify` over store folders and runs: what was not looked at is unknown, and members may share a name."""

import shutil
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from pipeline.history.folder import DATA, INFO, RESULTS
from raftmq.cli.main import app
from tests.planted.plant_stores import MEMBERS, RAFT, build
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
