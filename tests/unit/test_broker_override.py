"""broker/settings/decision.py: what a command decided is in force until a person says otherwise in broker.conf."""

import logging
from pathlib import Path

import pytest

from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.decision import Fence, Override
from runtime.config import ConfigError

MASTER = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def texts(root: Path, **values: str) -> dict[str, str]:
    return {"brokerName": "b", "storePathRootDir": str(root), **values}


def live(values: dict[str, str]) -> LiveConfig:
    broker, store, _ = override.load(values)
    return LiveConfig(broker, store)


def decide(values: dict[str, str], keys: dict[str, str], epoch: int = 1) -> Override:
    return override.decide(live(values), keys, why="a person said so", epoch=epoch)


def role(values: dict[str, str]) -> tuple[str, int]:
    broker, _, _ = override.load(values)
    return broker.brokerRole, broker.brokerId


def test_without_a_decision_the_file_counts(tmp_path: Path) -> None:
    values = texts(tmp_path, **SLAVE)
    assert override.read(tmp_path) is None
    assert override.apply(values, tmp_path) == (values, None)
    assert role(values) == ("SLAVE", 1)


def test_a_decision_outlives_a_restart_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = texts(tmp_path, **SLAVE)
    decided = decide(values, MASTER, epoch=4)
    assert decided.instead_of == SLAVE
    for _start in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert role(values) == ("ASYNC_MASTER", 0)
        (line,) = caplog.messages
        assert "brokerId=0 instead of 1, brokerRole=ASYNC_MASTER instead of SLAVE, because a person said so" in line
    assert override.read(tmp_path) == decided
    assert override.kept_epoch(tmp_path) == 4


@pytest.mark.parametrize(
    "edited",
    [
        {"brokerRole": "SLAVE", "brokerId": "2"},
        {"brokerRole": "SYNC_MASTER", "brokerId": "0"},
        {},
    ],
)
def test_a_persons_edit_wins_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, edited: dict[str, str]
) -> None:
    decide(texts(tmp_path, **SLAVE), MASTER)
    values = texts(tmp_path, **edited)
    with caplog.at_level(logging.WARNING):
        assert role(values) == (edited.get("brokerRole", "ASYNC_MASTER"), int(edited.get("brokerId", "0")))
    (line,) = caplog.messages
    assert "broker.conf counts, the decision is removed" in line
    assert not (tmp_path / "config" / override.NAME).exists()
    # For good, not only once.
    assert role(texts(tmp_path, **SLAVE)) == ("SLAVE", 1)


@pytest.mark.parametrize(
    "same",
    [
        {"brokerRole": " SLAVE ", "brokerId": "01"},
        {**SLAVE, "enableDLegerCommitLog": "FALSE"},
        {**SLAVE, "listenPort": "0", "brokerPermission": "4"},
    ],
)
def test_another_way_to_say_the_same_is_no_edit(tmp_path: Path, same: dict[str, str]) -> None:
    decide(texts(tmp_path, **SLAVE), {**MASTER, "enableDLegerCommitLog": "false"})
    assert role(texts(tmp_path, **same)) == ("ASYNC_MASTER", 0)


def test_decisions_add_up_and_remember_what_the_file_said_at_first(tmp_path: Path) -> None:
    values = texts(tmp_path, **SLAVE)
    decide(values, MASTER, epoch=1)
    group = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-127.0.0.1:40911", "dLegerSelfId": "n0"}
    decide(values, group, epoch=2)
    found = override.read(tmp_path)
    assert found is not None
    assert found.keys == {**MASTER, **group}
    assert found.instead_of == {**SLAVE, "enableDLegerCommitLog": "false", "dLegerPeers": "", "dLegerSelfId": ""}
    assert live(values).broker.enableDLegerCommitLog
    decide(values, {"enableDLegerCommitLog": "false", **SLAVE}, epoch=2)
    assert role(values) == ("SLAVE", 1)
    assert not live(values).broker.enableDLegerCommitLog


def test_what_could_not_start_is_not_written(tmp_path: Path) -> None:
    values = texts(tmp_path, **SLAVE)
    with pytest.raises(ConfigError, match="a master takes 0"):
        decide(values, {"brokerRole": "ASYNC_MASTER"})
    assert override.read(tmp_path) is None


def test_looking_changes_nothing_and_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    decide(texts(tmp_path, **SLAVE), MASTER)
    with caplog.at_level(logging.WARNING):
        edited, _, _ = override.load(texts(tmp_path, brokerRole="SLAVE", brokerId="7"), look_only=True)
        kept, _, _ = override.load(texts(tmp_path, **SLAVE), look_only=True)
    assert (edited.brokerId, kept.brokerRole) == (7, "ASYNC_MASTER")
    assert caplog.messages == []
    assert (tmp_path / "config" / override.NAME).exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": {"brokerRole": "SLAVE"}, "instead_of": {}, "why": ""}',
        b'{"keys": {"storePathRootDir": "x"}, "instead_of": {"storePathRootDir": "y"}, "why": ""}',
        b" " * (override.FILE_BYTES_MAX + 1),
    ],
)
def test_a_file_that_cannot_be_read_keeps_the_broker_from_starting(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / override.NAME).write_bytes(content)
    with pytest.raises(ConfigError, match=r"mode\.json cannot be used .*move the file away"):
        override.load(texts(tmp_path))


def test_a_fence_and_a_founder_are_kept(tmp_path: Path) -> None:
    values = texts(tmp_path, **MASTER)
    fence = Fence("10.0.0.2:10911", 3)
    override.decide(live(values), MASTER, why="deposed", epoch=2, fenced=fence)
    found = override.read(tmp_path)
    assert found is not None
    assert (found.fenced, found.founder, found.changes()) == (fence, False, [])
    override.decide(live(values), MASTER, why="founds", epoch=2, founder=True)
    found = override.read(tmp_path)
    assert found is not None
    assert (found.fenced, found.founder) == (None, True)


@pytest.mark.parametrize(
    ("table", "decided", "epoch"),
    [
        (None, None, 0),
        (b'{"dataVersion":{"counter":3,"stateVersion":5,"timestamp":1},"topicConfigTable":{}}', None, 5),
        (b'{"dataVersion":{"counter":3,"stateVersion":5,"timestamp":1},"topicConfigTable":{}}', 6, 6),
        (b'{"dataVersion":{"counter":3,"stateVersion":5,"timestamp":1},"topicConfigTable":{}}', 4, 5),
        (b'{"dataVersion":{"counter":3},"topicConfigTable":{}}', None, 0),
        (b"{damaged", 2, 2),
    ],
)
def test_R15_the_epoch_is_the_larger_of_table_and_decision(
    tmp_path: Path, table: bytes | None, decided: int | None, epoch: int
) -> None:
    if table is not None:
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "topics.json").write_bytes(table)
    if decided is not None:
        decide(texts(tmp_path, **SLAVE), MASTER, epoch=decided)
    assert override.kept_epoch(tmp_path) == epoch
