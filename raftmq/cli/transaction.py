"""`raftmq transaction`: half messages that nobody has committed or rolled back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv
from raftmq.cli.output import emit, fail, print_json, run, time_of, with_admin

if TYPE_CHECKING:
    from client.admin.client import AdminClient

app = typer.Typer(no_args_is_help=True, help="Transactions that are undecided, or were given up.")

PENDING = ("id", "transaction", "producers", "topic", "checks", "age s")
DISCARDED = ("id", "transaction", "producers", "topic", "checks", "given up")

Pages = Mapping[str, Mapping[str, Any]]


Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="At most so many of each broker.")]
Group = Annotated[str, typer.Option("--group", "-g", help="Of this producer group only.")]


@app.command()
def pending(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    broker: Broker = "",
    limit: Limit = 100,
    group: Group = "",
    as_json: Json = False,
) -> None:
    """Show half messages that are neither committed nor rolled back, the oldest of each broker."""
    found = _pages(namesrv, cluster, broker, limit, group)
    rows = [(*_common(half), half["ageMs"] // 1000) for page in found.values() for half in page["halves"]]
    emit(as_json, found, PENDING, rows, empty="no transaction is undecided")
    _more(as_json, found, "pending", "halves")


@app.command()
def discarded(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    broker: Broker = "",
    limit: Limit = 100,
    group: Group = "",
    as_json: Json = False,
) -> None:
    """Show half messages that were given up, the newest of each broker: nobody ended them, in all their checks.

    With --group they are looked for among the newest 500.
    """
    found = _pages(namesrv, cluster, broker, limit, group)
    rows = [
        (*_common(half), time_of(half["discardedMs"])) for page in found.values() for half in page["discardedHalves"]
    ]
    emit(as_json, found, DISCARDED, rows, empty="no transaction was given up")


@app.command()
def check(
    half_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `pending` or `discarded` shows.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Have the producer of one asked about it again, from the first check on; the broker's next round does it."""

    async def work() -> str:
        async with with_admin(namesrv) as admin:
            address = broker or await _holder(admin, half_id)
            await admin.check_transaction(half_id, address)
            return address

    address = run(work)
    if as_json:
        print_json({"id": half_id, "broker": address})
    else:
        typer.echo(f"{address} asks about it in its next round")


def _pages(namesrv: str, cluster: str, broker: str, limit: int, group: str) -> Pages:
    async def work() -> Pages:
        async with with_admin(namesrv) as admin:
            addresses = await admin.masters(cluster or None, broker or None)
            return {
                address: await admin.transactions(address, limit=limit, group=group or None) for address in addresses
            }

    return run(work)


def _common(half: Mapping[str, Any]) -> tuple[object, ...]:
    return half["id"], half["transactionId"], half["producerGroup"], half["topic"], half["checks"]


def _more(as_json: bool, pages: Pages, total: str, shown: str) -> None:
    """Say what is not shown."""
    for address, page in () if as_json else pages.items():
        if not page["read"]:
            typer.echo(f"{address} is still reading its half messages")
        elif page[total] > len(page[shown]):
            typer.echo(f"{address} has {page[total] - len(page[shown])} more")


async def _holder(admin: "AdminClient", half_id: str) -> str:
    """Return the broker that an id names, or the only one there is: in a group any member may have written it."""
    from remoting.address import format_address
    from remoting.msgid import parse_offset_msg_id

    try:
        (host, port), _ = parse_offset_msg_id(half_id)
    except ValueError as error:
        fail(str(error))
    masters = await admin.masters()
    if (named := format_address(host, port)) in masters:
        return named
    if len(masters) > 1:
        fail(f"no broker that leads has the address {named}: name the broker with -b")
    return masters[0]
