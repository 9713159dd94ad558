"""Checks of what members promise: bounds of the commit index (B5), terms and votes (B6), membership and floor (B14)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Fault, Look
from pipeline.logs.member_files import Artefact
from pipeline.plain.check_log_parts import each_group
from pipeline.plain.replicas import ReplicaGroup, Replicas
from raft.protocol.types import EntryType
from store.files.floorfile import VOTE_NAME

Witness = dict[str, Any]
LEADER = "leader"


def check_b5(replicas: Replicas) -> Finding:
    """B5: applied ≤ commit ≤ last does not hold, or a commit index went back.

    A member said of itself that it knows more as committed, or as durable, than its log has. Its commit index fell from
    one look to the next, in one term, while it led all along or no fault touched it (a start begins with what the log
    itself knows). On disk: an entry that knows itself as committed; a config file, the checkpoint or the floor that is
    ahead of a log in which nothing is damaged.
    """
    return each_group("B5", replicas, lambda group: out_of_bounds(replicas, group))


def out_of_bounds(replicas: Replicas, group: ReplicaGroup) -> Iterator[Witness]:
    """Yield what B5 finds in one group."""
    if not group.is_raft:
        return
    for look in group.looks:
        if max(look.commit, look.durable) > look.last:
            yield {**seen(look), "why": f"commit {look.commit}, durable {look.durable}, last {look.last}"}
    for before, look in _successive(group):
        led = before.role == look.role == LEADER
        fell = look.commit < before.commit and look.term == before.term
        if fell and (led or not touched(replicas.history.faults, look.member, before.at, look.at)):
            yield {**seen(look), "why": f"commit {before.commit} became {look.commit}"}
    for log in group.logs:
        for entry in log.entries:
            if entry.commit >= entry.index:
                yield {"member": log.member, "index": entry.index, "why": f"it knows {entry.commit} as committed"}
        if not log.gaps:
            yield from _files_ahead(log)


def _files_ahead(log: Artefact) -> Iterator[Witness]:
    for name, applied in log.stamps.items():
        if applied > log.last:
            yield {"member": log.member, "file": name, "why": f"applied {applied}, the log ends at {log.last}"}
    if log.dispatched > log.end:
        why = f"dispatched up to {log.dispatched}, the log ends at {log.end}"
        yield {"member": log.member, "file": "checkpoint", "why": why}
    if log.floor is not None and log.floor.index > log.last:
        why = f"synced up to {log.floor.index}, the log ends at {log.last}"
        yield {"member": log.member, "file": "raft/floor", "why": why}


def _successive(group: ReplicaGroup) -> Iterator[tuple[Look, Look]]:
    by_member: dict[str, list[Look]] = defaultdict(list)
    for look in group.looks:
        by_member[look.member].append(look)
    for looks in by_member.values():
        yield from pairwise(looks)


def seen(look: Look) -> Witness:
    """Return what a look saw, for a witness."""
    return {"member": look.member, "at": look.at, "role": look.role, "term": look.term}


def touched(faults: Iterable[Fault], member: str, start: int, end: int) -> bool:
    """Tell whether a fault was, or may have been, upon a member in a stretch of time.

    Whom one was upon is told when it is over: one that never ended may have been upon anybody.
    """
    return any(
        fault.began <= end
        and (fault.ended == UNKNOWN or fault.ended >= start)
        and (member in fault.target or (not fault.target and fault.ended == UNKNOWN))
        for fault in faults
    )


def check_b6(replicas: Replicas) -> Finding:
    """B6: a second vote or a second leader in one term, or a term that was forgotten.

    The vote file of one disk named one member in an earlier copy and names another one, or nobody, at the end, in the
    same term; or its term went back. A member's term went back from one look to the next, unless a change of membership
    gave it a new disk. The vote file is damaged, missing beside entries, or of an older term than the log's last entry
    or than its member was seen in. Two members led in one term, or two were named as the leader of one.
    """
    return each_group("B6", replicas, lambda group: forsworn(replicas, group))


def forsworn(replicas: Replicas, group: ReplicaGroup) -> Iterator[Witness]:
    """Yield what B6 finds in one group."""
    if not group.is_raft:
        return
    yield from _two_leaders(group)
    newest: dict[str, int] = {}
    for before, look in _successive(group):
        if look.term < before.term and not _new_disk(replicas, look.member, before.at, look.at):
            yield {**seen(look), "why": f"term {before.term} became {look.term}"}
    for look in group.looks:
        newest[look.member] = look.term
    for log in group.logs:
        if log.vote is None:
            if log.entries:
                why = log.damage.get(VOTE_NAME, "it is missing beside a log with entries")
                yield {"member": log.member, "file": VOTE_NAME, "why": why}
            continue
        for what, term in (("the log's last entry", log.entries[-1].term if log.entries else 0),
                           ("a look", newest.get(log.member, 0))):  # fmt: skip
            if log.vote.term < term:
                why = f"its term is {log.vote.term}, that of {what} {term}"
                yield {"member": log.member, "file": VOTE_NAME, "term": log.vote.term, "why": why}
    yield from _votes_changed(replicas, group)


def _two_leaders(group: ReplicaGroup) -> Iterator[Witness]:
    leaders: dict[int, set[str]] = defaultdict(set)
    named: dict[int, set[str]] = defaultdict(set)
    for look in group.looks:
        if look.role == LEADER:
            leaders[look.term].add(look.member)
        if look.leader:
            named[look.term].add(look.leader)
    for term in sorted(leaders.keys() | named.keys()):
        # Named as members call one another: never mixed with what they are called here.
        for who in (leaders[term], named[term]):
            if len(who) > 1:
                yield {"term": term, "leaders": sorted(who)}
                break


def _new_disk(replicas: Replicas, member: str, start: int, end: int) -> bool:
    return touched([fault for fault in replicas.history.faults if "member" in fault.name], member, start, end)


def _votes_changed(replicas: Replicas, group: ReplicaGroup) -> Iterator[Witness]:
    now = {log.member: log.vote for log in group.logs}
    for copies in replicas.earlier:
        for log in copies:
            before, after = log.vote, now.get(log.member)
            if before is None or after is None or before.store_id != after.store_id:
                continue
            second = before.voted_for and before.term == after.term and before.voted_for != after.voted_for
            if second or after.term < before.term:
                yield {"member": log.member, "before": list(before[:2]), "after": list(after[:2])}


def check_b14(replicas: Replicas) -> Finding:
    """B14: a snapshot of the log or a vote does not belong to this group and its log.

    The floor (index, term, end, chain) is not what the member's own entry of that index says, nor, where that is
    committed, the merged log's. A vote went to somebody, or somebody led, whom no configuration in the logs names as a
    member. An entry names another entry as the last configuration before it.
    """
    return each_group("B14", replicas, strangers)


def strangers(group: ReplicaGroup) -> Iterator[Witness]:
    """Yield what B14 finds in one group."""
    if not group.is_raft:
        return
    names = {member for log in group.logs for config in log.configs for member in config.members}
    for log in group.logs:
        yield from _floor_apart(group, log)
        if names and log.vote is not None and log.vote.voted_for and log.vote.voted_for not in names:
            yield {"member": log.member, "term": log.vote.term, "why": f"it voted for {log.vote.voted_for}, no member"}
        config = UNKNOWN
        for entry in log.entries:
            own = entry.kind == EntryType.CONFIG
            if entry.config != (entry.index if own else config) and (own or config != UNKNOWN):
                why = f"it names {entry.config} as the last configuration, not {entry.index if own else config}"
                yield {"member": log.member, "index": entry.index, "why": why}
            config = entry.config
    if names & set(group.members):
        for look in group.looks:
            if look.role == LEADER and look.member not in names:
                yield {**seen(look), "why": "it led, and is no member"}


def _floor_apart(group: ReplicaGroup, log: Artefact) -> Iterator[Witness]:
    floor = log.floor
    if floor is None:
        return
    own = next((entry for entry in log.entries if entry.index == floor.index), None)
    committed = group.entries.get(floor.index) if floor.index <= group.committed else None
    for entry, whose in ((own, "its own log"), (committed, "the merged log")):
        if entry is not None and (entry.term, entry.end, entry.chain) != (floor.term, floor.end, floor.chain):
            why = f"it is of term {floor.term} and ends at {floor.end}: not what {whose} holds"
            yield {"member": log.member, "file": "raft/floor", "index": floor.index, "why": why}
            return
