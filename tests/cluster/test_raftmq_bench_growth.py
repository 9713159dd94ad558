"""`raftmq bench growth` and `latency` measure what they say, over real brokers, and leave nothing behind."""

import json
from pathlib import Path

import pytest

from tests.cluster.test_raftmq_cli_errors import raftmq

pytestmark = pytest.mark.timeout(120)


def test_what_a_message_costs_as_queues_grow(tmp_path: Path) -> None:
    stores, svg = tmp_path / "stores", tmp_path / "svg"
    stores.mkdir()
    done = raftmq(
        "bench", "growth", "--of", "queues", "--values", "4,1", "--rounds", "2", "--seconds", "0.2", "--json",
        "--dir", str(stores), "--svg", str(svg),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, four = map(json.loads, done.stdout.splitlines())
    assert [(row["of"], row["value"], row["rounds"]) for row in (one, four)] == [("queues", 1, 2), ("queues", 4, 2)]
    for row in (one, four):
        assert row["messages_per_s"] > 0
        assert 0 < row["server_own_mb"] <= row["server_resident_mb"]
        assert row["server_cpu_us_per_message"] > 0
    # Neither of them costs some times as much as the other on any machine.
    assert one["to_first"] == 1.0
    assert 0.1 < four["to_first"] < 10
    assert sorted(path.name for path in svg.iterdir()) == ["growth-queues.svg", "growth.svg"]
    assert list(stores.iterdir()) == []


def test_how_long_messages_take_to_a_waiting_consumer(tmp_path: Path) -> None:
    done = raftmq(
        "bench", "latency", "--mode", "single", "--share", "0.2", "--seconds", "1", "--json", "--dir", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    closed, open_ = map(json.loads, done.stdout.splitlines())
    assert (closed["share"], open_["share"]) == (None, 0.2)
    capacity = min(closed["acknowledged_per_s"], closed["arrived_per_s"])
    assert open_["offered_per_s"] == round(0.2 * capacity)
    assert open_["sent"] == pytest.approx(open_["offered_per_s"], abs=1)
    for row in (closed, open_):
        # Each message came once.
        assert (row["arrived"], row["lost"], row["errors"]) == (row["sent"], 0, {})
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
        assert 0 < row["ack_p50_ms"] <= row["ack_p99_ms"] <= row["ack_max_ms"]
    assert list(tmp_path.iterdir()) == []
