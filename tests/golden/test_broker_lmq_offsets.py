"""A folder that RocketMQ 5.5.0 wrote with enableLmq=true: every group goes on where it was."""

import tarfile
from pathlib import Path

import pytest

from remoting.bodies.registry import ConsumerOffsetTable
from runtime.clock import ManualClock
from tests.golden.test_broker_transactions import DATA, RECORDED_MS, started


async def test_groups_go_on_where_they_were(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tarfile.open(DATA / "store-features-clean.tar.xz") as archive:
        archive.extractall(tmp_path)
    config = tmp_path / "b0" / "config"
    assert not (config / "consumerOffset.json").exists()
    recorded = ConsumerOffsetTable.decode((config / "lmqConsumerOffset.json").read_bytes()).offsetTable
    for _ in range(2):
        broker = await started(tmp_path / "b0", ManualClock(RECORDED_MS))
        offsets = broker._parts.offsets
        assert {key: dict(offsets.offsets(*reversed(key.split("@", 1)))) for key in recorded} == recorded
        await broker.close()
    assert "light message queues (%LMQ%$FeatLite$room-1, %LMQ%$FeatLite$room-2)" in caplog.text
    kept = ConsumerOffsetTable.decode((config / "consumerOffset.json").read_bytes()).offsetTable
    assert kept == recorded
