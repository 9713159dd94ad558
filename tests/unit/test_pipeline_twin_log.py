"""Tests of pipeline/twin_log and pipeline/replicas: what the planted anomalies do not reach, by rows made by hand."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.history.promises import Promises
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Look, Op
from pipeline.logs.member_files import Artefact, MemberLogBytes, Vote
from pipeline.logs.rows import Config, EntryRow, MessageRow
from pipeline.plain.check_log_acks import check_b2, check_b8, check_b9, check_b10
from pipeline.plain.check_log_bytes import check_b1
from pipeline.plain.check_log_derived import check_b7, check_b11, check_b12
from pipeline.plain.check_log_parts import NO_HISTORY
from pipeline.plain.check_log_promises import check_b5, check_b6, check_b14
from pipeline.plain.evidence import History
from pipeline.plain.log_checks import LOG_CHECKS
from pipeline.plain.replicas import Replicas
from raft.protocol.types import Mark
from remoting.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC

MEMBERS = ("n0", "n1", "n2")
SIZE = 100


def entry(number: int, term: int = 1, **changes: Any) -> EntryRow:
    made = EntryRow(
        number, term, (number - 1) * SIZE, SIZE, number * 10 + term, 1, False, 40, 1, term, number - 1, UNKNOWN,
        number * 100 + term, True,
    )  # fmt: skip
    return made._replace(**changes)


def message(number: int, term: int = 1, **changes: Any) -> MessageRow:
    made = MessageRow(
        "T", 0, number - 1, (number - 1) * SIZE + 40, 60, 0, 0, 5, number, term, 7, number, 0, 0, 0, "", 0, ()
    )
    return made._replace(**changes)


def log(member: str, entries: list[EntryRow], **changes: Any) -> Artefact:
    """A log of one message in each entry, its queue as it should be."""
    rows = [message(each.index, each.term) for each in entries]
    made = Artefact(
        member,
        MemberLogBytes([]),
        end=entries[-1].end if entries else 0,
        entries=entries,
        messages=rows,
        queues={("T", 0): [(row.offset, row.position, row.size, row.tags_code) for row in rows]},
        vote=Vote(9, "n0", "00"),
    )
    return replace(made, **changes)


def send(number: int, **changes: Any) -> Op:
    made = Op(
        number, 1, str(Act.SEND), str(Kind.OK), number * 100, number * 100 + 10, topic="T", queue=0, writer=7,
        counter=number, offset=number - 1, position=(number - 1) * SIZE + 40,
    )  # fmt: skip
    return made._replace(**changes)


def look(at: int, member: str = "n0", **changes: Any) -> Look:
    return Look(at, member, "follower", 1, "", 5, 3, 5, 500)._replace(**changes)


def replicas(logs: list[Artefact], **evidence: Any) -> Replicas:
    earlier = evidence.pop("earlier", ())
    promises = evidence.pop("promises", Promises(group_members={"g": MEMBERS}))
    return Replicas(History(evidence.pop("ops", ()), (), promises=promises, **evidence), logs, earlier)


def three(entries: list[EntryRow], **evidence: Any) -> Replicas:
    return replicas([log(member, list(entries)) for member in MEMBERS], **evidence)


def why(finding: Finding) -> list[Any]:
    return [witness.get("why") for witness in finding.witnesses]


# -- the merged log


def test_the_entry_that_most_members_hold_is_merged() -> None:
    mine, theirs = entry(2, term=2), entry(2, term=1)
    (group,) = replicas(
        [log("n0", [entry(1), mine]), log("n1", [entry(1), theirs]), log("n2", [entry(1), theirs])]
    ).groups
    assert group.entries == {1: entry(1), 2: theirs}
    # Of entry 2 nobody knows yet: it is not on all members.
    assert group.committed == 1
    assert [row.index for row in group.messages] == [1]
    assert not group.complete


def test_what_a_client_was_told_of_is_committed() -> None:
    (group,) = replicas(
        [log("n0", [entry(1), entry(2)]), log("n1", [entry(1), entry(2)]), log("n2", [entry(1)])], ops=[send(2)]
    ).groups
    assert group.committed == 2


def test_what_all_members_hold_is_committed_and_complete() -> None:
    evidence = three([entry(1), entry(2)])
    assert evidence.groups[0].committed == 2
    assert evidence.merged is not None
    assert evidence.merged.complete
    assert [(row.counter, row.entry, row.broker) for row in evidence.merged.messages] == [(1, 1, "g"), (2, 2, "g")]


def test_without_artefacts_nothing_is_merged_and_every_check_is_skipped() -> None:
    evidence = replicas([], ops=[send(1)])
    assert evidence.merged is None
    assert {check(evidence).verdict for check in LOG_CHECKS} == {Verdict.SKIPPED}


def test_groups_are_judged_apart() -> None:
    promises = Promises(group_members={"a": ("n0",), "b": ("n1",)}, replicas=1)
    evidence = replicas([log("n0", [entry(1)]), log("n1", [entry(1, term=2)])], promises=promises)
    assert check_b1(evidence).verdict is Verdict.VALID
    assert {row.broker for row in evidence.merged.messages} == {"a", "b"} if evidence.merged else False


# -- the checks


def test_b1_members_may_differ_above_what_both_know_as_committed() -> None:
    others = [log("n1", [entry(1), entry(2, term=2)]), log("n2", [entry(1), entry(2, term=2)])]
    logs = [log("n0", [entry(1), entry(2)]), *others]
    assert check_b1(replicas(logs)).verdict is Verdict.VALID
    said = [look(1, member, commit=2, last=2) for member in ("n0", "n1")]
    found = check_b1(replicas(logs, looks=said))
    assert found.verdict is Verdict.INVALID
    assert [witness["index"] for witness in found.witnesses] == [2]


def test_b1_one_term_has_one_chain_wherever_it_is() -> None:
    found = check_b1(replicas([log("n0", [entry(1)]), log("n1", [entry(1, chain=5)]), log("n2", [])]))
    assert found.verdict is Verdict.INVALID


def test_b1_is_unknown_when_a_member_was_not_read() -> None:
    found = check_b1(replicas([log("n0", [entry(1)]), log("n1", [entry(1)])]))
    assert (found.verdict, found.text) == (Verdict.UNKNOWN, "no store folder of n2")


def test_b2_counts_members_and_what_retention_removed() -> None:
    lacking = log("n2", [entry(2)], begin=SIZE)
    logs = [log("n0", [entry(1), entry(2)]), log("n1", [entry(2)], begin=0), lacking]
    assert check_b2(replicas(logs, ops=[send(1)])).verdict is Verdict.VALID
    lacking.begin = 0
    found = check_b2(replicas(logs, ops=[send(1)]))
    assert [(w["counter"], w["held_by"], w["needed"]) for w in found.witnesses] == [(1, ["n0"], 2)]


def test_b2_is_counted_where_power_loss_may_take_messages() -> None:
    promises = Promises("raft-async", group_members={"g": MEMBERS}, may_lose_after_power_loss=True)
    logs = [log("n0", [entry(1)]), log("n1", [entry(1)]), log("n2", [entry(1)])]
    power = [Fault(1, "power-all", "n0 n1 n2", "all", 1, 2, "gone")]
    assert check_b2(replicas(logs, ops=[send(3)], promises=promises)).verdict is Verdict.INVALID
    found = check_b2(replicas(logs, ops=[send(3)], promises=promises, faults=power))
    assert (found.verdict, found.count) == (Verdict.INFO, 1)


def test_b5_a_member_knows_more_as_committed_than_it_has() -> None:
    found = check_b5(three([entry(1)], looks=[look(1, commit=6)]))
    assert why(found) == ["commit 6, durable 5, last 5"]


def test_b5_a_leader_s_commit_never_falls_and_a_restarted_member_s_may() -> None:
    looks = [look(10, commit=5), look(30, commit=3)]
    assert why(check_b5(three([entry(1)], looks=looks))) == ["commit 5 became 3"]
    killed = [Fault(1, "kill-follower", "n0", "follower", 15, 20, "another pid")]
    assert check_b5(three([entry(1)], looks=looks, faults=killed)).verdict is Verdict.VALID
    led = [each._replace(role="leader") for each in looks]
    assert check_b5(three([entry(1)], looks=led, faults=killed)).verdict is Verdict.INVALID
    # Of one that never came to its end nobody has said whom it was upon; one that ended and did nothing is no excuse.
    endless = [Fault(1, "kill-follower", "", "", 15)]
    assert check_b5(three([entry(1)], looks=looks, faults=endless)).verdict is Verdict.VALID
    undone = [Fault(1, "kill-follower", "", "", 15, 20)]
    assert check_b5(three([entry(1)], looks=looks, faults=undone)).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("changes", "file"),
    [
        ({"dispatched": 150}, "checkpoint"),
        ({"floor": Mark(3, 1, 300, 301)}, "raft/floor"),
        ({"stamps": {"topics.json": 2}}, "topics.json"),
    ],
)
def test_b5_files_ahead_of_the_log(changes: dict[str, Any], file: str) -> None:
    logs = [log(member, [entry(1)]) for member in MEMBERS]
    logs[1] = replace(logs[1], **changes)
    found = check_b5(replicas(logs))
    assert [(w["member"], w["file"]) for w in found.witnesses] == [("n1", file)]


def test_b6_two_leaders_of_a_term() -> None:
    looks = [look(1, "n0", role="leader", term=3), look(9, "n1", role="leader", term=3)]
    (witness,) = check_b6(three([entry(1)], looks=looks)).witnesses
    assert witness == {"term": 3, "leaders": ["n0", "n1"]}


def test_b6_a_term_that_went_back() -> None:
    looks = [look(1, term=5), look(9, term=4)]
    assert why(check_b6(three([entry(1)], looks=looks))) == ["term 5 became 4"]
    changed = [Fault(1, "membership", "n0", "follower", 2, 8, "removed and added")]
    assert check_b6(three([entry(1)], looks=looks, faults=changed)).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("vote", "said"),
    [
        (None, "it is missing beside a log with entries"),
        (Vote(1, "n0", "00"), "its term is 1, that of the log's last entry 2"),
    ],
)
def test_b6_a_vote_that_was_forgotten(vote: Vote | None, said: str) -> None:
    logs = [log(member, [entry(1, term=2)]) for member in MEMBERS]
    logs[2] = replace(logs[2], vote=vote)
    found = check_b6(replicas(logs))
    assert [(w["member"], w["why"]) for w in found.witnesses] == [("n2", said)]


def test_b7_a_queue_that_knows_an_entry_of_a_minority() -> None:
    logs = [log("n0", [entry(1), entry(2)]), log("n1", [entry(1)]), log("n2", [entry(1)])]
    found = check_b7(replicas(logs))
    assert why(found) == ["entry 2 is on no majority"]


def test_b7_a_lost_dispatch_below_the_checkpoint() -> None:
    logs = [log(member, [entry(1), entry(2)]) for member in MEMBERS]
    del logs[0].queues["T", 0][1]
    assert check_b7(replicas(logs)).verdict is Verdict.VALID
    logs[0].dispatched = 200
    assert why(check_b7(replicas(logs))) == ["dispatched, and in no queue"]


def test_b7_zeros_and_jumps() -> None:
    logs = [log(member, [entry(1), entry(2), entry(3)]) for member in MEMBERS]
    logs[0].queues["T", 0][1] = (1, 0, 0, 0)
    assert why(check_b7(replicas(logs))) == ["zeros between entries"]
    logs[0].queues["T", 0] = []
    logs[0].messages[2] = message(3, offset=5)
    assert why(check_b7(replicas(logs))) == ["it follows offset 1"]


def test_b9_a_member_said_more_was_committed_than_there_is() -> None:
    found = check_b9(three([entry(1)], looks=[look(1, "n1", commit=4)]))
    assert [(w["member"], w["index"]) for w in found.witnesses] == [("n1", 4)]


@pytest.mark.parametrize(("term", "wrong"), [(2, [(2, 140, 240)]), (3, [])])
def test_b10_what_was_cut_stands_elsewhere_in_a_later_term_at_the_earliest(
    term: int, wrong: list[tuple[int, int, int]]
) -> None:
    before = [log("n0", [entry(1), entry(2, term=2)]), log("n1", [entry(1)]), log("n2", [entry(1)])]
    after = [log(member, [entry(1), entry(2, term=term), entry(3, term=term)]) for member in MEMBERS]
    for each in after:
        each.messages[1] = message(2, term=term, counter=9, crc=6)
        each.messages[2] = message(3, term=term, counter=2)
    found = check_b10(replicas(after, earlier=[before], ops=[send(2, kind=str(Kind.INFO))]))
    assert [(w["counter"], w["cut_at"], w["found"]) for w in found.witnesses] == wrong


def test_b11_a_half_is_settled_once() -> None:
    logs = [log(member, [entry(number) for number in range(1, 6)]) for member in MEMBERS]
    for each in logs:
        each.messages[0] = message(1, topic=TRANS_HALF_TOPIC, sys_flag=4)
        each.messages[1] = message(2, topic=TRANS_OP_HALF_TOPIC, refers=(0,))
        each.messages[2] = message(3, topic=TRANS_OP_HALF_TOPIC, refers=(0,))
        each.messages[3:] = [message(number, prepared=40) for number in (4, 5)]
    assert why(check_b11(replicas(logs))) == ["settled 2 times", "2 real messages"]


def test_b12_an_offset_goes_back_unless_somebody_asked_for_it() -> None:
    logs = [log(member, [entry(1), entry(2)]) for member in MEMBERS]
    logs[0].offsets, logs[0].offsets_before = {("G", "T", 0): 1}, {("G", "T", 0): 2}
    found = check_b12(replicas(logs, ops=[send(1)]))
    assert [(w["offset"], w["before"]) for w in found.witnesses] == [(1, 2)]
    asked = Op(1, 1, str(Act.COMMIT), str(Kind.INFO), 5, topic="T", queue=0, group="G", value=1)
    assert check_b12(replicas(logs, ops=[asked])).verdict is Verdict.VALID
    assert check_b12(replicas(logs, ops=[asked._replace(act=str(Act.RESET))])).verdict is Verdict.VALID
    careless = Promises(group_members={"g": MEMBERS}, offsets_kept=False)
    assert check_b12(replicas(logs, ops=[send(1)], promises=careless)).verdict is Verdict.VALID


def test_b12_without_a_history_nobody_knows_who_set_an_offset_back_but_the_end_is_known() -> None:
    logs = [log(member, [entry(1), entry(2)]) for member in MEMBERS]
    logs[0].offsets, logs[0].offsets_before = {("G", "T", 0): 1}, {("G", "T", 0): 2}
    found = check_b12(replicas(logs))
    assert (found.verdict, found.text) == (Verdict.VALID, NO_HISTORY)
    logs[0].offsets = {("G", "T", 0): 99}
    assert check_b12(replicas(logs)).verdict is Verdict.INVALID


def test_b2_b8_b9_b10_are_not_judged_where_there_is_nothing_to_compare_with() -> None:
    alone = three([entry(1), entry(2)])
    assert {check(alone).verdict for check in (check_b2, check_b8, check_b9, check_b10)} == {Verdict.SKIPPED}
    told = three([entry(1), entry(2)], ops=[send(1)])
    assert {check(told).verdict for check in (check_b2, check_b8)} == {Verdict.VALID}
    assert check_b9(three([entry(1), entry(2)], looks=[look(1, commit=1)])).verdict is Verdict.VALID
    refused = three([entry(1), entry(2)], ops=[send(7, kind=str(Kind.FAIL))])
    assert check_b10(refused).verdict is Verdict.VALID
    before = [log(member, [entry(1)]) for member in MEMBERS]
    earlier = three([entry(1), entry(2)], earlier=[before])
    assert {check(earlier).verdict for check in (check_b9, check_b10)} == {Verdict.VALID}


def test_b14_votes_and_leaders_are_members() -> None:
    logs = [log(member, [entry(1)], configs=[Config(1, MEMBERS, MEMBERS)]) for member in MEMBERS]
    logs[0].vote = Vote(9, "n7", "00")
    assert why(check_b14(replicas(logs))) == ["it voted for n7, no member"]


def test_b14_an_entry_names_the_last_configuration() -> None:
    entries = [entry(1, kind=3, config=1), entry(2, config=1), entry(3, config=2)]
    found = check_b14(three(entries))
    assert {witness["index"] for witness in found.witnesses} == {3}
