"""Files and queues that are gone, and starts that are killed: the planted bugs that forget about it are caught."""

import errno
import logging
import re
from collections.abc import Iterator

import pytest

from raft.protocol.messages import MessageKind
from raft.protocol.types import EntryType, Fate
from tests.simulation import planted_losses
from tests.simulation.member import FILE_BYTES, Parts
from tests.simulation.script import BIG, Schedule, Script, play
from tests.simulation.world import Failure


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def catch(schedule: Schedule, bug: type[Parts], what: str) -> None:
    """The schedule with the bug breaks the invariant named; without it nothing breaks, to the very end."""
    with pytest.raises(Failure, match=re.escape(what)):
        play(schedule, bug())
    play(schedule)


def fill(script: Script) -> None:
    script.begin()
    fill_up(script, 3.5)


def fill_up(script: Script, files: float) -> None:
    log = script.member("n0").log
    while log.last.end < files * FILE_BYTES:
        script.write("n0", b"%d " % log.last.index + BIG)


def renew_config(script: Script) -> None:
    """Write the list of members anew, as a leader does before the file that it stands in may go."""
    leader = script.member("n0")
    payload = leader.log.payload(leader.log.last_config())
    fates: list[Fate] = []
    script.world.run_on(
        leader,
        lambda: leader.raft.propose(
            lambda term, commit: leader.log.append(EntryType.CONFIG, term, payload, commit), fates.append
        ),
    )
    script.until("it is committed", lambda: fates == [Fate.COMMITTED])


def four_files(script: Script) -> None:
    """Fill some files, and stop n1 in good order."""
    fill(script)
    script.until("all have it", script.world.settled)
    script.world.stop(script.member("n1"))


def a_lost_file_and_a_kill_before_it_is_back(script: Script) -> None:
    """n1 lacks a file; nobody can help it until it has been killed and started once more. Then it leads."""
    four_files(script)
    hurt = script.member("n1")
    hurt.lose_file(1)
    script.isolate("n1")
    for _ in range(2):
        script.start("n1")
        assert not hurt.log.whole
        script.world.run_on(hurt, hurt.idle)
        script.run(0.2)
        script.kill("n1")
    script.start("n1")
    script.heal()
    script.until("n1 is whole", lambda: hurt.log.whole)
    script.lead("n1")
    for name in ("n0", "n1", "n2"):
        script.read(name)
    attempt = script.write("n1")
    assert attempt.fate is Fate.COMMITTED


def test_R4_a_forgotten_hole_is_caught() -> None:
    catch(a_lost_file_and_a_kill_before_it_is_back, planted_losses.forget_the_hole, "QueuesAreAFunctionOfTheLog")


def the_first_file_is_lost(script: Script) -> None:
    """n1 lacks the file that its log begins with; the list of members stands in a later one too. Then it leads."""
    script.begin()
    fill_up(script, 1.5)
    renew_config(script)
    fill_up(script, 3.5)
    script.until("all have it", script.world.settled)
    hurt = script.member("n1")
    script.world.stop(hurt)
    hurt.lose_file(0)
    script.start("n1")
    script.world.run_on(hurt, hurt.idle)
    script.kill("n1")
    script.start("n1")
    script.until("n1 has everything", script.world.settled)
    script.lead("n1")
    for name in ("n0", "n1", "n2"):
        script.read(name)
    assert script.write("n1").fate is Fate.COMMITTED


def test_R4_a_first_file_that_is_taken_for_retention_is_caught() -> None:
    bug = planted_losses.first_file_taken_for_retention
    catch(the_first_file_is_lost, bug, "calls itself whole and begins behind entry")


def all_files_are_lost(script: Script) -> None:
    """n1 lacks every file; what it promised not to lose it gets back, and votes for nobody before."""
    four_files(script)
    hurt = script.member("n1")
    for number in range(4):
        hurt.lose_file(number)
    script.isolate("n1")
    script.start("n1")
    assert (hurt.log.whole, hurt.log.last_config()) == (False, 0)
    script.run(1.0)
    script.kill("n1")
    script.heal()
    script.start("n1")
    script.until("n1 has everything", script.world.settled)
    script.lead("n1")
    script.write("n1")


def test_R4_a_member_that_lost_all_files_is_mended_by_the_others() -> None:
    play(all_files_are_lost)


def a_rebuild_of_queues_that_is_killed(script: Script) -> None:
    """Killed among the entries, and when all of them are known and none of their messages is."""
    four_files(script)
    hurt = script.member("n1")
    entries = script.member("n0").log.last.index
    hurt.disk.take_away("consumequeue")
    for batches in (12, 5, entries):
        hurt.boot_kill = batches
        script.start("n1")
        assert not hurt.alive
    script.start("n1")
    script.until("n1 has everything", script.world.settled)
    script.lead("n1")
    script.write("n1")


def test_R4_a_rebuild_that_is_taken_for_complete_is_caught() -> None:
    catch(a_rebuild_of_queues_that_is_killed, planted_losses.rebuild_taken_for_complete, "QueuesAreAFunctionOfTheLog")


def a_file_that_is_lost_while_the_member_leads(script: Script) -> None:
    """The leader's process dies, its file goes, and it comes back while the others go on."""
    fill(script)
    script.kill("n0")
    hurt = script.member("n0")
    hurt.lose_file(2)
    script.start("n0")
    leader = script.await_leader("n1", "n2")
    script.write(leader.name)
    script.until("n0 is whole", lambda: hurt.log.whole)


def test_R4_a_leader_that_lost_a_file_is_mended_by_the_others() -> None:
    play(a_file_that_is_lost_while_the_member_leads)


def all_disks_are_full(script: Script) -> None:
    """Messages are sent until none is taken; then the lead goes round, which takes a no-op each time."""
    script.begin()
    members = list(script.world.members.values())
    for member in members:
        member.disk.full = True
    leader = script.member("n0")
    sent = 0
    while leader.log.refused is None:
        sent += 1
        # Small ones at last, which leave as little as can be.
        script.send("n0", b"%d " % sent + (BIG if leader.log.last.end < FILE_BYTES else b""))
        script.run(0.05)
    for member in members:
        # The others, whose logs are as long, find it out at the same moment, and say so.
        full = OSError(errno.ENOSPC, "the disk is full")
        script.world.run_on(member, lambda member=member, full=full: member.store._health.no_room(full))  # type: ignore[misc]  # bound defaults
    script.run(3)
    for name in ("n1", "n2", "n0") * 2:
        script.lead(name)
        script.run(1.5)
    for member in members:
        member.disk.full = False
    script.write("n0")


def test_R12_messages_that_leave_no_room_for_no_ops_are_caught() -> None:
    catch(all_disks_are_full, planted_losses.fill_the_disk_to_the_last_byte, "not within")


def a_peer_gives_what_has_rotted(script: Script) -> None:
    """n1 lacks a file, and only n2 answers, whose copy of it has rotted where nobody has looked."""
    four_files(script)
    hurt, peer = script.member("n1"), script.member("n2")
    hurt.lose_file(1)
    rotten = peer.log.index_at(FILE_BYTES + FILE_BYTES // 2)
    script.rot("n2", rotten)
    script.drop_kind(MessageKind.REPAIR_BYTES, source="n0", target="n1")
    script.start("n1")
    script.run(2.0)
    script.drop_nothing()
    # The scrub finds it one day.
    script.world.run_on(peer, lambda: peer.log.mark_damaged(rotten, rotten))
    script.until("all have it", lambda: hurt.log.whole and peer.log.whole and script.world.settled())


def test_R4_slices_that_are_taken_unchecked_are_caught() -> None:
    # It calls itself whole, and stumbles over what it took as soon as that is to be applied.
    catch(a_peer_gives_what_has_rotted, planted_losses.take_slices_unchecked, "n1 ended without a fault")
