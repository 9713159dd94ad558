"""What must be true at the end, when everything has healed and everybody has everything."""

from tests.simulation.invariant import Violation
from tests.simulation.member import FILE_BYTES, Member
from tests.simulation.world import World


def check_books(world: World) -> None:
    """Hold all members against one another, and the clients against the log; raises Violation."""
    leader = world.leader()
    assert leader is not None, "somebody leads in the end"
    config = leader.raft.config
    assert config is not None, "a leader has a CONFIG"
    ledger = world.watch.ledger
    if ledger.last != leader.log.last.index:
        raise Violation(f"the log ends at {leader.log.last.index}, {ledger.last} entries were seen committed")
    end = leader.log.last.end
    wanted = log_bytes(leader, end)
    for listed in config.members:
        member = world.members[listed.id]
        if log_bytes(member, end) != wanted:
            raise Violation(f"the logs of {leader.name} and {member.name} differ")
        rest = tail_bytes(member, end)
        if rest.strip(b"\0"):
            raise Violation(f"{member.name} has {len(rest.rstrip(bytes(1)))} bytes behind the end of its log")
        world.watch.queues.whole(member)
    world.clients.check()


def log_bytes(member: Member, end: int) -> bytes:
    """Return a member's log up to a position, as its files hold it."""
    return b"".join(_file(member, start)[: end - start] for start in range(0, end, FILE_BYTES))


def tail_bytes(member: Member, end: int) -> bytes:
    """Return what stands behind a position in its file."""
    start = end - end % FILE_BYTES
    return _file(member, start)[end - start :] if end % FILE_BYTES else b""


def _file(member: Member, start: int) -> bytes:
    path = member.disk.root / "commitlog" / f"{start:020d}"
    return path.read_bytes() if path.exists() else b""
