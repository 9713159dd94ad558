"""How a group begins (R1): who writes entry 1, and who waits. Pure: hellos in, a decision out.

Nobody begins before everybody was heard. Otherwise two members with empty stores could form a group and outvote the
third, which has the messages. Only a person can say more than the stores do (R16): which of several that hold messages
begins, and which of the others come to its group with what they have.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from raft.protocol.config import member_number
from raft.protocol.hello import Hello


class Move(Enum):
    """What a member without a CONFIG entry does."""

    WAIT = "wait"
    """For answers, for the member that forms the group, or for a leader that adds this one."""
    FORM = "form"
    """Write entry 1 with all peers as voters: all stores are empty and this is the lowest id."""
    ALONE = "alone"
    """Write entry 1 with this member as the one voter, then add the others as learners: it has the messages."""
    COPY = "copy"
    """Put what is here aside and learn from the start: it is not what the group's log begins with."""
    REFUSE = "refuse"
    """A person must decide; `why` says what."""


class BootstrapDecision(NamedTuple):
    """What to do, and why, in words for the log and the status."""

    kind: Move
    why: str


def decide(own: Hello, others: Mapping[str, Hello | None], self_id: str) -> BootstrapDecision:
    """Return what a member does that is in no group.

    A log whose group has ended (R2) counts as messages, its control records as the group's being none.
    `others` holds every other member of dLegerPeers, None while it was not heard, or was refused by `judge`.
    """
    assert own.self_id == self_id, f"the hello of {own.self_id} is not that of {self_id}"
    assert self_id not in others, f"{self_id} is no other member"
    if own.group_id:
        return BootstrapDecision(Move.WAIT, "this member has a group already")
    hellos = {name: hello for name, hello in others.items() if hello is not None}
    grouped = _names(name for name, hello in hellos.items() if hello.group_id)
    if grouped:
        return BootstrapDecision(Move.WAIT, f"a group lives already, at {grouped}: waiting for its leader")
    differing = _names(name for name, hello in hellos.items() if _lists_differ(own, hello))
    if differing:
        return BootstrapDecision(Move.REFUSE, f"dLegerPeers of {differing} names other members than this member's")
    filled = {name for name, hello in hellos.items() if not hello.empty} | (set() if own.empty else {self_id})
    if len(filled) > 1:
        return BootstrapDecision(
            Move.REFUSE,
            f"the stores of {_names(filled)} all hold messages, and a group has one log: keep the folder whose"
            " messages count, empty the others (or give them another brokerName), and start again",
        )
    missing = _names(others.keys() - hellos.keys())
    if missing:
        return BootstrapDecision(Move.WAIT, f"nothing heard of {missing} yet: a group begins when all are there")
    if filled == {self_id}:
        return BootstrapDecision(
            Move.ALONE, "only this member holds messages: it begins alone, the others learn from it"
        )
    if filled:
        return BootstrapDecision(Move.WAIT, f"{_names(filled)} holds messages and begins the group")
    first = min((self_id, *others), key=member_number)
    if first != self_id:
        return BootstrapDecision(Move.WAIT, f"all stores are empty: {first} begins the group")
    return BootstrapDecision(Move.FORM, "all stores are empty, and this member has the lowest id")


def decide_to_found(others: Mapping[str, Hello | None]) -> BootstrapDecision:
    """Return what a member does that is in no group, and of which a person said that the group begins with its log."""
    grouped = _names(name for name, hello in others.items() if hello is not None and hello.group_id)
    if grouped:
        return BootstrapDecision(Move.REFUSE, f"it was told to begin the group, but one lives already, at {grouped}")
    return BootstrapDecision(Move.ALONE, "this member was told to begin the group with its log")


def decide_to_join(own: Hello, others: Mapping[str, Hello | None], group_id: bytes) -> BootstrapDecision:
    """Return what a member does that was told to come to a group with the messages that it has.

    Only a log that is what the group's begins with, byte for byte, may be gone on with; `own` tells its end and digest
    as its base.
    """
    known = {name: hello for name, hello in others.items() if hello is not None and hello.group_id == group_id}
    if not known:
        return BootstrapDecision(
            Move.WAIT, f"nothing heard yet of a member of the group {group_id.hex()}, to which it was told to come"
        )
    name, hello = min(known.items(), key=lambda item: member_number(item[0]))
    if own.empty or own.base == hello.base:
        return BootstrapDecision(
            Move.WAIT, f"its log is what the group's begins with: waiting until {_names(known)} gives it more"
        )
    return BootstrapDecision(
        Move.COPY,
        f"its log ends at {own.base_position} and is not what the group's log has before {hello.base_position}: it is"
        f" put aside, and the group's copied, beginning with {name}",
    )


def _names(ids: Iterable[str]) -> str:
    return ", ".join(sorted(ids, key=member_number))


def _lists_differ(own: Hello, other: Hello) -> bool:
    return bool(own.peer_ids and other.peer_ids) and set(own.peer_ids) != set(other.peer_ids)
