"""A bounded part of the torture (`make torture` does it for a quarter of an hour), and its negative control."""

import os
from pathlib import Path

import pytest

from tests.chaos.torture import MemberFailed, Torture

SCALE = float(os.environ.get("RAFTMQ_TORTURE_SCALE", "1"))

SCHEDULES = {
    "processes": ["kill leader", "kill all", "kill follower", "pause leader"],
    "links": ["isolate leader", "cut one way", "pause follower", "cut one way"],
    "power": ["power loss of one", "isolate, write, lose power, isolate", "power loss of all"],
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", SCHEDULES)
async def test_nothing_acknowledged_is_lost(name: str, tmp_path: Path) -> None:
    torture = Torture(tmp_path, seed=len(name))
    verdict = await torture.run(10 * SCALE, list(SCHEDULES[name]))
    assert verdict.good, verdict.as_dict()
    assert sum(verdict.faults.values()) == len(SCHEDULES[name])
    assert verdict.acknowledged > 1000, verdict.as_dict()
    assert verdict.offset_commits > 0


@pytest.mark.timeout(180)
async def test_power_cuts_with_a_slow_disk(tmp_path: Path) -> None:
    verdict = await Torture(tmp_path, seed=30, fsync_ms=30).run(8 * SCALE, ["power loss of all", "power loss of all"])
    assert verdict.good, verdict.as_dict()


@pytest.mark.timeout(180)
async def test_the_negative_control_loses_data(tmp_path: Path) -> None:
    """Members that acknowledge before fdatasync on a slow disk must be caught, or the torture proves nothing."""
    torture = Torture(tmp_path, seed=3, fsync_ms=30, planted="ack-before-fsync")
    found = ""
    try:
        verdict = await torture.run(8 * SCALE, ["power loss of all"] * 3)
    except (MemberFailed, TimeoutError) as failure:
        found = str(failure)
    else:
        assert verdict.lost > 0, verdict.as_dict()
    # A member that finds committed entries replaced refuses to go on, which is the same finding, made earlier.
    assert not found or "are committed" in found
