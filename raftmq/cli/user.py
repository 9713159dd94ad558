"""`raftmq user` and `raftmq acl`: who may use a cluster with access control, and what he may do.

Secret keys are never arguments: other users of a machine see those. They are asked for at a terminal, else read from
standard input or a file.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.acl_migrate import migrate
from raftmq.cli.options import DEFAULT_NAMESRV, Broker, Cluster, Json, Namesrv
from raftmq.cli.output import emit, fail, one_line_errors, run, with_admin

if TYPE_CHECKING:
    from remoting.bodies.registry import AclInfo, UserInfo

app = typer.Typer(no_args_is_help=True, help="Users of brokers with access control.")
acl = typer.Typer(no_args_is_help=True, help="What users may do: policies about topics, groups and clusters.")

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name, which is his access key.")]
Resource = Annotated[str, typer.Argument(help="Such as Topic:orders, Topic:pay*, Group:*, Cluster:* or *.")]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="Read the secret key from there: its only line, or secretKey=… of a file of credentials.",
    ),
]
Super = Annotated[bool | None, typer.Option("--super/--normal", help="A super user may do everything.")]
Enabled = Annotated[bool | None, typer.Option("--enable/--disable", help="Whether his requests are taken.")]
Actions = Annotated[
    list[str],
    typer.Option("--action", "-a", help="Pub, Sub, Create, Update, Delete, Get, List or All; may be repeated."),
]
Allow = Annotated[bool, typer.Option("--allow/--deny", help="What is said of it.")]
Sources = Annotated[
    list[str] | None, typer.Option("--source", metavar="ADDR", help="From this address or network only; repeatable.")
]
# Characters of a secret that are read: more is another file.
SECRET_LENGTH_MAX = 1024

USER_COLUMNS = ("broker", "user", "type", "status")
POLICY_COLUMNS = ("broker", "user", "type", "resource", "actions", "sources", "decision")


@app.command("create")
def create_user(
    name: Name,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    secret_file: SecretFile = None,
    super_user: Annotated[bool, typer.Option("--super", help="Who may do everything.")] = False,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Make a user at every master (or at one broker)."""
    secret = _secret(secret_file)

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            return await admin.create_user(
                name, secret, super_user=super_user, cluster=cluster or None, address=broker or None
            )

    _emit_changed(name, run(work), as_json)


@app.command("update")
def update_user(
    name: Name,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    secret_file: SecretFile = None,
    new_secret: Annotated[bool, typer.Option("--secret", help="Ask for a new secret key.")] = False,
    super_user: Super = None,
    enabled: Enabled = None,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Change a user's secret key, type or status; what is not given stays as it is."""
    secret = _secret(secret_file) if new_secret or secret_file is not None else None
    if secret is None and super_user is None and enabled is None:
        fail("nothing to change: --secret, --secret-file, --super, --normal, --enable or --disable", code=2)

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            return await admin.update_user(
                name,
                secret_key=secret,
                super_user=super_user,
                enabled=enabled,
                cluster=cluster or None,
                address=broker or None,
            )

    _emit_changed(name, run(work), as_json)


@app.command("delete")
def delete_user(
    name: Name,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Remove a user with all his policies."""

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            return await admin.delete_user(name, cluster=cluster or None, address=broker or None)

    _emit_changed(name, run(work), as_json)


@app.command("list")
def list_users(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    part: Annotated[str, typer.Option("--filter", help="Only names that hold this text.")] = "",
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """List the users of each master (or of one broker)."""

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            addresses = await admin.masters(cluster or None, broker or None)
            return [_user_row(each, user) for each in addresses for user in await admin.users(each, part)]

    _emit_users(run(work), as_json)


@app.command("show")
def show_user(
    name: Name,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Show a user at each master (or at one broker); secret keys are never shown."""

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            addresses = await admin.masters(cluster or None, broker or None)
            found = [(each, await admin.user(name, each)) for each in addresses]
            return [_user_row(each, user) for each, user in found if user is not None]

    rows = run(work)
    if not rows:
        fail(f"no broker has a user {name}: `raftmq user create {name}` makes him")
    _emit_users(rows, as_json)


@acl.command("create")
def create_acl(
    name: Name,
    resource: Resource,
    action: Actions,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    allow: Allow = True,
    source: Sources = None,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Say what a user may do with a resource, at every master (or at one broker)."""
    _set_policy(name, resource, action, namesrv, allow, source, (cluster, broker), as_json)


@acl.command("update")
def update_acl(
    name: Name,
    resource: Resource,
    action: Actions,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    allow: Allow = True,
    source: Sources = None,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Replace what is said about a resource; the same as `create`, as in RocketMQ."""
    _set_policy(name, resource, action, namesrv, allow, source, (cluster, broker), as_json)


@acl.command("delete")
def delete_acl(
    name: Name,
    resource: Annotated[str, typer.Argument(help="The resource of the policy; without it all of them go.")] = "",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Remove what is said about a resource, or everything, of a user."""

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            return await admin.delete_policies(name, resource, cluster=cluster or None, address=broker or None)

    _emit_changed(name, run(work), as_json)


@acl.command("list")
def list_acls(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    user_part: Annotated[str, typer.Option("--user", help="Only users whose names hold this text.")] = "",
    resource_part: Annotated[str, typer.Option("--resource", help="Only resources that hold this text.")] = "",
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """List what users may do at each master (or at one broker)."""

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            addresses = await admin.masters(cluster or None, broker or None)
            return [
                row
                for each in addresses
                for found in await admin.policies(each, user_part, resource_part)
                for row in _policy_rows(each, found)
            ]

    _emit_policies(run(work), as_json)


@acl.command("show")
def show_acl(
    name: Name,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cluster: Cluster = "",
    broker: Broker = "",
    as_json: Json = False,
) -> None:
    """Show what a user may do at each master (or at one broker)."""

    async def work() -> list[dict[str, Any]]:
        async with with_admin(namesrv) as admin:
            addresses = await admin.masters(cluster or None, broker or None)
            found = [(each, await admin.policies_of(name, each)) for each in addresses]
            return [row for each, acls in found if acls is not None for row in _policy_rows(each, acls)]

    _emit_policies(run(work), as_json)


def _set_policy(
    name: str,
    resource: str,
    actions: list[str],
    namesrv: str,
    allow: bool,
    sources: list[str] | None,
    where: tuple[str, str],
    as_json: bool,
) -> None:
    cluster, broker = where

    async def work() -> list[str]:
        async with with_admin(namesrv) as admin:
            return await admin.set_policy(
                name,
                resource,
                actions,
                allow=allow,
                sources=sources or (),
                cluster=cluster or None,
                address=broker or None,
            )

    _emit_changed(name, run(work), as_json)


def _secret(path: Path | None) -> str:
    """Return a secret key: from a file, from the terminal (asked for twice, not shown), or from standard input."""
    if path is not None:
        with one_line_errors():
            from client.credentials import read_secret

            text = read_secret(path)
    elif sys.stdin.isatty():
        text = typer.prompt("Secret key", hide_input=True, confirmation_prompt=True)
    else:
        text = sys.stdin.readline(SECRET_LENGTH_MAX + 2)
    secret = text.strip("\r\n")
    if path is not None and "\n" in secret:
        secret = _in_credentials(path)
    if not secret.strip() or len(secret) > SECRET_LENGTH_MAX or not secret.isprintable():
        fail(f"a secret key is one line of 1 to {SECRET_LENGTH_MAX} characters")
    return secret


def _in_credentials(path: Path) -> str:
    """Return the secret key of a file that its user signs with."""
    from client.credentials import read_credentials

    with one_line_errors():
        return read_credentials(path).secret_key


def _user_row(broker: str, user: "UserInfo") -> dict[str, Any]:
    return {"broker": broker, "user": user.username, "type": user.userType, "status": user.userStatus}


def _policy_rows(broker: str, acls: "AclInfo") -> list[dict[str, Any]]:
    from client.admin.users import policy_rows

    return [{"broker": broker, **row} for row in policy_rows(acls)]


def _emit_users(rows: list[dict[str, Any]], as_json: bool) -> None:
    emit(as_json, rows, USER_COLUMNS, [tuple(row.values()) for row in rows], empty="no users")


def _emit_policies(rows: list[dict[str, Any]], as_json: bool) -> None:
    table = [
        (
            row["broker"],
            row["user"],
            row["type"],
            row.get("resource"),
            ", ".join(row.get("actions") or ()),
            ", ".join(row.get("sourceIps") or ()),
            row.get("decision"),
        )
        for row in rows
    ]
    emit(as_json, rows, POLICY_COLUMNS, table, empty="no policies")


def _emit_changed(name: str, addresses: list[str], as_json: bool) -> None:
    emit(as_json, {"user": name, "brokers": addresses}, ("user", "broker"), [(name, each) for each in addresses])


acl.command("migrate")(migrate)
