"""The same seed and schedule fire the same faults in the same order at the same counts, whatever the machine does.

As anyone does it: a run of a Raft group from a seed, and its schedule.json once more.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos.runs.schedule import load
from pipeline.history.folder import SCHEDULE, RunFolder

SEED, SCENARIO, SECONDS = 11, "smoke-partition", 14
# More is never acknowledged between two looks at the count; what comes in one answer to many is within it.
MORE_MAX = 3000


async def chaos_run(folder: Path, *options: str) -> tuple[Path, dict[str, Any]]:
    """Run the scenario by its command, which must call it valid; returns its folder and what it noted."""
    command = ("chaos", "run", SCENARIO, "--seconds", str(SECONDS), "--dir", str(folder), "--json", "--seed", str(SEED))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raftmq.cli.main", *command, *options, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    (made,) = [path.parent for path in folder.rglob(SCHEDULE)]
    return made, RunFolder(made).info()


@pytest.mark.timeout(240)
async def test_a_replay_fires_the_same_faults_at_the_same_counts(tmp_path: Path) -> None:
    first, told = await chaos_run(tmp_path / "first")
    drawn = load(first / SCHEDULE)
    assert len(drawn.faults) >= 2
    replayed, again = await chaos_run(tmp_path / "again", "--schedule", str(first / SCHEDULE))
    assert (replayed / SCHEDULE).read_bytes() == (first / SCHEDULE).read_bytes() == drawn.json()
    for info in (told, again):
        assert [(one["number"], one["name"]) for one in info["fired"]] == [
            (one.number, one.name) for one in drawn.faults
        ], orjson.dumps(info)
        for one, planned in zip(info["fired"], drawn.faults, strict=True):
            # At the first look at the count that reaches it.
            assert planned.after <= one["acknowledged"] < planned.after + MORE_MAX
            assert one["effect"]
