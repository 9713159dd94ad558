"""Which brokers busy poll (busyPollMicros), and that one at rest does not."""

import http.client
import os
import re
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster, Mode
from chaos.host.processes import ServerProcess
from raftmq.bench.fairness import QUIET_PAUSE_S, quiet
from raftmq.bench.load import LoadedBroker, Sends, run_load
from tests.cluster.process_group import until

# So long that a machine with other work counts as quick as well.
LONG = 10_000
# Seconds of sends until one was quick: where the disk is slow and others work, few are.
ROUNDS = 20

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nobody polls")


def turns(broker: ServerProcess) -> int:
    """Return how many turns of its loop a broker has polled."""
    connection = http.client.HTTPConnection(broker.host, broker.http_port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        found = re.search(rb"^raftmq_busy_poll_turns_total\S* (\S+)$", connection.getresponse().read(), re.MULTILINE)
    finally:
        connection.close()
    assert found is not None, "it does not tell"
    return int(float(found[1]))


async def polled(folder: Path, mode: Mode, nodes: int, micros: int, *, rounds: int = 1) -> list[int]:
    """Return the turns of each broker after a second of sends, one at a time, once it has come to rest.

    `rounds`: so many such seconds at most, until all have polled.
    """
    with LocalCluster(folder, nodes=nodes, mode=mode, broker_settings={"busyPollMicros": micros}) as cluster:
        leader = cluster.wait_for_leader()
        for _ in range(rounds):
            await run_load("send", LoadedBroker(leader.address), lambda: Sends("T", 100), in_flight=1, seconds=1)
            for broker in cluster.brokers:
                # Each look is a connection to another port: nothing of it is polled for.
                until("it is at rest", lambda broker=broker: turns(broker) == turns(broker))  # type: ignore[misc]
            found = [turns(broker) for broker in cluster.brokers]
            if all(found):
                break
        return found


async def test_a_single_broker_polls_while_it_is_asked(tmp_path: Path) -> None:
    (told,) = await polled(tmp_path, "single", 1, LONG, rounds=ROUNDS)
    assert told > 0


async def test_a_master_and_its_slave_poll(tmp_path: Path) -> None:
    assert min(await polled(tmp_path, "sync", 2, LONG, rounds=ROUNDS)) > 0


@pytest.mark.parametrize(("mode", "nodes", "micros"), [("single", 1, 0), ("raft", 3, LONG)])
async def test_who_is_told_not_to_and_a_group_do_not(tmp_path: Path, mode: Mode, nodes: int, micros: int) -> None:
    assert set(await polled(tmp_path, mode, nodes, micros)) == {0}


@pytest.mark.parametrize(("flush", "polls"), [("SYNC_FLUSH", True), ("ASYNC_FLUSH", False)])
async def test_a_sync_that_was_waited_for_counts_as_something_read(tmp_path: Path, flush: str, polls: bool) -> None:
    """Sends come too seldom for that, one after the other with pauses: half of the gaps are short, by the syncs."""
    assert LONG / 1e6 < QUIET_PAUSE_S
    settings = {"busyPollMicros": LONG, "flushDiskType": flush}
    with LocalCluster(tmp_path, nodes=1, mode="single", broker_settings=settings) as cluster:
        state = cluster.broker.state("/v1/status")
        if state is None or state["store"]["syncedBy"] != "kernel":
            pytest.skip("a thread syncs here")
        for _ in range(ROUNDS if polls else 1):
            await quiet(cluster.broker.address, 1)
            if turns(cluster.broker):
                break
        assert (turns(cluster.broker) > 0) is polls
