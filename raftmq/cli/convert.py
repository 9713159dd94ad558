"""`raftmq cluster to-raft`, `to-classic`: a master with slaves becomes a Raft group, and a Raft group a master."""

from typing import Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv
from raftmq.cli.output import fail, print_json, run, with_admin

MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")


def to_raft(
    name: Annotated[str, typer.Argument(metavar="BROKER_NAME", help="brokerName of master and slaves.")],
    peers: Annotated[
        str,
        typer.Option(
            "--peers",
            help='dLegerPeers of the group, "n0-host:port;n1-host:port;…": n0 is the master, n1 the slave with '
            "brokerId 1, and so on; the ports are for the members among themselves.",
        ),
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Make a master and its slaves a Raft group, on the master's log, while clients go on; may be repeated."""

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.convert_to_raft(name, peers, _say)

    state = run(work)
    if as_json:
        print_json(state)
        return
    for warning in state["warnings"]:
        typer.echo(f"warning: {warning}")
    typer.echo(f"{name} is a Raft group, {state['self']} leads; say so in each broker.conf when it suits you")


def to_classic(
    group: Annotated[str, typer.Argument(help="brokerName of the group.")],
    role: Annotated[str, typer.Option("--role", help="What the leader becomes: ASYNC_MASTER or SYNC_MASTER.")] = (
        "ASYNC_MASTER"
    ),
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Make a Raft group a master, which led it, and slaves, while clients go on; may be repeated."""
    if role not in MASTER_ROLES:
        fail(f"--role {role}: it takes {' or '.join(MASTER_ROLES)}", code=2)

    async def work() -> dict[str, Any]:
        async with with_admin(namesrv) as admin:
            return await admin.convert_to_classic(group, role, _say)

    state = run(work)
    if as_json:
        print_json(state)
        return
    for warning in state["warnings"]:
        typer.echo(f"warning: {warning}")
    slaves = len(state["slaves"])
    typer.echo(f"{group} has a master at {state['address']} and {slaves} slaves; say so in each broker.conf")


def _say(words: str) -> None:
    """Tell a step; not on standard output, which is for the result."""
    typer.echo(words, err=True)
