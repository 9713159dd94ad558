"""Raft told in traces: a script in, the whole expected story out (traces/*.txt, in the manner of etcd's testdata).

A trace is a text of commands, each followed by a line of four dashes and what happened. RAFTMQ_REWRITE=1 writes what
happens now in the place of what was expected: read the difference before keeping it.
"""

import os
from pathlib import Path

import pytest

from tests.simulation.trace_group import TraceGroup

TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))
REWRITE = os.environ.get("RAFTMQ_REWRITE") == "1"
DASHES = "----"


def play(script: str, group: TraceGroup) -> str:
    """Run the commands of a trace; the same text with what happened now."""
    lines = []
    for block in script.strip().split("\n\n"):
        told = block.split("\n")
        comments = [line for line in told if line.startswith("#")]
        lines += comments
        commands = [line for line in told[len(comments) :] if line]
        if commands:
            before = commands[: commands.index(DASHES)] if DASHES in commands else commands
            happened = [line for command in before for line in group.run(command)]
            lines += [*before, DASHES, *(happened or ["(nothing)"])]
        lines.append("")
    return "\n".join(lines)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_the_story_is_the_expected_one(path: Path, tmp_path: Path) -> None:
    script = path.read_text()
    story = play(script, TraceGroup(tmp_path))
    if REWRITE:
        path.write_text(story)
        return
    assert story == script, "the story changed; RAFTMQ_REWRITE=1 rewrites it"


def test_there_are_traces_of_everything() -> None:
    kinds = {path.stem.split("_")[0] for path in TRACES}
    assert kinds >= {"election", "conflict", "prevote", "transfer", "membership", "bootstrap"}
    assert len(TRACES) >= 12


def test_a_changed_story_is_found(tmp_path: Path) -> None:
    script = "nodes 1\nstart\n\nrun 1000\n----\nn0 is FOLLOWER in term 1 for ever\n"
    assert play(script, TraceGroup(tmp_path)) != script
