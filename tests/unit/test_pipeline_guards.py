from typing import Any

import pytest

from pipeline.history.promises import BadPromises, Promises, promises_of
from pipeline.history.results import Verdict
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Look, Read
from pipeline.plain.check_guards import GUARDS, check_v1, check_v2, check_v3, check_v4, check_v5, check_v6, check_v7
from pipeline.plain.guard_stores import check_v8
from tests.parts.little_history import Little, S


def good(**promises: Any) -> Little:
    """One send that was acknowledged, scanned, and a leader killed meanwhile."""
    little = Little(**{"leader_change_on": ("kill",), "faults_min": 1, **promises})
    little.send(0, 0, 5, 0)
    little.scan(100, [(0, 0)], 1)
    little.faults = [Fault(0, "kill", "n0", "leader", 10, 20, "pid 1 is gone")]
    little.looks = [
        Look(5, "n0", "leader", 1, "n0", 1, 1, 1, 1),
        Look(15, "n1", "leader", 2, "n1", 1, 1, 1, 1),
    ]
    return little


def test_a_good_run_passes_all() -> None:
    history = good().history()
    assert {guard(history).verdict for guard in GUARDS} == {Verdict.VALID}


def test_too_few_acknowledged() -> None:
    assert check_v1(good(acknowledged_min=2).history()).verdict is Verdict.UNKNOWN


def test_a_fault_without_effect_and_too_few_faults() -> None:
    little = good()
    little.faults.append(Fault(1, "pause", "n0", "leader", 10, 20))
    assert check_v2(little.history()).witnesses == ({"fault": 1, "name": "pause", "target": "n0"},)
    little.faults = []
    assert check_v2(little.history()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("at", "term", "wanted"), [(15, 2, Verdict.VALID), (15, 1, Verdict.UNKNOWN), (9 * S, 2, Verdict.UNKNOWN)]
)
def test_leaders_change_where_they_must(at: int, term: int, wanted: Verdict) -> None:
    little = good()
    little.looks[1] = little.looks[1]._replace(at=at, term=term)
    assert check_v3(little.history()).verdict is wanted


def test_an_unknown_term_before_the_fault_proves_no_change() -> None:
    little = good()
    little.looks = little.looks[1:]
    assert check_v3(little.history()).verdict is Verdict.UNKNOWN
    little.promises = Promises()
    assert check_v3(little.history()).verdict is Verdict.SKIPPED


def test_every_queue_that_was_sent_to_is_scanned_to_its_end() -> None:
    for change in ({"offset": 1}, {"invoked": 3}, {"end": 5}, {"kind": Kind.INFO}):
        little = good()
        little.ops[1] = little.ops[1]._replace(**change)
        assert check_v4(little.history()).verdict is Verdict.UNKNOWN, change
    little = good()
    little.send(1, 0, 5, kind=Kind.INFO, queue=4)
    assert check_v4(little.history()).witnesses[0]["queue"] == ["", "t", 4]


def test_one_complete_scan_is_enough() -> None:
    little = good()
    little.op(Act.SCAN, 200, 201, Kind.INFO, address="n1", offset=0)
    assert check_v4(little.history()).verdict is Verdict.VALID


def test_too_many_unknown_ends_unless_the_log_tells() -> None:
    little = good()
    for counter in (1, 2, 3):
        little.send(counter, 20, 25, kind=Kind.INFO)
    assert check_v5(little.history()).verdict is Verdict.UNKNOWN
    little.hold(0, 0)
    little.complete = False
    assert check_v5(little.history()).verdict is Verdict.UNKNOWN
    little.complete = True
    assert check_v5(little.history()).verdict is Verdict.VALID


def test_a_fault_that_was_never_ended() -> None:
    little = good()
    little.faults[0] = little.faults[0]._replace(ended=UNKNOWN)
    assert check_v6(little.history()).verdict is Verdict.UNKNOWN


def test_histories_that_break_their_own_rules() -> None:
    little = good()
    little.send(0, 200, 205)
    little.op(Act.MAX, 300, 290, process=1)
    little.op(Act.MAX, 310, UNKNOWN, process=2)
    little.op(Act.MAX, 320, 330, process=3)
    little.op(Act.MAX, 325, 335, process=3)
    little.op(Act.MAX, 340, 345, Kind.INFO, process=4)
    little.op(Act.MAX, 350, 355, process=4)
    little.reads.append(Read(99, "t", 0, 0, 0, 1, 0, 0, 7))
    assert {one["why"] for one in check_v7(little.history()).witnesses} == {
        "an attempt twice",
        "ended before it began",
        "ended at no time",
        "two at a time",
        "a process went on after an unknown end",
        "read by no operation",
    }


@pytest.mark.parametrize(
    ("members", "read", "lacking"),
    [
        # Who was promised counts, and where nobody was, who was read.
        (("n0", "n1"), {"n0": True, "n1": True}, {}),
        (("n0", "n1"), {"n0": True, "n1": False}, {"n1": "its log holds nothing"}),
        (("n0", "n1"), {"n0": True, "n9": True}, {"n1": "its store folder was not read"}),
        ((), {"n0": True, "n1": True}, {}),
        ((), {"n0": True, "n1": False}, {"n1": "its log holds nothing"}),
        ((), {}, {"": "no store folder was read"}),
    ],
)
def test_stores_that_nobody_looked_at(members: tuple[str, ...], read: dict[str, bool], lacking: dict[str, str]) -> None:
    found = check_v8(Promises(group_members={"g": members} if members else {}), read)
    assert {one["member"]: one["why"] for one in found.witnesses} == lacking
    assert (found.verdict, found.count) == (Verdict.UNKNOWN if lacking else Verdict.VALID, len(lacking))


def test_promises_come_back_from_json_and_refuse_nonsense() -> None:
    promises = promises_of("raft-async", {"g": ("n0", "n1")}, survives=("kill",))
    assert (promises.replicas, promises.may_lose_after_power_loss, promises.offsets_kept) == (2, True, True)
    raw = promises.as_dict()
    raw["survives"] = list(raw["survives"])
    assert Promises.from_dict(raw) == promises
    for wrong in ({"mode": "magic"}, {"duplicates": "often"}, {"replicas": 0}, {"strange": 1}):
        with pytest.raises(BadPromises):
            Promises.from_dict(wrong)


def test_classic_modes_promise_less() -> None:
    sync, single = promises_of("sync", {"g": ("m", "s")}), promises_of("single", {})
    assert (sync.may_lose_acknowledged, sync.offsets_kept, sync.fencing) == (False, False, False)
    assert (single.may_lose_acknowledged, single.replicas) == (True, 1)
