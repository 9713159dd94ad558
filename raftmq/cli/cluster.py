"""`raftmq cluster`: brokers and NameServers, their state and their configuration."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli import classic, convert, raft, status
from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv, Settings
from raftmq.cli.output import emit, fail, parse_settings, print_json, run, with_admin

if TYPE_CHECKING:
    from client.admin.client import AdminClient

app = typer.Typer(no_args_is_help=True, help="Brokers, NameServers, masters and slaves, Raft groups.")
app.command()(status.status)
app.command()(raft.raft_status)
app.command()(raft.transfer_leader)
app.command()(raft.add_peer)
app.command()(raft.remove_peer)
app.command()(raft.leave_raft)
app.command()(classic.ha_status)
app.command()(classic.promote)
app.command()(classic.follow)
app.command()(classic.accept_master)
app.command()(classic.forget)
app.command()(convert.to_raft)
app.command()(convert.to_classic)


@app.command("list")
def list_brokers(namesrv: Namesrv = DEFAULT_NAMESRV, cluster: Cluster = "", as_json: Json = False) -> None:
    """List the brokers that have registered; id 0 is a master."""

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            found = await admin.brokers(cluster or None)
            versions = await asyncio.gather(*(_version(admin, broker.address) for broker in found))
        return [
            {"cluster": b.cluster, "broker": b.name, "id": b.broker_id, "address": b.address, "version": version}
            for b, version in zip(found, versions, strict=True)
        ]

    brokers = run(work)
    rows = [tuple(row.values()) for row in brokers]
    emit(as_json, brokers, ("cluster", "broker", "id", "address", "version"), rows, empty="no broker has registered")


async def _version(admin: "AdminClient", address: str) -> str:
    """Return what a broker says that it is: of another maker its RocketMQ version; nothing when it does not answer."""
    from client.errors import ClientError
    from remoting.errors import RemotingError

    try:
        info = await admin.runtime_info(address)
    except (ClientError, RemotingError):
        return ""
    own = info.get("raftmqVersion")
    return f"raftmq {own}" if own else info.get("brokerVersionDesc", "")


@app.command()
def config(
    key: Annotated[str | None, typer.Argument(help="Show this key alone.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    settings: Settings = None,
    cluster: Cluster = "",
    broker: Broker = "",
    of_namesrv: Annotated[bool, typer.Option("--of-namesrv", help="The NameServers' instead of the brokers'.")] = False,
    as_json: Json = False,
) -> None:
    """Show the effective configuration of brokers (or NameServers), or change it with --set, while they run."""
    values = parse_settings(settings)
    if of_namesrv and (cluster or broker):
        fail("--of-namesrv means all NameServers that -n names: it does not go with --cluster or --broker", code=2)

    async def work() -> dict[str, dict[str, str]]:
        async with with_admin(namesrv) as admin:
            if of_namesrv:
                if values:
                    await admin.update_namesrv_config(values)
                return await admin.namesrv_config()
            targets = await admin.masters(cluster or None, broker or None)
            if values:
                for target in targets:
                    await admin.update_broker_config(values, address=target)
            return {target: await admin.broker_config(target) for target in targets}

    wanted = {key} if key else set(values)
    found = {
        server: {name: text for name, text in sorted(all_values.items()) if not wanted or name in wanted}
        for server, all_values in run(work).items()
    }
    for server, shown in found.items():
        if missing := sorted(wanted - shown.keys()):
            fail(f"{server} knows no key {', '.join(missing)}")
        for name, text in values.items():
            if shown.get(name, text) != text:
                typer.echo(f"{server}: {name}={text} is kept and takes effect when it starts again", err=True)
    if as_json:
        print_json(found)
        return
    rows = [(server, name, text) for server, shown in found.items() for name, text in shown.items()]
    emit(False, found, ("server", "key", "value"), rows)
