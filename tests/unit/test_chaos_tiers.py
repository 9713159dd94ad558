"""What can be broken here: everything is tried, says why not, and leaves nothing behind."""

import os
import subprocess
from pathlib import Path

import pytest

from chaos.faults.freezer import Still, state_of
from chaos.runs import tiers
from chaos.runs.nemesis import FAULTS
from chaos.runs.tiers import Capability, missing, probe


def test_every_capability_is_there_or_says_in_one_line_why_not() -> None:
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    found = probe()
    assert len({capability.name for capability in found}) == len(found) == 8
    for capability in found:
        assert capability.tier in {"T0", "T1", "T2"}
        assert capability.ok == (capability.why == ""), capability
        assert "\n" not in capability.why
    assert next(one for one in found if one.name == "signals").ok, "this one needs nothing but Linux"
    assert Path("/proc/self/mounts").read_text(encoding="utf-8") == mounts
    left = [path for path in Path("/sys/fs/cgroup").glob("*/raftmq-*") if str(os.getpid()) in path.name]
    assert left == []


def test_needs_are_capabilities_that_are_tried() -> None:
    known = {capability.name for capability in probe()}
    assert {need for factory in FAULTS.values() for need in factory().needs} <= known


def test_a_fault_whose_capability_is_missing_is_named_with_the_reason() -> None:
    table = [Capability("ext4-power", "T2", False, "no loop device"), Capability("signals", "T0", True, "")]
    assert missing(("kill-leader", "disk-power-leader", "flap"), table) == {
        "disk-power-leader": "ext4-power: no loop device"
    }
    assert missing(("disk-power-leader",), [Capability("ext4-power", "T2", True, "")]) == {}
    assert missing(("net-flap",), [Capability("netns", "T1", False, "no nft")]) == {"net-flap": "netns: no nft"}


def test_a_trial_that_hangs_or_is_not_allowed_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs() -> str:
        raise subprocess.TimeoutExpired("x", 1.0)

    def forbidden() -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tiers, "_TRIALS", (("a", "T0", hangs), ("b", "T1", forbidden), ("c", "T2", lambda: "")))
    assert [(one.name, one.ok) for one in probe()] == [("a", False), ("b", False), ("c", True)]
    assert "longer than" in probe()[0].why
    assert "Permission denied" in probe()[1].why


def test_tools_that_are_not_installed_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.runs.tiers.shutil.which", lambda _tool, **_where: None)
    monkeypatch.setattr("chaos.runs.tiers.os.geteuid", lambda: 0)
    why = {one.name: one.why for one in probe() if not one.ok}
    for name in ("strace", "userns", "nft", "netns", "ext4-power"):
        assert "is not installed" in why[name]


@pytest.mark.parametrize("cgroup", [True, False])
def test_a_process_stands_still_and_goes_on(cgroup: bool) -> None:
    """By a cgroup where there are any, by signal in any case."""
    child = subprocess.Popen(["sleep", "30"])
    try:
        still = Still(child.pid, "test", cgroup=cgroup)
        assert still.freeze()
        spent = Path(f"/proc/{child.pid}/wchan")
        assert spent.exists()
        assert cgroup or state_of(child.pid) == "T"
        still.thaw()
        assert state_of(child.pid) in {"S", "R"}
        still.thaw()
    finally:
        child.kill()
        child.wait()
    assert state_of(child.pid) == ""
