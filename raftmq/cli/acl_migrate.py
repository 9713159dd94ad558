"""`raftmq acl migrate`: the accounts of ACL 1.0's plain_acl.yml become users and policies of a running broker.

Nobody who is there already is changed. A user is made first, and then what he may do, by the codes that
`raftmq user create` and `raftmq acl create` use; between the two he may do nothing.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv
from raftmq.cli.output import fail, one_line_errors, print_json, print_table, run, with_admin

if TYPE_CHECKING:
    from auth.plain_acl import MigratedUser, Migration
    from client.admin.client import AdminClient
    from remoting.bodies.registry import AclInfo, PolicyInfo

COLUMNS = ("broker", "user", "type", "result", "policies")
MADE, WOULD_BE_MADE = "made", "would be made"
THERE, OTHER = "there already", "there already, and other than in the file: left as it is"
NEW = frozenset({MADE, WOULD_BE_MADE})


def migrate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="plain_acl.yml, and files of a folder conf/acl.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be made; the brokers are asked who is there.")
    ] = False,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Make users and policies of ACL 1.0's accounts at every master (or at one broker), and say what is lost."""
    with one_line_errors():
        from auth.plain_acl import migration_of
        from auth.plain_acl_file import read_plain_acl

        found = migration_of([read_plain_acl(path) for path in files])

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            addresses = await admin.masters(cluster or None, broker or None)
            return [await _carried(admin, each, user, dry_run) for each in addresses for user in found.users]

    _emit(run(work), found, dry_run, as_json)


async def _carried(admin: "AdminClient", address: str, wanted: "MigratedUser", dry_run: bool) -> dict[str, Any]:
    """Make a user at a broker, unless there is one of that name; return what came of it, as a row."""
    from auth.model import UserType
    from auth.wire import acl_shown

    user = wanted.user
    shown = acl_shown(user.name, wanted.policies)
    policies = [] if shown is None else shown.policies or []
    known = await admin.user(user.name, address)
    if known is not None:
        same = known.userType == user.kind and _said(await admin.policies_of(user.name, address)) == _said(shown)
        result = THERE if same else OTHER
    elif dry_run:
        result = WOULD_BE_MADE
    else:
        await admin.create_user(user.name, user.secret, super_user=user.kind is UserType.SUPER, address=address)
        if policies:
            await _say(admin, address, user.name, policies)
        result = MADE
    return {
        "broker": address,
        "user": user.name,
        "type": str(user.kind),
        "result": result,
        "policies": _rows(policies),
    }


async def _say(admin: "AdminClient", address: str, name: str, policies: "list[PolicyInfo]") -> None:
    from client.errors import ClientError
    from remoting.errors import RemotingError

    try:
        await admin.set_policies(name, policies, address=address)
    except (ClientError, RemotingError) as error:
        fail(
            f"{name} was made at {address}, and may do nothing yet, for his policies were not taken: {error} "
            f"(`raftmq user delete {name}`, then once more)"
        )


def _rows(policies: "list[PolicyInfo]") -> list[dict[str, Any]]:
    return [
        {"type": policy.policyType, "resource": entry.resource, "actions": entry.actions, "decision": entry.decision}
        for policy in policies
        for entry in policy.entries or []
    ]


def _said(acl: "AclInfo | None") -> set[tuple[object, ...]]:
    """Return what policies say, to be compared: in no order."""
    return {
        (policy.policyType, entry.resource, frozenset(entry.actions), entry.decision, *(entry.sourceIps or ()))
        for policy in (acl.policies if acl is not None else None) or []
        for entry in policy.entries or []
    }


def _emit(rows: list[dict[str, Any]], found: "Migration", dry_run: bool, as_json: bool) -> None:
    new = sum(row["result"] in NEW for row in rows)
    if as_json:
        print_json({"dryRun": dry_run, "new": new, "users": rows, "notCarriedOver": found.notes})
        return
    table = [(*(row[key] for key in COLUMNS[:-1]), "; ".join(map(_words, row["policies"]))) for row in rows]
    print_table(COLUMNS, table, empty="no accounts")
    for note in found.notes:
        typer.echo(f"not carried over: {note}")
    if dry_run:
        typer.echo(f"a dry run: nothing was changed; {new} would be made")
    else:
        typer.echo(f"{new} made" if new else "nothing was changed")


def _words(policy: dict[str, Any]) -> str:
    """Return a policy in words: "Topic:orders Pub, Sub Allow", with "by default" where it is one."""
    default = " by default" if policy["type"] == "Default" else ""
    return f"{policy['resource']} {', '.join(policy['actions'])} {policy['decision']}{default}"
