"""The table of `raftmq cluster status`: the essence of each broker, never wider than 80 columns."""

import pytest

from raftmq.cli.output import print_table
from raftmq.cli.status import COLUMNS, WIDTH, Told, rows, warnings

MEMBER = {
    "raftRole": "FOLLOWER", "raftTerm": "12", "raftLastIndex": "1200", "raftCommitIndex": "1190",
    "commitLogDiskRatio": "0.634", "putTps": "1234.5 1 1", "getTransferredTps": "0 0 0", "putLatency99": "0.00",
}  # fmt: skip
LEADER = MEMBER | {
    "raftRole": "LEADER", "raftLastIndex": "1210", "raftCommitIndex": "1208", "putLatency99": "3.456",
    "getTransferredTps": "98765.4 2 3",
}  # fmt: skip
LONGEST = {
    "brokerRole": "SYNC_MASTER", "epoch": "99999999", "raftLastIndex": "9" * 18, "commitLogDiskRatio": "1.0",
    "putTps": "99940 1 1", "getTransferredTps": "99940 1 1", "putLatency99": "999.99",
}  # fmt: skip


def test_members_of_a_group_stand_together_with_what_each_lacks() -> None:
    told = [
        Told("b", 2, "h:2", MEMBER),
        Told("b", 0, "h:1", LEADER),
        Told("a", 0, "h:3", {"brokerRole": "ASYNC_MASTER"}),
    ]
    assert rows(told) == [
        ("a", 0, "master", "", "", "", "", "", ""),
        ("b", 0, "leader", "12", "2", "63%", "1.2k", "98.8k", "3.46"),
        ("b", 2, "follower", "12", "20", "63%", "1.2k", "0", ""),
    ]


def test_a_slave_lacks_bytes_and_rocketmqs_own_broker_is_shown_too() -> None:
    slave = {"brokerRole": "SLAVE", "epoch": "3", "masterBehindBytes": "12345678"}
    foreign = {"putTps": "0.5 0 0", "commitLogDiskRatio": "0.1", "putLatency99": "nonsense"}
    told = [Told("p", 1, "h:1", slave), Told("q", 0, "h:2", foreign), Told("q", 1, "h:3", foreign)]
    assert [row[2:6] for row in rows(told)] == [
        ("slave", "3", "12 MiB", ""),
        ("master", "", "", "10%"),
        ("slave", "", "", "10%"),
    ]


@pytest.mark.parametrize("lacks", [{"raftCommitIndex": "1"}, {"masterBehindBytes": "9" * 18}])
def test_no_row_is_wider_than_the_terminal(lacks: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    told = [
        Told("a-broker-with-a-very-long-name" * 4, 12, "h:1", LONGEST | lacks),
        Told("b", 1, "h:2", {"error": "x" * 200}),
    ]
    print_table(COLUMNS, rows(told))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= WIDTH
    assert "a-broker…ong-name" in lines[1]


def test_who_does_not_answer_is_in_the_table_and_said_below() -> None:
    told = [
        Told("a", 0, "h:1", {"error": "no connection to h:1"}),
        Told("b", 0, "h:2", LEADER | {"writesRefused": "the disk is full " * 20, "raftClockApart": ""}),
        Told("h:3", None, "h:3", {"fenced": "another was promoted"}),
    ]
    assert rows(told)[0][:3] == ("a", 0, "no answer")
    lines = warnings(told)
    assert lines[0] == "a:0 does not answer: no connection to h:1"
    assert lines[1].startswith("b:0 takes no messages: the disk is full")
    assert lines[-1] == "h:3 is fenced: another was promoted"
    assert max(map(len, lines)) <= WIDTH
