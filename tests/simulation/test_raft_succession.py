"""Whose turn it is to stand when a leader's process ends: one after the other, and never two for half of the votes."""

import pytest

from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.settings import RaftSettings
from tests.simulation.script import Script, play

# What a pre-vote, a vote and its fsync take in calm weather, and the first turn.
AT_ONCE_S = RaftSettings.election_ms_min / 1000 + 0.03
TURN_S = RaftSettings.heartbeat_ms / 2000


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("killed", ["n0", "n1", "n2"])
def test_the_first_of_the_others_leads_in_one_election(voters: int, killed: str) -> None:
    def schedule(script: Script) -> None:
        script.begin(killed)
        script.write(killed)
        term = script.member(killed).raft.term
        asked = asks_for_votes(script)
        script.kill(killed)
        names = [name for name in script.world.members if name != killed]
        leader = script.await_leader(*names, within=AT_ONCE_S)
        # Nobody else has asked; by chance it is one who had waited for as long anyway.
        assert (leader.raft.term, set(asked)) == (term + 1, {leader.name})
        assert leader.name == names[0] or voters > 3
        script.write(leader.name)

    play(schedule, voters=voters)


def test_who_cannot_win_costs_the_next_one_its_turn() -> None:
    def schedule(script: Script) -> None:
        script.begin("n0")
        # What n0 and n2 have, n1 never gets: its log is too short to lead.
        script.world.network.tap = lambda source, target, message: (
            not ((source, target) == ("n0", "n1") and message.kind is MessageKind.APPEND and message.size > 0)
        )
        written = script.write("n0")
        script.kill("n0")
        leader = script.await_leader("n1", "n2", within=AT_ONCE_S + TURN_S)
        assert leader.name == "n2"
        assert written.fate is not None

    play(schedule)


def asks_for_votes(script: Script) -> list[str]:
    """Return a list of who asks for a vote from now on."""
    asked = list[str]()

    def tap(source: str, _target: str, message: RaftMessage) -> bool:
        if message.kind is MessageKind.VOTE:
            asked.append(source)
        return True

    script.world.network.tap = tap
    return asked
