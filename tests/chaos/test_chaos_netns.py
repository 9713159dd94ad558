"""Partitions by the kernel, for real: old words after heal, a run under each fault of this kind, nothing left over.

Skipped, with the reason, where namespaces or nft are not to be had.
"""

import json
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.faults.net import CAPABILITY
from chaos.host.namespaces import environment, unshare
from chaos.runs.run import run
from chaos.runs.scenario import Scenario, promised
from chaos.runs.schedule import Planned, Schedule, save
from pipeline.history.folder import SCHEDULE, RunFolder
from tests.chaos.possible import skip_without
from tests.chaos.verdicts import assert_valid

FAULTS = ("net-isolate-leader", "net-isolate-follower", "net-one-way", "net-majority-ring", "net-flap", "net-loss")
LASTS_MS = 1500
# Members that are gone with their harness take their time on a machine at work.
GONE_S = 25


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    skip_without(CAPABILITY)


def scenario(**changes: object) -> Scenario:
    promises = promised("raft", 3, faults_min=len(FAULTS))
    fields = {"faults": FAULTS, "rate": 300.0, "seconds": 20.0, "acknowledged_min": 500, **changes}
    return Scenario("net", promises, **fields)  # type: ignore[arg-type] # as the caller gives them


def test_what_was_said_in_a_partition_arrives_when_it_is_healed() -> None:
    done = subprocess.run(
        [*unshare(network=True), sys.executable, "-m", "tests.chaos.oldwords"],
        env=environment(), capture_output=True, text=True, timeout=40,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["first"], told["second"]) == ("one", "two"), "on one connection, which never broke"
    assert told["cut"]["dropped"] > 0
    # A connection needs both directions: neither side gets one, nor a refusal.
    assert not told["cut"]["a reaches b"]
    assert not told["cut"]["b reaches a"]
    assert told["healed"]["a reaches b"]
    # TCP waits twice as long before each next try: that may take as long as nothing came, more than 5 s if all is slow.
    assert told["healed"]["after_s"] < max(5, told["healed"]["silent_s"] + 2)
    assert told["lossy"] == {"a reaches b": False, "healed": True}


def test_members_are_never_put_beside_a_network_with_a_way_out() -> None:
    if not Path("/proc/self/net/route").read_text().splitlines()[1:]:
        pytest.skip("this machine has no route itself")
    done = subprocess.run(
        [sys.executable, "-m", "chaos.site.netns"], env=environment(), capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 1
    assert "has routes" in done.stderr


@pytest.mark.timeout(240)
async def test_a_group_keeps_its_promises_under_every_partition_of_the_kernels(tmp_path: Path) -> None:
    planned = [
        Planned(number, name, after=600 + 500 * number, idle_ms=3000, lasts_ms=LASTS_MS + 1000 * (number == 0), seed=7)
        for number, name in enumerate(FAULTS)
    ]
    results = await run(scenario(), 3, tmp_path, Schedule("net", 3, tuple(planned)))
    assert_valid(results, tmp_path)
    faults = RunFolder(tmp_path).faults()
    assert [fault.name for fault in faults] == list(FAULTS)
    assert all(re.search(r"[1-9]\d* packets were dropped; well after", fault.effect) for fault in faults), faults
    assert not list(tmp_path.glob("tmp-*"))


@pytest.mark.timeout(90)
def test_a_harness_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    save(Schedule("net", 1, ()), tmp_path / SCHEDULE)
    child = subprocess.Popen(
        [*unshare(network=True), sys.executable, "-m", "chaos.runs.namespace_main", str(tmp_path)],
        env={**environment(), "TMPDIR": str(tmp_path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    described = pickle.dumps((scenario(rate=50.0, seconds=60.0), 1))
    child.stdin.write(len(described).to_bytes(8, "big") + described)
    child.stdin.flush()
    while b"under load" not in (line := child.stdout.readline()):
        assert line, "it ended before there was load"
    namespaces = {name: space for name, space in spaces_of(tmp_path).items() if space != own_space()}
    assert len(namespaces) >= 3, "the members run, each in a namespace"
    assert len(set(namespaces.values())) >= 3
    # This end of the pipe closes as it does when the process dies that holds it.
    child.stdin.close()
    assert child.wait(GONE_S) != 0
    child.stdout.close()
    deadline = time.monotonic() + GONE_S
    while spaces_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert spaces_of(tmp_path) == {}


def spaces_of(folder: Path) -> dict[int, str]:
    """Return the processes that have a folder in their command, with the network namespace of each."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in (path / "cmdline").read_text() and int(path.name) != os.getpid():
                found[int(path.name)] = str((path / "ns/net").readlink())
        except OSError:
            continue
    return found


def own_space() -> str:
    return str(Path("/proc/self/ns/net").readlink())
