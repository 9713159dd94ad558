"""What `raftmq cluster raft-status` shows of members beside their figures."""

from typing import Any

from raftmq.cli.raft import COLUMNS, _rows

STATE: dict[str, Any] = {
    "self": "n0", "group": "g", "role": "FOLLOWER", "term": 3, "leader": "n1", "last": 9, "commit": 9, "applied": 9,
    "durable": 9, "flushDiskType": "SYNC_FLUSH", "last_election": {"term": 3, "why": "n1 leads"},
}  # fmt: skip


def test_R17_a_member_whose_clock_is_apart_says_so_in_the_table() -> None:
    apart = {"apart": "this member's clock is 80 h ahead of those of n1, n2", "sure": False}
    rows = _rows({"a:1": STATE, "b:1": {**STATE, "clock": {**apart, "apart": ""}}, "c:1": {**STATE, "clock": apart}})
    shown = [dict(zip(COLUMNS, row, strict=True))["election"] for row in rows]
    assert shown == ["term 3: n1 leads", "term 3: n1 leads", f"must not lead: {apart['apart']}"]


def test_R4_a_member_that_repairs_its_log_shows_how_far_it_is_in_the_table() -> None:
    repair = {"bytes_done": 3 << 19, "bytes_total": 64 << 20, "since_ms": 2100, "from": "n1"}
    hurt = {**STATE, "whole": False, "repair": repair}
    apart = {"apart": "this member's clock is 80 h ahead of those of n1, n2", "sure": False}
    states = {
        "a:1": {**STATE, "whole": True, "repair": None, "last_repair": {"bytes": 9, "ms": 1, "from": "n1"}},
        "b:1": hurt,
        "c:1": {**hurt, "repair": {**repair, "from": None}, "clock": apart},
        "d:1": {**hurt, "repair": None},
    }
    shown = [dict(zip(COLUMNS, row, strict=True))["election"] for row in _rows(states)]
    assert shown == [
        "term 3: n1 leads",
        "repairs its log: 1.5 of 64.0 MiB in 2 s, n1 is asked",
        f"must not lead: {apart['apart']}; repairs its log: 1.5 of 64.0 MiB in 2 s, nobody is asked",
        "its log has damage that is to be repaired",
    ]


def test_a_member_whose_disk_is_full_says_so_in_the_table() -> None:
    states = {"a:1": {**STATE, "writesRefused": None}, "b:1": {**STATE, "writesRefused": "the disk is full"}}
    shown = [dict(zip(COLUMNS, row, strict=True))["election"] for row in _rows(states)]
    assert shown == ["term 3: n1 leads", "takes no messages: the disk is full"]
