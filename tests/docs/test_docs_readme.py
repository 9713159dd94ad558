"""The README as a reader types it: the demo, the quick start twice with a leader killed in between, programs, keys."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from tests.docs.documents import Block, blocks, is_shell, paragraphs
from tests.docs.terminal import Terminal, ports_of_documents

README = blocks("README.md")
DEMO, QUICK_START = (block for block in README if is_shell(block))
PROGRAMS = [block for block in README if block.language == "python"]
FILES = [block for block in README if block.language == "properties"]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("readme")
    with LocalCluster(folder / "cluster") as cluster:
        yield Terminal(folder / "terminal", cluster.address)


def test_every_block_is_one_of_these() -> None:
    assert sorted(README) == sorted([DEMO, QUICK_START, *PROGRAMS, *FILES])
    assert DEMO.line < 30


@pytest.mark.timeout(150)
def test_the_first_command_works(tmp_path: Path) -> None:
    (said,) = Terminal(tmp_path / "terminal").type_all(DEMO.text)
    assert said.endswith("OK: every acknowledged message was consumed as it was sent, lost 0\n")


def typed(other: Terminal, lines: list[str]) -> None:
    """The second terminal's lines."""
    said = {line: other.type(line) for line in lines}
    assert any("hello" in text for line, text in said.items() if " consume " in line)
    assert any(text.endswith("all 10 came back\n") for line, text in said.items() if "quickstart" in line)


def kill_the_leader(other: Terminal) -> str:
    """Kill -9, by hand, the process of the member that leads; return the member's name."""
    states = json.loads(other.run("raftmq", "cluster", "raft-status", "--json"))
    leader = next(str(state["self"]) for state in states.values() if state["role"] == "LEADER")
    os.kill(int((other.folder / "data" / leader / "store" / "abort").read_text()), signal.SIGKILL)
    return leader


@pytest.mark.timeout(240)
def test_the_quick_start_typed_twice_with_a_leader_killed_in_between_loses_nothing(tmp_path: Path) -> None:
    (server,), lines = paragraphs(QUICK_START.text)
    with ports_of_documents() as (address, options):
        other = Terminal(tmp_path / "terminal", address)
        with other.foreground(server + options, "use it with"):
            typed(other, lines)
            killed = kill_the_leader(other)
            # The others go on: everything but the first line once more, at once.
            typed(other, lines)
        with other.foreground(server + options, "use it with"):
            typed(other, lines)
            assert f'"self": "{killed}"' in other.run("raftmq", "cluster", "raft-status", "--json")
            # What was sent before the kill, after it, and after the start that followed.
            assert other.run("raftmq", "consume", "greetings", "--count", "3").count("hello") == 3


@pytest.mark.timeout(100)
@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs(block: Block, terminal: Terminal) -> None:
    program = terminal.program(block.document, block.text, f"line{block.line}.py")
    assert "topic='orders'" in terminal.run("python", str(program))


@pytest.mark.parametrize("block", FILES, ids=str)
def test_a_configuration_file_is_taken_as_it_stands(block: Block, terminal: Terminal) -> None:
    path = terminal.program(block.document, block.text, "broker.conf")
    shown = terminal.run("bash", "-c", f"raftmq broker -c {path} --print-config 2>&1")
    assert "no effect" not in shown
    for line in block.text.splitlines():
        assert line in shown, line
