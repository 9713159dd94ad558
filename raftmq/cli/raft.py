"""`raftmq cluster raft-status`, `transfer-leader`, `add-peer`, `remove-peer`, `leave-raft`: the Raft groups."""

from typing import Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv
from raftmq.cli.output import emit, print_json, run, with_admin

GroupName = Annotated[str, typer.Argument(help="brokerName of the group.")]
MemberId = Annotated[str, typer.Argument(help="Id of the member, such as n1.")]

COLUMNS = ("broker", "id", "role", "term", "leader", "last", "commit", "applied", "on disk", "lag", "flush", "election")

_MIB = 1024 * 1024


def raft_status(
    namesrv: Namesrv = DEFAULT_NAMESRV, cluster: Cluster = "", broker: Broker = "", as_json: Json = False
) -> None:
    """Show every member of the Raft groups: role, term, leader, indexes, lag, and the last election or a repair."""

    async def work() -> dict[str, dict[str, Any]]:
        from remoting.errors import ResponseError

        async with with_admin(namesrv) as admin:
            addresses = [broker] if broker else [found.address for found in await admin.brokers(cluster or None)]
            found = {}
            for address in addresses:
                try:
                    found[address] = await admin.raft_status(address)
                except ResponseError:
                    if broker:
                        raise
                    # A broker that belongs to no group does not know the request.
            return found

    states = run(work)
    emit(as_json, states, COLUMNS, _rows(states), empty="no broker belongs to a Raft group")


def transfer_leader(
    group: GroupName,
    to: Annotated[str, typer.Argument(help="Id of the member that shall lead; otherwise any that can.")] = "",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Hand the lead of a group over to another member."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.transfer_leader(group, to)

    found = run(work)
    _done(as_json, found, f"{found.get('leader')} at {found.get('address')} leads {group} now")


def add_peer(
    group: GroupName,
    member: MemberId,
    address: Annotated[str, typer.Argument(help="Where its Raft port is, host:port.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Add a member that was started: it learns first, and votes when it has caught up."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.add_peer(group, member, address)

    _done(as_json, run(work), f"{member} is a learner of {group} now; it votes when it has caught up (raft-status)")


def remove_peer(group: GroupName, member: MemberId, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Take a member out of a group; the leader itself must hand over first."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.remove_peer(group, member)

    _done(as_json, run(work), f"{member} is no member of {group} any more: stop it")


def leave_raft(group: GroupName, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Make the last member's store a single broker's again: then restart it without enableDLegerCommitLog."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.leave_raft(group)

    _done(as_json, run(work), f"{group} is no Raft group any more: restart it with enableDLegerCommitLog=false")


def _done(as_json: bool, found: dict[str, Any], text: str) -> None:
    if as_json:
        print_json(found)
    else:
        typer.echo(text)


def _rows(states: dict[str, dict[str, Any]]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for address, state in sorted(states.items()):
        leading = [other for other in states.values() if other["group"] == state["group"] and other["role"] == "LEADER"]
        end = max((other["last"] for other in leading), default=state["last"])
        rows.append((
            address, state["self"], state["role"], state["term"], state["leader"], state["last"], state["commit"],
            state["applied"], state["durable"], max(0, end - state["durable"]), state["flushDiskType"], _why(state),
        ))  # fmt: skip
    return rows


def _why(state: dict[str, Any]) -> str:
    """Return what keeps a member from its part, else why the last election was held."""
    said = []
    # A member of an older version says nothing of clocks, room and repair.
    if state.get("clock", {}).get("apart"):
        said.append(f"must not lead: {state['clock']['apart']}")
    if state.get("writesRefused"):
        said.append(f"takes no messages: {state['writesRefused']}")
    if repair := state.get("repair"):
        said.append(
            f"repairs its log: {repair['bytes_done'] / _MIB:.1f} of {repair['bytes_total'] / _MIB:.1f} MiB in "
            f"{repair['since_ms'] / 1000:.0f} s, {repair['from'] or 'nobody'} is asked"
        )
    elif not state.get("whole", True):
        said.append("its log has damage that is to be repaired")
    election = state["last_election"]
    if not said and election:
        said.append(f"term {election['term']}: {election['why']}")
    return "; ".join(said)
