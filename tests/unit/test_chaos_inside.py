"""chaos/host/namespaces.py: the way into namespaces, and what comes back of it, with a stand-in for `unshare`."""

import os
from pathlib import Path

import pytest

from chaos.host.namespaces import InsideError, make_run, tool, unshare
from chaos.runs.nemesis import FAULTS
from chaos.runs.scenario import Scenario, promised
from chaos.runs.scenarios import SCENARIOS

# Takes unshare's place: forgets what namespaces are asked for, and says what the process in there would say.
STAND_IN = """#!/bin/sh
head -c 8 >/dev/null
{body}
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "unshare"


def says(path: Path, body: str) -> None:
    path.write_text(STAND_IN.format(body=body))
    path.chmod(0o755)


async def test_progress_comes_back_and_whatever_else_is_printed_does_not(stand_in: Path, tmp_path: Path) -> None:
    says(stand_in, """echo hello; echo '{"say": "starting", "acknowledged": 3}'; echo '[1]'""")
    told: list[tuple[str, int]] = []
    await make_run("what", tmp_path, network=True, say=lambda what, count: told.append((what, count)))
    assert told == [("starting", 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"], "its temporary folder is gone"


@pytest.mark.parametrize(
    ("body", "words"), [("exit 3", "ended with 3"), ("""echo '{"error": "nobody led"}'; exit 1""", "nobody led")]
)
async def test_what_broke_in_there_is_an_error_here(body: str, words: str, stand_in: Path, tmp_path: Path) -> None:
    says(stand_in, body)
    with pytest.raises(InsideError, match=words):
        await make_run("what", tmp_path, network=False, say=None)


async def test_what_cannot_be_handed_over_is_said_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(InsideError, match="cannot be handed to another process"):
        await make_run(lambda: None, tmp_path, network=False, say=None)


def test_only_root_needs_no_user_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.host.namespaces.os.geteuid", lambda: 1000)
    assert "--user" in unshare(network=True)
    monkeypatch.setattr("chaos.host.namespaces.os.geteuid", lambda: 0)
    assert "--user" not in unshare(network=True)
    assert "--net" not in unshare(network=False)
    # Whatever happens to the first process in there: everything goes with it.
    assert {"--pid", "--fork", "--kill-child", "--mount-proc"} <= set(unshare(network=False))


def test_programs_of_administrators_are_found_without_their_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert tool("sh") is None
    monkeypatch.setattr("chaos.host.namespaces.SBIN", ("/bin", "/usr/bin"))
    assert tool("sh") is not None


def test_a_scenario_asks_for_what_its_faults_need() -> None:
    assert SCENARIOS["network"].network
    assert SCENARIOS["device"].own_disks
    for scenario in SCENARIOS.values():
        assert scenario.network == any(name.startswith("net-") for name in scenario.faults), scenario.name
        assert scenario.own_disks == any(name.startswith("disk-") for name in scenario.faults), scenario.name
        assert scenario.tier == max((FAULTS[name]().tier for name in scenario.faults), default="T0")
    plain = Scenario("x", promised("raft", 3), faults=("kill-leader", "no such fault"))
    assert not plain.network
    assert not plain.own_disks
