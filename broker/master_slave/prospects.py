"""What a promotion would mean: the master as it was heard last, the other slaves, and words for a person. Pure.

Which slave holds what was acknowledged nobody can tell but by the ends of their logs: so a slave that is longer than
the candidate is in the way of its promotion, and one that does not answer is named.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from broker.master_slave.ha_state import State
from broker.role import MASTER_ID
from broker.settings.pair_keys import ASYNC_MASTER, SLAVE, SYNC_MASTER
from broker.settings.pair_memory import PairMemory

_CONNECTED = frozenset({State.COMPARING.value, State.FOLLOWING.value})


class KnownMaster(NamedTuple):
    """What a slave knows of the master that it follows, or followed last."""

    address: str | None
    """Where it took clients' requests; None when none was ever known."""
    connected: bool
    """Whether it pushes to this slave at this moment."""
    role: str | None
    """Its brokerRole, when it told."""
    epoch: int
    end: int | None
    """The end of its log, as far as it was ever heard."""
    heard_ms_ago: int | None
    """How old that knowledge is."""


class OtherSlave(NamedTuple):
    """A slave beside the candidate, as the NameServers know or knew it."""

    broker_id: int
    address: str
    end: int | None
    """Where its log ends; None: it does not tell."""


def known_master(state: dict[str, Any], memory: PairMemory, own_end: int, now_ms: int) -> KnownMaster:
    """Return what a Follower's status tells of the master, and what was written down before this process began.

    All that stands in the own log came from the master: its log ended there at least.
    """
    told, seen, frames = state.get("max"), state.get("seenAt"), state.get("lastFrameAt")
    if told is None and frames is None:
        end, heard = None, None
    elif told is not None and told > own_end:
        end, heard = told, seen
    else:
        end, heard = own_end, max(filter(None, (seen, frames)), default=None)
    return KnownMaster(
        address=state.get("address") or memory.master or None,
        connected=state.get("state") in _CONNECTED,
        role=state.get("role") or (SYNC_MASTER if memory.open else None),
        epoch=max(state.get("epoch") or 0, memory.epoch),
        end=end,
        heard_ms_ago=None if heard is None else max(0, now_ms - heard),
    )


def other_slaves(tables: Iterable[Mapping[int, str]], apart: set[str]) -> list[tuple[int, str]]:
    """Return (brokerId, address) of the slaves in tables of NameServers, but those `apart`: the candidate, masters.

    An address counts once, with the id that the first table has it under.
    """
    found: dict[str, int] = {}
    for table in tables:
        for broker_id, address in table.items():
            if broker_id != MASTER_ID and address not in apart:
                found.setdefault(address, broker_id)
    return sorted((broker_id, address) for address, broker_id in found.items())


def slave_end(state: dict[str, Any] | None, name: str) -> int | None:
    """Return where the log of a slave of this name ends, by its own state (9111)."""
    if not state or state.get("role") != SLAVE or state.get("broker", name) != name:
        return None
    end = state.get("max")
    return end if type(end) is int else None


def master_role(told: dict[str, Any], heard: str | None, otherwise: str = ASYNC_MASTER) -> str:
    """Return the brokerRole of a master, as it says now, or was heard to be."""
    role = told.get("role")
    return role if role in (ASYNC_MASTER, SYNC_MASTER) else heard or otherwise


def words_before(
    own: int, master_end: int | None, was: str, role: str, alive: Sequence[str], others: Sequence[OtherSlave]
) -> list[str]:
    """Return what a person should know before promoting; `was` is the master's role, `role` the one to be."""
    words = []
    if master_end is None:
        words.append(f"this log ends at {own}; how far the master's goes is not known")
    elif master_end > own:
        words.append(f"{master_end - own} bytes that the master has are not here, and are lost to consumers")
    else:
        words.append("this log holds everything that the master was heard to have")
    if was == SYNC_MASTER:
        words.append(
            "the master was a SYNC_MASTER: what it acknowledged with SEND_OK is on a slave; promote the slave whose "
            "log ends last, then none of that is lost"
        )
    else:
        words.append(
            "the master did not wait for slaves: what it acknowledged after it was last heard is lost without a trace"
        )
    if role == SYNC_MASTER:
        words.append("as a SYNC_MASTER this broker answers 11 (SLAVE_NOT_AVAILABLE) to sends until a slave follows it")
    if alive:
        words.append(
            f"{', '.join(alive)} lives: it is told first, takes nothing more, and hands on what it has; should it not "
            "be reached, two brokers take messages under one name until it is, and what it takes is cut off when it "
            "follows this one"
        )
    words.extend(
        f"slave {each.broker_id} at {each.address} has {each.end - own} bytes more, which are lost"
        for each in others
        if each.end is not None and each.end > own
    )
    words.extend(
        f"slave {each.broker_id} at {each.address} does not tell how far it is: what only that slave has is lost"
        for each in others
        if each.end is None
    )
    return words


def refusal(own: int, alive: Sequence[str], others: Sequence[OtherSlave]) -> str | None:
    """Return why a promotion wants --force, None when nothing speaks against it."""
    reasons = []
    if alive:
        reasons.append(
            f"the master at {', '.join(alive)} lives; stop it first, or use --force, which makes it take nothing more "
            "if it can be reached, and else leaves two masters until it can"
        )
    reasons.extend(
        f"slave {each.broker_id} at {each.address} has {each.end - own} bytes more than this one: promote that one "
        f"(--slave {each.broker_id}), or give them up with --force"
        for each in others
        if each.end is not None and each.end > own
    )
    return "; ".join(reasons) or None


def by_force(alive: Sequence[str], others: Sequence[OtherSlave], own: int) -> str:
    """Return what a forced decision went past, for its reason; "" for one that was not forced."""
    past = ["its master was alive"] if alive else []
    if any(each.end is not None and each.end > own for each in others):
        past.append("another slave had more")
    return f", although {' and '.join(past)}" if past else ""
