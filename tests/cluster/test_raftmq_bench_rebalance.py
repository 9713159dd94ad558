"""`raftmq bench rebalance`: large groups share as many queues within seconds, when members join and when they leave."""

import json
from pathlib import Path
from typing import Any

import pytest

from raftmq.bench.rebalance import run_rebalance
from tests.cluster.test_raftmq_cli_errors import raftmq

# Seconds until every queue has one owner again: at once on an idle machine (docs/performance.md); consumers and brokers
# share the cores of all other tests. By the look of each, which comes every 20 s, it would be too late. And until all
# have joined: 0.2 s of a hundred, 88 s of a thousand.
OWNED_S = 15.0
JOINING_S = {100: 40.0, 1000: 240.0}


def rebalanced(told: dict[str, Any], consumers: int, left: int) -> None:
    """Check the figures of one group."""
    assert (told["consumers"], told["queues"], told["left"]) == (consumers, consumers, left)
    assert 0 < told["joining_s"] < JOINING_S[consumers]
    assert told["broker_cpu_s"] > 0
    assert told["broker_own_mb"] > 10
    assert told["joined_owned_s"] < OWNED_S
    assert told["left_owned_s"] < OWNED_S


def test_a_hundred_consumers_own_a_hundred_queues(tmp_path: Path) -> None:
    done = raftmq("bench", "rebalance", "--consumers", "100", "--leave", "10", "--json", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rebalanced(json.loads(done.stdout), 100, 10)
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_loses_all_but_one(tmp_path: Path) -> None:
    done = raftmq("bench", "rebalance", "--consumers", "8", "--leave", "7", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    columns, row = done.stdout.splitlines()
    assert columns.split()[:3] == ["consumers", "queues", "left"]
    assert row.split()[:3] == ["8", "8", "7"]


def test_somebody_has_to_stay() -> None:
    done = raftmq("bench", "rebalance", "--consumers", "8", "--leave", "8")
    assert (done.returncode, done.stderr) == (2, "raftmq: --leave 8: of 8 consumers at least one stays\n")


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_thousand_consumers_own_a_thousand_queues(tmp_path: Path) -> None:
    seen: dict[str, int] = {}
    found = await run_rebalance(1000, 100, lambda what, done, _total: seen.update({what: done}), tmp_path)
    assert seen == {"join": 1000, "shared": 1000, "shared again": 1000}
    rebalanced(found.as_dict(), 1000, 100)
