"""How many Python calls a send costs from its bytes to its answer: what no clock shows on a machine that others use."""

import json
import os
import signal
from pathlib import Path
from statistics import median

import pytest

from chaos.host.local import LocalCluster, Mode
from raftmq.bench.load import LoadedBroker, Sends, run_load
from remoting.compiled.door import COMPILED
from tests.cluster.process_group import until

ROOT = Path(__file__).parents[2]
SENDS_MIN = 50
# Seconds of sends, until one of them had the machine to itself: where the disk is slow and others work, few have.
ROUNDS = 20


@pytest.mark.skipif(not COMPILED, reason="reads and builds in Python take calls of their own")
@pytest.mark.parametrize(("mode", "nodes", "most"), [("single", 1, 50), ("sync", 2, 92), ("raft", 3, 270)])
async def test_a_send_at_rest_costs_few_calls(tmp_path: Path, mode: Mode, nodes: int, most: int) -> None:
    """The fewest: what else comes in meanwhile, the second follower's answer and the disk's, is the machine's doing.

    A send that costs more calls costs them in every round.
    """
    # Turns that poll are calls as well, as many as there is time for.
    cluster = LocalCluster(tmp_path, nodes=nodes, mode=mode, broker_settings={"busyPollMicros": 0})
    told = tmp_path / "calls.json"
    for broker in cluster.brokers:
        broker.environment = {"PYTHONPATH": str(ROOT)}
        broker.run_by(["tests.parts.counted", str(told)])
    with cluster:
        leader = cluster.wait_for_leader()
        await sent(leader.address, 0.2)
        for _ in range(ROUNDS):
            os.kill(leader.pid, signal.SIGUSR1)
            await sent(leader.address, 1)
            os.kill(leader.pid, signal.SIGUSR2)
            until("the calls are told", told.exists)
            calls = json.loads(told.read_text())
            told.unlink()
            if len(calls) >= SENDS_MIN and min(calls) <= most:
                break
    assert len(calls) >= SENDS_MIN, "what is counted is not looked at any more"
    assert min(calls) <= most, f"{len(calls)} sends, half of them within {median(calls)} calls"


async def sent(address: str, seconds: float) -> None:
    """Send one message after the other for so long."""
    await run_load("send", LoadedBroker(address), lambda: Sends("T", 100), in_flight=1, seconds=seconds)
