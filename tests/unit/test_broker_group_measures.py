"""How far the others are behind a leader, in entries, bytes and seconds; reasons of elections; names of slaves."""

from typing import Any, NamedTuple

import pytest

from broker.master_slave.measures import pair_figures, slave_figures
from broker.raft_group.measures import GroupMeasures
from broker.replication import SendTimes
from raft.core.reasons import counts, reason_of
from runtime.clock import ManualClock
from runtime.figures import Figure
from runtime.timings import Timings

ENTRY_BYTES = 100
LAST = 20
BASE = 5


class Written(NamedTuple):
    timestamp: int


class Log:
    """Entries 6 to 20, one a second, the last one appended just now; one of them cannot be read."""

    def __init__(self, clock: ManualClock, lost: int = 0) -> None:
        self._now_ms = clock.now_ms()
        self._lost = lost

    def end_position(self, index: int) -> int:
        assert BASE <= index <= LAST
        return index * ENTRY_BYTES

    def control(self, index: int) -> Written:
        assert BASE < index <= LAST
        if index == self._lost:
            raise LookupError
        return Written(self._now_ms - (LAST - index) * 1000)


def status(**matches: int) -> dict[str, Any]:
    return {
        "term": 3, "role": "LEADER", "leader": "n0", "leads": True, "has_quorum": True, "lease_s": 0.5, "base": BASE,
        "last": LAST, "end": LAST * ENTRY_BYTES, "durable": LAST, "commit": 18, "applied": 17, "open_proposals": 2,
        "members": [{"id": f"n{number}", "linked": number < 2} for number in range(3)],
        "elections": counts() | {"elected": 2}, "links_refused_by": {"secret": 4, "late": 0},
        "peers": {name: {"match": match, "lag": LAST - match, "last_ack_ms": 1500} for name, match in matches.items()},
    }  # fmt: skip


def figures(clock: ManualClock, log: Log, **matches: int) -> dict[str, Figure]:
    made = GroupMeasures(lambda: status(**matches), log, clock, sends=SendTimes(), appends=Timings())
    return {figure.name: figure for figure in made.figures()}


def lags(found: dict[str, Figure]) -> dict[str, dict[str, Any]]:
    units = ("entries", "bytes", "seconds")
    return {unit: {key[0]: value for key, value in found[f"raftmq_raft_follower_lag_{unit}"].values} for unit in units}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_the_lag_of_each_member(clock: ManualClock) -> None:
    found = figures(clock, Log(clock), n1=LAST, n2=17)
    assert lags(found) == {
        "entries": {"n1": 0, "n2": 3},
        "bytes": {"n1": 0, "n2": 300},
        # The oldest that it lacks is entry 18.
        "seconds": {"n1": 0, "n2": 2.0},
    }
    assert found["raftmq_raft_follower_heard_seconds"].values == [(("n1",), 1.5), (("n2",), 1.5)]
    clock.advance(10)
    assert lags(figures(clock, Log(ManualClock()), n2=17))["seconds"] == {"n2": 12.0}


def test_one_that_is_behind_all_that_is_kept_lacks_at_least_that(clock: ManualClock) -> None:
    assert lags(figures(clock, Log(clock), n1=0)) == {
        "entries": {"n1": LAST},
        "bytes": {"n1": (LAST - BASE) * ENTRY_BYTES},
        "seconds": {"n1": 14.0},
    }


def test_what_cannot_be_read_costs_nobody_the_other_metrics(clock: ManualClock) -> None:
    found = figures(clock, Log(clock, lost=18), n1=17, n2=18)
    assert lags(found)["seconds"] == {"n1": 0, "n2": 1.0}
    assert found["raftmq_raft_commit_index"].values == [((), 18)]


def test_reasons_are_of_a_fixed_list_whatever_is_said() -> None:
    assert reason_of("nobody led") == "nobody_led"
    assert reason_of("the leader handed over") == "handed_over"
    assert reason_of("elected") == "elected"
    assert reason_of("its disk takes nothing") == "disk"
    assert reason_of("this member's clock is 80 h ahead of n1's and n2's") == "clock"
    assert reason_of("n4711") == "other"
    assert {reason_of(why) for why in ("a", "b", "disk", "clock", "elected")} <= counts().keys()


def test_a_member_tells_how_often_it_stood(clock: ManualClock) -> None:
    found = figures(clock, Log(clock))
    assert found["raftmq_raft_elections_total"].values == [(("nobody_led",), 0), (("handed_over",), 0)]
    assert found["raftmq_raft_elected_total"].values == [((), 2)]
    assert found["raftmq_raft_links_refused_total"].values == [(("secret",), 4), (("late",), 0)]
    assert found["raftmq_raft_linked"].values == [(("n0",), 1), (("n1",), 1), (("n2",), 0)]


def test_slaves_are_named_by_their_hosts_and_not_by_ports_that_change() -> None:
    def slave(address: str, behind: int) -> dict[str, Any]:
        return {"address": address, "behind": behind, "bytesPerSecond": 7, "inSync": behind < 100}

    slaves = [slave("10.0.0.1:40001", 0), slave("[::1]:40002", 5), slave("10.0.0.1:40003", 500)]
    known = {"epoch": 4, "fenced": None, "slaves": slaves}
    found = {figure.name: figure.values for figure in pair_figures(known)}
    assert found["raftmq_ha_lag_bytes"] == [(("10.0.0.1",), 0), (("[::1]",), 5), (("10.0.0.1#2",), 500)]
    assert found["raftmq_ha_slaves_in_sync"] == [((), 2)]
    assert found["raftmq_ha_fenced"] == [((), 0)]
    assert [figure.values for figure in slave_figures(None)] == [[]]
    assert [figure.values for figure in slave_figures({"behind": None})] == [[]]
    assert [figure.values for figure in slave_figures({"behind": 12})] == [[((), 12)]]
