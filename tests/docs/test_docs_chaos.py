"""docs/chaos.md and the terminal's part of docs/spark.md: one short run of a scenario, judged again in all ways."""

import re
from pathlib import Path

import orjson
import pytest

from chaos.runs.scenarios import SCENARIOS
from chaos.runs.schedule import draw, save
from chaos.runs.session import lasting
from pipeline.history.folder import RESULTS, SCHEDULE, RunFolder
from tests.docs.documents import Block, blocks, commands, is_shell
from tests.docs.terminal import Terminal
from tests.docs.treatments import SECONDS

CHAOS = blocks("docs/chaos.md")
VERIFY, ON_A_CLUSTER = (block for block in blocks("docs/spark.md") if is_shell(block))
OVERVIEW, AGAIN, CI = (block for block in CHAOS if is_shell(block))
FIRST, ORDERS = (block for block in CHAOS if block.language == "python")
AGAIN_RUN = re.compile(r"raftmq chaos run (\S+) --seed (\d+)")
ITS_RUN = re.compile(r"raftmq verify (\S+)")


def test_every_block_is_one_of_these() -> None:
    assert sorted(CHAOS) == sorted([OVERVIEW, AGAIN, CI, FIRST, ORDERS])


@pytest.mark.timeout(100)
def test_what_there_is_is_shown(tmp_path: Path) -> None:
    said = "".join(Terminal(tmp_path / "terminal").type_all(OVERVIEW.text))
    assert "smoke-kill" in said
    assert "signals" in said


@pytest.mark.timeout(300)
def test_a_run_is_made_again_judged_again_and_verified(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "terminal")
    given = AGAIN_RUN.search(AGAIN.text)
    assert given is not None
    name, seed = given[1], int(given[2])
    drawn = draw(seed, lasting(SCENARIOS[name], float(SECONDS)))
    save(drawn, terminal.folder / SCHEDULE)
    terminal.type_all(AGAIN.text)
    run = RunFolder(terminal.folder / "chaos-runs" / f"{name}-{seed}")
    assert (run.path / SCHEDULE).read_bytes() == drawn.json()
    assert [fault.name for fault in run.faults()] == ["kill-leader"]
    (planned,), (fired,) = drawn.faults, run.info()["fired"]
    # At the first look at the count that reaches it: what comes between two looks is not more.
    assert planned.after <= fired["acknowledged"] < planned.after + 3000
    # docs/spark.md has a run of its own name, and the stores of members in folders n0 to n2.
    asked = ITS_RUN.search(VERIFY.text)
    assert asked is not None
    (terminal.folder / asked[1]).symlink_to(run.path)
    for folder in run.members():
        (terminal.folder / folder.name).mkdir()
        (terminal.folder / folder.name / "store").symlink_to(folder)
    for said in terminal.type_all(VERIFY.text):
        assert "VALID" in said.upper()
    terminal.type_all(ON_A_CLUSTER.text)


def run_as_test(terminal: Terminal, block: Block) -> dict[str, str]:
    """Run an example for pytest; return the verdict of each check."""
    terminal.program(block.document, block.text, "test_it.py")
    terminal.run("python", "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "test_it.py")
    (results,) = terminal.folder.glob(f"chaos-runs/*/{RESULTS}")
    return {one["check"]: one["verdict"] for one in orjson.loads(results.read_bytes())["findings"]}


@pytest.mark.timeout(200)
def test_the_example_of_orders_is_judged_by_all_that_it_promises(tmp_path: Path) -> None:
    verdicts = run_as_test(Terminal(tmp_path / "terminal"), ORDERS)
    # Acknowledged messages, consumer groups, that each fault took effect, that a leader follows, and in time.
    assert {check: verdicts[check] for check in ("A1", "A17", "V2", "V3", "A25")} == dict.fromkeys(
        ("A1", "A17", "V2", "V3", "A25"), "valid"
    )


@pytest.mark.long
@pytest.mark.timeout(200)
def test_the_first_example_is_judged_by_all_that_it_promises(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "terminal")
    verdicts = run_as_test(terminal, FIRST)
    assert {verdicts[check] for check in ("A1", "A17", "V1", "V2")} == {"valid"}
    # On a busy machine there is time for one fault, which need not be the one that brings another leader.
    (folder,) = (path.parent for path in terminal.folder.glob(f"chaos-runs/*/{RESULTS}"))
    led = any(fault.name == "kill-leader" for fault in RunFolder(folder).faults())
    assert verdicts["V3"] == ("valid" if led else "skipped")


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_ci_runs_the_suite(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "terminal", BUILD_NUMBER="17")
    assert len(commands(CI.text)) == 2
    _, summary = terminal.type_all(CI.text)
    assert all(name in summary for name in ("smoke-kill", "smoke-partition", "smoke-power"))
    assert (terminal.folder / "chaos-runs" / "junit.xml").exists()
