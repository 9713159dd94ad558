"""Disks that stay full, over the real store: the lead goes where there is room, and no group is left without one."""

import errno
from collections.abc import Callable

from raft.core.room import SEEK_SECONDS
from raft.protocol.types import Fate, Role
from tests.simulation.member import Member
from tests.simulation.script import Script, play

# Seconds after which the lead has moved at the latest, from the first refused write on: SEEK_SECONDS and an election.
MOVED_SECONDS = 3.0


def idle_often(script: Script) -> Callable[[], None]:
    """Do every member's upkeep as often as a broker does; returns what ends it."""
    world, going = script.world, [True]

    def idle() -> None:
        for member in world.members.values():
            if member.alive and not member.paused:
                world.run_on(member, member.idle)
        if going[0]:
            world.after(0.05, idle)

    idle()
    return lambda: going.__setitem__(0, False)


def fill(script: Script, *names: str) -> None:
    """Fill disks whose members find that out at this moment, all at the same end of the log."""
    for name in names:
        member = script.member(name)
        member.disk.full = True
        error = OSError(errno.ENOSPC, "the disk is full")
        script.world.run_on(member, lambda member=member, error=error: member.store._health.no_room(error))  # type: ignore[misc]  # bound defaults
        assert member.log.refused is not None


def watch_roles(member: Member) -> list[Role]:
    """Return a list of what a member becomes from now on, besides a follower."""
    on_role, roles = member.on_role, list[Role]()

    def watched(role: Role, term: int) -> None:
        if role is not Role.FOLLOWER:
            roles.append(role)
        on_role(role, term)

    member.on_role = watched  # type: ignore[method-assign]  # looked at, and done
    return roles


def test_the_lead_leaves_a_full_disk_for_one_with_room() -> None:
    def schedule(script: Script) -> None:
        script.begin("n0")
        stop = idle_often(script)
        written = script.write("n0")
        fill(script, "n0")
        since = script.world.now
        leader = script.await_leader("n1", "n2", within=MOVED_SECONDS)
        assert script.world.now - since >= SEEK_SECONDS * 0.9
        assert written.fate is Fate.COMMITTED
        script.write(leader.name)
        # It stays there, and the full one catches up once it has room.
        term = leader.raft.term
        script.run(8)
        assert (leader.raft.serving, leader.raft.term) == (True, term)
        script.write(leader.name)
        script.member("n0").disk.full = False
        script.until("n0 has room", lambda: script.member("n0").log.refused is None)
        stop()

    play(schedule)


def test_a_member_without_room_does_not_stand_while_another_one_has_some() -> None:
    def schedule(script: Script) -> None:
        script.begin("n0")
        stop = idle_often(script)
        fill(script, "n1")
        script.run(1.5)
        roles = watch_roles(script.member("n1"))
        script.kill("n0")
        script.await_leader("n2", within=4)
        assert not roles, "n1 stood"
        script.member("n1").disk.full = False
        stop()

    play(schedule)


def test_a_full_member_that_alone_has_what_was_acknowledged_leads_and_hands_over() -> None:
    def schedule(script: Script) -> None:
        script.begin("n0")
        stop = idle_often(script)
        script.isolate("n2")
        written = script.write("n0", b"only on two")
        fill(script, "n1")
        script.kill("n0")
        script.heal()
        script.await_leader("n2", within=15)
        assert written.fate is Fate.COMMITTED
        script.member("n1").disk.full = False
        script.write("n2")
        stop()

    play(schedule)


def test_a_group_without_any_room_has_a_leader_all_the_same() -> None:
    def schedule(script: Script) -> None:
        script.begin("n0")
        stop = idle_often(script)
        fill(script, "n0", "n1", "n2")
        script.run(3)
        script.kill("n0")
        leader = script.await_leader("n1", "n2", within=15)
        assert script.read(leader.name)
        # The first that has room gets the lead.
        (other,) = {"n1", "n2"} - {leader.name}
        script.member(other).disk.full = False
        script.await_leader(other, within=10)
        leader.disk.full = script.member("n0").disk.full = False
        stop()

    play(schedule)
