"""`raftmq cluster ha-status`, `promote`, `follow`, `accept-master`, `forget`: the classic modes."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv
from raftmq.cli.output import emit, fail, print_json, run, with_admin

if TYPE_CHECKING:
    from client.admin.client import AdminClient

COLUMNS = ("broker", "name", "id", "role", "epoch", "log begins", "log ends", "on disk", "behind", "state")
Address = Annotated[str, typer.Argument(help="The broker's own address, host:port.")]


def ha_status(
    namesrv: Namesrv = DEFAULT_NAMESRV, cluster: Cluster = "", broker: Broker = "", as_json: Json = False
) -> None:
    """Show masters and slaves: who follows whom, how far behind, and what is wrong."""

    async def work() -> dict[str, dict[str, Any]]:
        from remoting.errors import InvokeError, ResponseError

        async with with_admin(namesrv) as admin:
            names = {}
            if not broker:
                names = {found.address: found.name for found in await admin.brokers(cluster or None)}
            found = {}
            for address in [broker] if broker else names:
                try:
                    found[address] = {"brokerName": names.get(address, ""), **await admin.ha_status(address)}
                except ResponseError:
                    if broker:
                        raise
                    # A member of a Raft group, or RocketMQ's: it does not know the request.
                except InvokeError as error:
                    if broker:
                        raise
                    found[address] = {"brokerName": names[address], "error": str(error)}
            return found

    states = run(work)
    emit(as_json, states, COLUMNS, _rows(states), empty="no master or slave has registered")


def promote(
    name: Annotated[str, typer.Argument(metavar="BROKER_NAME", help="brokerName of master and slaves.")],
    slave: Annotated[
        int, typer.Option("--slave", help="brokerId of the slave; otherwise the one whose log ends last.")
    ] = 0,
    at: Annotated[
        str,
        typer.Option("--at", help="Address of a broker that has not registered, such as a deposed master; host:port."),
    ] = "",
    role: Annotated[
        str, typer.Option("--role", help="ASYNC_MASTER or SYNC_MASTER; otherwise what the old master was.")
    ] = "",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Even while the master lives, or another slave has more. A master that can be reached takes nothing "
            "more first; until one that cannot learns of it two brokers take messages under one name, and what the old "
            "one takes is cut off when it follows the new one.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Make a slave the master, when the master is gone for good; tells first what may be lost."""

    async def look() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            address = at or await _choose(admin, name, slave)
            return await admin.promote(address, role=role, only_ask=True)

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.promote(report["address"], role=role, force=force)

    if at and slave:
        fail("--at names a broker, and --slave another: give one of them", code=2)
    report = run(look)
    if report["brokerName"] != name:
        fail(f"the broker at {report['address']} is of {report['brokerName']}, not of {name}")
    if report["refused"] and not force:
        fail(f"not promoted: {report['refused']}")
    if not yes:
        for line in _prospects(report):
            typer.echo(line, err=True)
        if not typer.confirm(f"promote {report['address']} to {report['role']} of {name}?", err=True):
            fail("not promoted")
    done = run(work)
    if as_json:
        print_json(done)
    else:
        typer.echo(f"{done['address']} becomes the master of {name}, {done['role']} of epoch {done['epoch']}")
        for untold in done.get("untold", ()):
            typer.echo(
                f"warning: {untold} could not be told, and takes messages until it is; {done['address']} goes on"
            )


def follow(
    address: Address,
    broker_id: Annotated[int, typer.Option("--id", help="Its brokerId as a slave; otherwise the lowest free one.")] = 0,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Make a deposed master a slave of the one that was promoted in its place."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.follow(address, broker_id)

    done = run(work)
    if as_json:
        print_json(done)
    else:
        typer.echo(f"{address} becomes the slave with brokerId {done['brokerId']}; see `raftmq cluster ha-status`")


def forget(
    name: Annotated[str, typer.Argument(metavar="BROKER_NAME", help="brokerName that is to begin again.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Let a brokerName begin again with new stores: every NameServer forgets the highest epoch that it ever had."""

    async def work() -> dict[str, bool]:
        async with with_admin(namesrv) as admin:
            return await admin.forget_epoch(name)

    done = run(work)
    if as_json:
        print_json(done)
    else:
        for server, known in sorted(done.items()):
            typer.echo(f"{server} has forgotten {name}" if known else f"{server} knew nothing of {name}")


def accept_master(address: Address, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Let a slave that waits for a person cut its log to where the master's agrees with it, and go on."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.accept_master(address)

    done = run(work)
    if as_json:
        print_json(done)
    else:
        typer.echo(f"{address} follows its master; {done['lost']} bytes leave its log (kept in its folder 'cut')")


async def _choose(admin: "AdminClient", name: str, slave: int) -> str:
    """Return the address of the slave to promote; what is to be said about the others, it says itself."""
    from client.errors import RouteError
    from remoting.errors import InvokeError

    found = await admin.slaves(name)
    addresses = {broker.broker_id: broker.address for broker in found}
    if slave:
        if slave not in addresses:
            known = ", ".join(map(str, sorted(addresses)))
            raise RouteError(f"{name} has no slave {slave} (the NameServers know: {known})", retriable=False)
        return addresses[slave]
    ends: dict[int, int] = {}
    unheard = []
    for broker in found:
        try:
            ends[broker.broker_id] = int((await admin.ha_status(broker.address))["max"])
        except InvokeError as error:
            unheard.append(f"slave {broker.broker_id} at {broker.address} does not tell how far it is: {error}")
    if not ends:
        raise RouteError(f"no slave of {name} answers: {'; '.join(unheard)}", retriable=True)
    return addresses[max(ends, key=lambda broker_id: (ends[broker_id], -broker_id))]


def _prospects(report: dict[str, Any]) -> list[str]:
    """Return what a person is told before deciding."""
    heard = report["heardMsAgo"]
    age = "" if heard is None else f", heard {heard / 1000:.1f} s ago"
    master_end = "unknown" if report["masterEnd"] is None else f"{report['masterEnd']:,}"
    return [
        f"slave {report['brokerId']} at {report['address']}: its log ends at {report['end']:,}",
        f"master {report['master'] or 'unknown'}: its log ended at {master_end}{age}",
        *report["words"],
    ]


def _rows(states: dict[str, dict[str, Any]]) -> list[tuple[object, ...]]:
    """Return one row for each broker: a master's slaves stand in their own rows."""
    rows: list[tuple[object, ...]] = []
    for address, state in sorted(states.items(), key=lambda item: (item[1]["brokerName"], item[1].get("brokerId", 0))):
        name = state["brokerName"]
        if "error" in state:
            rows.append((address, name, None, None, None, None, None, None, None, state["error"]))
            continue
        master = state.get("master") or {}
        rows.append((
            address, name, state["brokerId"], state["role"], state["epoch"], state["min"], state["max"],
            state["flushed"], master.get("behind"), _words(state, master),
        ))  # fmt: skip
    return rows


def _words(state: dict[str, Any], master: dict[str, Any]) -> str:
    """Return what a broker does at the moment, in a few words."""
    if state.get("fenced"):
        return f"fenced: {state['fenced']}"
    if not master:
        slaves = state.get("slaves") or []
        in_sync = sum(bool(slave.get("inSync")) for slave in slaves)
        return "; ".join([f"{len(slaves)} slaves, {in_sync} in sync", *(state.get("warnings") or [])])
    why = f": {master['why']}" if master.get("why") else ""
    more = [words for words in state.get("warnings") or [] if words != master.get("why")]
    return "; ".join([f"{master.get('state')}{why}", *more])
