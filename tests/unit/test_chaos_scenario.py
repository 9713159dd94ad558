"""The scenarios are whole: every name that they use is there, and what they promise fits."""

import pytest

from chaos.runs.nemesis import FAULTS
from chaos.runs.scenario import Scenario, promised
from chaos.runs.scenarios import SCENARIOS, SUITES
from chaos.runs.schedule import draw
from chaos.workloads.catalogue import WORKLOADS
from chaos.workloads.groups import GROUP
from chaos.workloads.orderly import GROUP as ORDERLY
from pipeline.history.bank import booking, check_bank
from pipeline.history.results import Verdict
from pipeline.history.rows import Act, Kind, Op, Read

CONSUMERS = {"groups": GROUP, "orderly": ORDERLY}
# Of a group whose leader is gone, silent or alone for longer than followers wait, another one must lead (V3).
TAKES_THE_LEAD = {
    *("kill-leader", "pause-leader", "power-leader", "disk-power-leader"),
    *("isolate-leader", "isolate-leader-hold", "net-isolate-leader"),
    # Made of such: the leader is killed when its followers have an entry, or when it wakes up.
    *("part-kill", "pause-kill"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_uses_what_there_is(name: str) -> None:
    scenario = SCENARIOS[name]
    assert scenario.name == name
    assert scenario.text.endswith(".")
    assert set(scenario.faults) <= FAULTS.keys()
    assert scenario.workloads
    assert set(scenario.workloads) <= WORKLOADS.keys()
    assert scenario.promises.group_members.keys() == {"broker-a"}
    assert len(scenario.promises.group_members["broker-a"]) == scenario.nodes
    groups = tuple(group for name, group in CONSUMERS.items() if name in scenario.workloads)
    assert scenario.promises.consumer_groups == groups
    assert scenario.promises.orderly_groups == tuple(group for group in groups if group == ORDERLY)
    assert scenario.tier == max((FAULTS[fault]().tier for fault in scenario.faults), default="T0")
    assert not scenario.planted


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_promises_what_its_faults_must_bring(name: str) -> None:
    scenario = SCENARIOS[name]
    must = TAKES_THE_LEAD & set(scenario.faults) if scenario.mode == "raft" else set()
    assert set(scenario.promises.leader_change_on) == must
    assert scenario.promises.faults_min == (1 if scenario.faults else 0)
    # A fault that takes the lead and leaves a majority is survived (A25); what follows within a firing is its own.
    assert must - set(scenario.promises.survives) <= {"part-kill", "pause-kill"}


def test_every_fault_that_takes_the_lead_is_in_some_scenario() -> None:
    promised_on = {fault for scenario in SCENARIOS.values() for fault in scenario.promises.leader_change_on}
    assert promised_on == TAKES_THE_LEAD


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_schedule_fires_every_kind_of_fault(name: str) -> None:
    scenario = SCENARIOS[name]
    for seed in range(20):
        assert {planned.name for planned in draw(seed, scenario).faults} == set(scenario.faults)


def test_suites_name_scenarios() -> None:
    assert set(SUITES) == {"smoke", "full"}
    assert all(name in SCENARIOS for names in SUITES.values() for name in names)
    assert len(SUITES["smoke"]) == 3
    assert all(SCENARIOS[name].seconds == 45 and SCENARIOS[name].tier == "T0" for name in SUITES["smoke"])


def test_the_full_suite_breaks_all_that_can_be_broken() -> None:
    fired = {fault for name in SUITES["full"] for fault in SCENARIOS[name].faults}
    # What is fired as a part of others, or is one of two sides of the same thing.
    assert FAULTS.keys() - fired <= {"pause-majority", "slow-fsync-all"}
    assert {SCENARIOS[name].mode for name in SUITES["full"]} == {"raft", "sync", "async", "single"}
    assert any(not SCENARIOS[name].faults for name in SUITES["full"])
    assert {workload for name in SUITES["full"] for workload in SCENARIOS[name].workloads} == set(WORKLOADS)


def test_promises_may_be_changed() -> None:
    promises = promised("raft", 3, mode="raft-async", rto_bound_s=5)
    assert promises.may_lose_after_power_loss
    assert (promises.replicas, promises.rto_bound_s) == (3, 5)
    assert Scenario("mine", promises).seconds > 0


def test_both_halves_of_a_transfer_belong_together() -> None:
    for writer, transfer in ((1, 0), (3, 7), (900, 123_456)):
        taken, given = booking(writer, 2 * transfer), booking(writer, 2 * transfer + 1)
        assert taken.amount == -given.amount < 0
        assert taken.account != given.account


def _bank(*messages: tuple[int, int, int]) -> Verdict:
    scan = Op(0, 0, Act.SCAN, Kind.OK, 1, 2, topic="chaos_bank", queue=0, address="n0")
    reads = [
        Read(0, "chaos_bank", 0, at, at, writer, counter, attempt, 0)
        for at, (writer, counter, attempt) in enumerate(messages)
    ]
    return check_bank([scan], reads).verdict


def test_a_torn_transfer_is_found() -> None:
    assert _bank((1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)) is Verdict.VALID
    assert _bank((1, 0, 0), (1, 1, 0), (1, 2, 0)) is Verdict.INVALID
    # Two halves of different attempts are no whole.
    assert _bank((1, 0, 0), (1, 1, 1)) is Verdict.INVALID
    # Markers are nobody's money.
    assert _bank((0, 0, 0), (1, 0, 0), (1, 1, 0)) is Verdict.VALID
    assert _bank((0, 0, 0)) is Verdict.SKIPPED
