"""The same seed fires the same faults in the same order at the same counts, whatever the machine does.

As anyone does it, by the command. A run by the schedule.json of another is docs/chaos.md's (tests/docs).
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos.runs.scenarios import SCENARIOS
from chaos.runs.schedule import draw
from chaos.runs.session import lasting
from pipeline.history.folder import SCHEDULE, RunFolder

SEED, SCENARIO, SECONDS = 11, "smoke-partition", 14
# More is never acknowledged between two looks at the count; what comes in one answer to many is within it.
MORE_MAX = 3000


async def chaos_run(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Run the scenario by its command, which must call it valid; returns its folder and what it noted."""
    command = ("chaos", "run", SCENARIO, "--seconds", str(SECONDS), "--dir", str(folder), "--json", "--seed", str(SEED))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raftmq.cli.main", *command, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    (made,) = [path.parent for path in folder.rglob(SCHEDULE)]
    return made, RunFolder(made).info()


@pytest.mark.timeout(150)
async def test_a_run_from_a_seed_fires_what_is_drawn_from_it_at_the_same_counts(tmp_path: Path) -> None:
    drawn = draw(SEED, lasting(SCENARIOS[SCENARIO], float(SECONDS)))
    assert len(drawn.faults) >= 2
    made, info = await chaos_run(tmp_path)
    assert (made / SCHEDULE).read_bytes() == drawn.json()
    assert [(one["number"], one["name"]) for one in info["fired"]] == [
        (one.number, one.name) for one in drawn.faults
    ], orjson.dumps(info)
    for one, planned in zip(info["fired"], drawn.faults, strict=True):
        # At the first look at the count that reaches it.
        assert planned.after <= one["acknowledged"] < planned.after + MORE_MAX
        assert one["effect"]
