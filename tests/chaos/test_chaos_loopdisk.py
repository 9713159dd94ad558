"""File systems that really lose power and are really full: alone, and below the members of a group under load.

Skipped, with the reason, where nothing may be mounted.
"""

import errno
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.faults.device import CAPABILITY
from chaos.host.loopdisk import BLOCK_BYTES
from chaos.host.namespaces import environment, unshare
from chaos.runs.run import SITE, run
from chaos.runs.scenario import Scenario, promised
from chaos.runs.schedule import Planned, Schedule
from pipeline.history.bank import BANK_CHECK
from pipeline.history.folder import RunFolder
from pipeline.history.results import Verdict
from tests.chaos.possible import skip_without
from tests.chaos.test_chaos_run import backed_by
from tests.chaos.verdicts import assert_valid
from tests.parts.processes_left import left_of

PROOFS = {
    "disk-power-leader": r"ended with -9, ext4 shut down, \d+ bytes and \d+ files lost; n\d back as pid",
    "disk-full-leader": r"n\d: \d{6,} bytes taken, \d{1,4} free; after \d\.\d s n\d \d+ free",
    "disk-power-majority": r"(ext4 shut down, \d+ bytes and \d+ files lost.*){2}back as pid",
    "disk-power-all": r"(ext4 shut down, \d+ bytes and \d+ files lost.*){3}back as pid",
    "disk-full-follower": r"n\d: \d{6,} bytes taken, \d{1,4} free; after \d\.\d s n\d \d+ free",
}


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    skip_without(CAPABILITY)


def in_namespaces(folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "tests.chaos.powercut", str(folder), *more]
    return subprocess.run(
        [*unshare(network=False), *program], env=environment(), capture_output=True, text=True, timeout=50
    )


def test_what_was_synced_survives_and_what_was_not_is_lost(tmp_path: Path) -> None:
    done = in_namespaces(tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["blocks"] == 10, "ten blocks were synced, five were not"
    assert told["lost"] == f"ext4 shut down, {5 * BLOCK_BYTES} bytes and 0 files lost"
    assert told["taken"] > 8_000_000
    assert told["free"] < 16 * BLOCK_BYTES
    assert told["full"] == errno.ENOSPC
    assert told["free_again"] > 8_000_000, "what was given back stays given back when power is lost then"
    assert told["kept"] == 11, "what it held stands in a plain folder, and the room that was given back was used"
    assert not told["mounted"]
    assert [path.name for path in tmp_path.iterdir()] == ["device"]


def test_a_process_that_dies_leaves_no_mount_and_no_loop_device(tmp_path: Path) -> None:
    done = in_namespaces(tmp_path, "die")
    assert done.returncode == 3
    assert str(tmp_path) in done.stdout, "it was mounted there"
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    # The kernel lets go of a loop device a moment after whoever had it open last.
    assert left_of(backed_by, tmp_path) == []


@pytest.mark.timeout(280)
async def test_a_group_whose_file_systems_lose_power_and_fill_up_keeps_its_promises(tmp_path: Path) -> None:
    planned = [
        Planned(number, name, after=600 + 500 * number, idle_ms=3000, lasts_ms=1500, seed=7)
        for number, name in enumerate(PROOFS)
    ]
    promises = promised("raft", 3, faults_min=len(PROOFS))
    scenario = Scenario(
        "disks", promises, workloads=("send", "bank"), faults=tuple(PROOFS), rate=300.0, seconds=20.0,
        acknowledged_min=500,
    )  # fmt: skip
    results = await run(scenario, 3, tmp_path, Schedule("disks", 3, tuple(planned)))
    assert_valid(results, tmp_path)
    assert next(one for one in results.findings if one.check == BANK_CHECK).verdict is Verdict.VALID
    faults = {fault.name: fault.effect for fault in RunFolder(tmp_path).faults()}
    for name, proof in PROOFS.items():
        assert re.search(proof, faults[name]), (name, faults[name])
    assert sum(int(lost) for effect in faults.values() for lost in re.findall(r"(\d+) bytes and", effect)) > 0
    assert not list((tmp_path / SITE).rglob("*.ext4"))
