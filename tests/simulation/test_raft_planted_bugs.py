"""For each planted bug a schedule in which it does harm: the invariant it breaks, and the real code living through it.

R14 (a member that does not lead answers "offset moved") is a decision of one handler about one request, and needs no
schedule: it stands with the unit tests of the broker's pulls.
"""

import logging
import re
from collections.abc import Callable, Iterator

import pytest

from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import Fate
from tests.simulation import planted
from tests.simulation.member import Parts
from tests.simulation.script import BIG, Schedule, Script, play
from tests.simulation.world import Failure


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def catch(schedule: Schedule, bug: type[Parts], what: str, *, voters: int = 3) -> None:
    """The schedule with the bug breaks the invariant named; without it nothing breaks, to the very end."""
    with pytest.raises(Failure, match=re.escape(what)):
        play(schedule, bug(), voters=voters)
    play(schedule, voters=voters)


# -- acknowledging


def slow_disks(script: Script) -> None:
    script.begin()
    for name in ("n1", "n2"):
        script.member(name).fsync_s = 0.2
    attempt = script.send("n0")
    script.until("acknowledged", lambda: attempt.fate is Fate.COMMITTED)


def test_acknowledging_before_fsync_is_caught() -> None:
    catch(slow_disks, planted.ack_before_fsync, "AcknowledgedIsOnAMajoritysDisk")


def a_leader_alone(script: Script) -> None:
    script.begin()
    script.isolate("n0")
    script.send("n0")
    script.run(0.3)


def test_acknowledging_before_a_quorum_is_caught() -> None:
    catch(a_leader_alone, planted.ack_before_quorum, "AcknowledgedIsOnAMajoritysDisk")


def a_deposed_leader_comes_back(script: Script) -> None:
    script.begin()
    script.isolate("n0")
    script.send("n0")
    script.await_leader("n1", "n2")
    script.heal()
    script.until("n0 follows", lambda: not script.member("n0").leads)
    script.run(0.5)


def test_a_deposed_leader_that_acknowledges_is_caught() -> None:
    catch(a_deposed_leader_comes_back, planted.acknowledge_when_deposed, "AcknowledgedIsOnAMajoritysDisk")


def a_leader_dies_with_entries_on_their_way(script: Script) -> None:
    """n1 and n2 hold an entry whose acknowledgement n0 never gets; it steps down, the entry lives."""
    script.begin()
    script.drop_kind(MessageKind.APPEND_REPLY, target="n0")
    script.send("n0")
    script.run(0.05)
    script.isolate("n0")
    script.drop_nothing()
    script.await_leader("n1", "n2")
    script.heal()
    script.until("n0 follows", lambda: not script.member("n0").leads)
    script.until("all is settled", script.world.settled)


def forward_when_overwritten(script: Script) -> None:
    """What a gateway does: what was overwritten is sent once more, to whoever leads now (R8)."""

    def again(member: object, attempt: object, fate: Fate) -> None:
        leader = script.world.leader()
        if fate is Fate.OVERWRITTEN and leader is not None:
            script.world.clients.send_again(leader, attempt)  # type: ignore[arg-type]  # an Attempt

    script.world.clients.on_fate = again
    a_leader_dies_with_entries_on_their_way(script)


def test_R8_forwarding_what_was_appended_is_caught() -> None:
    catch(forward_when_overwritten, planted.overwritten_when_deposed, "EveryAttemptHasOneFate")


# -- votes


def a_voter_restarts(script: Script) -> None:
    script.begin()
    script.kill("n1")
    script.start("n1")
    script.run(1.0)


def test_forgetting_the_vote_is_caught() -> None:
    catch(a_voter_restarts, planted.forget_the_vote, "TermsAndVotesNeverGoBack")


def two_of_five_are_cut_off(script: Script) -> None:
    """Every message comes twice: two members must not make three votes of it."""
    script.begin()
    script.world.network.weather.double = 1.0
    script.isolate("n1", "n2")
    script.write("n0")
    script.run(4.0)


def test_R9_counting_every_vote_is_caught() -> None:
    catch(two_of_five_are_cut_off, planted.count_every_vote, "LeadersHaveAllThatIsCommitted", voters=5)


def a_wiped_disk_under_an_old_name(script: Script) -> None:
    """n0 and n2 have what n1 lacks; n2 loses its disk, learns the CONFIG again, and is asked for its vote by n1."""
    leader = script.begin()
    noop = leader.raft.config_index + 1
    script.isolate("n1")
    script.write("n0", b"1" + BIG, b"2" + BIG)
    script.kill("n0")
    script.world.wipe(script.member("n2"))
    to_n1, to_n2 = planted.appends_above(noop, "n0", "n1"), planted.appends_above(noop, "n0", "n2")
    script.drop(lambda *sent: to_n1(*sent) or to_n2(*sent))
    script.heal()
    script.start("n0", "n2")
    script.until("n0 leads by the vote of n1", lambda: leader.leads)
    script.run(0.4)
    script.kill("n0")
    script.drop_nothing()
    script.run(4.0)


def test_R6_a_vote_of_a_wiped_disk_is_caught() -> None:
    with pytest.raises(Failure, match="LeadersHaveAllThatIsCommitted"):
        play(a_wiped_disk_under_an_old_name, planted.trust_a_wiped_disk())

    def replaced_by_an_administrator(script: Script) -> None:
        a_wiped_disk_under_an_old_name(script)
        assert script.world.leader() is None, "n1 must not lead with the vote of an empty disk"
        script.heal()
        script.start("n0")
        script.replace("n2")

    play(replaced_by_an_administrator)


# -- the log


def an_append_comes_twice(script: Script) -> None:
    """n1 gets an append again, long after it acknowledged it and before it knows that it is committed."""
    script.begin()
    seen: list[RaftMessage] = []

    def keep_one(source: str, target: str, message: RaftMessage) -> bool:
        if (source, target, message.kind) != ("n0", "n1", MessageKind.APPEND):
            return False
        if seen:
            return True
        if message.fields["entries"]:
            seen.append(message._replace(payload=tuple(bytes(part) for part in message.payload)))
        return False

    script.drop(keep_one)
    script.write("n0")
    script.drop_nothing()
    script.world.carry("n0", "n1", seen[0])
    script.run(0.2)


def test_truncating_what_matches_is_caught() -> None:
    catch(an_append_comes_twice, planted.truncate_what_matches, "TheFloorIsNeverCut")


def figure_eight(script: Script) -> None:
    """Figure 8 of the Raft paper: an entry of an old term on a majority, which a later leader overwrites."""
    script.begin()
    script.isolate("n0")
    script.send("n0", BIG)
    old = script.member("n0").log.last.index
    script.run(0.05)
    script.kill("n0")
    script.heal()
    # The next leader's no-op stays with it alone.
    script.drop_kind(MessageKind.APPEND)
    script.until("n1 or n2 leads", lambda: script.member("n1").leads or script.member("n2").leads)
    second, third = ("n1", "n2") if script.member("n1").leads else ("n2", "n1")
    script.run(0.05)
    script.kill(second)
    script.start("n0")
    # n0 brings its old entry to the third, and not the no-op of its new term.
    script.drop(planted.appends_above(old, "n0", third))
    script.until("n0 leads", lambda: script.member("n0").leads)
    script.run(0.6)
    script.kill("n0")
    script.start(second)
    script.drop_nothing()
    script.await_leader(second, third)
    script.run(0.3)


def test_committing_old_terms_by_count_is_caught() -> None:
    catch(figure_eight, planted.commit_old_terms_by_count, "LeadersHaveAllThatIsCommitted")


def killed_with_a_full_cache(script: Script) -> None:
    """n1 has an entry in its cache when it is killed, and acknowledges it when it is back: is it on its disk?"""
    script.begin()
    script.isolate("n2")
    script.member("n1").fsync_s = 5.0
    attempt = script.send("n0")
    script.run(0.05)
    script.kill("n1")
    script.start("n1")
    script.until("acknowledged", lambda: attempt.fate is Fate.COMMITTED)
    script.power("n0", "n1")
    script.start("n0", "n1")
    script.heal()
    script.await_leader("n0", "n1", "n2")


def test_R5_taking_the_cache_for_the_disk_is_caught() -> None:
    catch(killed_with_a_full_cache, planted.believe_the_cache, "AcknowledgedIsOnAMajoritysDisk")


def an_fdatasync_failed_before_the_kill(script: Script) -> None:
    """The kernel calls pages clean whose write failed: syncing them again at the next start does nothing."""
    script.begin()
    script.isolate("n2")
    script.member("n1").disk.failing_syncs = 1
    attempt = script.send("n0")
    script.until("n1 ends", lambda: not script.member("n1").alive)
    script.start("n1")
    script.until("acknowledged", lambda: attempt.fate is Fate.COMMITTED)


def test_R5_what_a_failed_fdatasync_left_is_written_again() -> None:
    play(an_fdatasync_failed_before_the_kill)


def an_acknowledged_entry_rots(script: Script) -> None:
    """n0 and n2 have what n1 lacks; the entry goes bad on n2, and then n0 is down."""
    script.begin()
    script.isolate("n1")
    attempt = script.write("n0")
    script.write("n0")
    script.run(0.05)  # the floor's file may be 10 ms behind
    script.kill("n2")
    script.rot("n2", attempt.index)
    script.kill("n0")
    script.heal()
    script.start("n2")
    script.run(4.0)
    assert script.world.leader() is None, "n1 lacks an entry, and n2 cannot read it"
    script.start("n0")
    script.until("n2 has fetched it", lambda: script.member("n2").log.whole)


def test_R4_cutting_below_the_floor_is_caught() -> None:
    catch(an_acknowledged_entry_rots, planted.cut_below_the_floor, "TheFloorIsNeverCut")


def each_lacks_what_the_other_has(script: Script) -> None:
    script.begin()
    first, second = script.write("n0"), script.write("n0")
    script.run(0.2)
    for name, attempt in (("n1", first), ("n2", second)):
        script.kill(name)
        script.rot(name, attempt.index)
    script.kill("n0")
    script.start("n1", "n2")
    script.await_leader("n1", "n2")


def test_R4_two_members_repair_each_other() -> None:
    play(each_lacks_what_the_other_has)


# -- clocks


def the_clock_of_the_leader_is_set(script: Script) -> None:
    """n0 leads, and writes on, while its wall clock is 80 h ahead; then it is right again."""
    script.begin()
    script.write("n0")
    script.member("n0").clock.ahead = 80 * 3600.0
    script.send("n0")
    for _ in range(20):
        script.run(0.1)
        leader = script.world.leader()
        if leader is not None:
            script.send(leader.name)
    assert script.member("n0").raft.clocks.apart or script.member("n0").leads
    script.member("n0").clock.ahead = 0.0
    script.run(2.0)
    assert script.member("n0").raft.clocks.apart == ""


def test_R17_comparing_clocks_at_the_link_only_is_caught() -> None:
    catch(
        the_clock_of_the_leader_is_set,
        planted.compare_clocks_at_the_link_only,
        "NothingIsStampedOrDeletedByAWrongClock",
    )


# -- the beginning


def two_empty_stores_meet_the_one_with_the_data(script: Script, plant: Callable[[], None] | None = None) -> None:
    """Two of three disks are gone: nobody can go on, and nobody may begin anew."""
    script.begin()
    script.write("n0")
    for name in ("n1", "n2"):
        script.world.wipe(script.member(name))
    if plant is not None:
        plant()
    script.start("n1", "n2")
    script.run(4.0)
    assert script.world.leader() is None


def test_R1_empty_stores_that_outvote_the_data_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted_schedule(script: Script) -> None:
        bug = "raft.core.bootstrapper.decide", planted.begin_without_those_who_have_the_data
        two_empty_stores_meet_the_one_with_the_data(script, lambda: monkeypatch.setattr(*bug))

    play(two_empty_stores_meet_the_one_with_the_data, planted.link_everybody(), finish=False)
    with pytest.raises(Failure, match=r"LeadersHaveAllThatIsCommitted|TermsAndVotesNeverGoBack"):
        play(planted_schedule, planted.link_everybody(), finish=False)


# -- leases and reads


def answers_wait_in_the_socket(script: Script) -> None:
    """n0 is stopped while answers are on their way to it, and goes on when another one leads."""
    script.begin()
    answered: list[RaftMessage] = []

    def watch(source: str, target: str, message: RaftMessage) -> bool:
        if (message.kind, target) == (MessageKind.APPEND_REPLY, "n0"):
            answered.append(message)
        return False

    script.drop(watch)
    script.until("an answer is on its way", lambda: bool(answered))
    script.world.pause(script.member("n0"))
    script.drop_nothing()
    leader = script.await_leader("n1", "n2")
    script.write(leader.name)
    script.world.resume(script.member("n0"))
    for _ in range(20):
        script.run(0.001)
        script.read("n0")


def test_R7_a_lease_that_counts_from_receipt_is_caught() -> None:
    catch(answers_wait_in_the_socket, planted.lease_from_receipt, "OneLeaseAtATime")


def a_new_leader_with_a_slow_disk(script: Script) -> None:
    """The new leader holds what was acknowledged, and does not know yet that it is committed."""
    script.begin()
    script.write("n0")
    script.run(0.1)
    attempt = script.send("n0")
    script.drop(lambda source, _, message: source == "n0" and message.fields.get("commit", 0) >= attempt.index)
    script.until("acknowledged", lambda: attempt.fate is Fate.COMMITTED)
    script.kill("n0")
    script.drop_nothing()
    for name in ("n1", "n2"):
        script.member(name).fsync_s = 1.0
    script.until("n1 or n2 leads", lambda: script.member("n1").leads or script.member("n2").leads)
    leader = "n1" if script.member("n1").leads else "n2"
    for _ in range(200):
        script.run(0.01)
        script.read(leader)


def test_serving_before_dispatch_is_caught() -> None:
    catch(a_new_leader_with_a_slow_disk, planted.serve_before_dispatch, "ReadersSeeAllThatWasAcknowledged")
