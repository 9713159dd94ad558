"""Options that several commands take, declared once."""

from pathlib import Path
from typing import Annotated

import typer

from raftmq.cli.output import fail


def _checked(addresses: str) -> str:
    """Return the NameServers' addresses; ends the command when they cannot be any."""
    from client.nameservers import parse_addresses

    try:
        parse_addresses(addresses)
    except ValueError as error:
        fail(f"-n (or NAMESRV_ADDR): {error}", code=2)
    return addresses


def in_utf8(text: str) -> str:
    """Return a text as it is; ends the command when it has bytes that are none, as another encoding's."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("this is no text in UTF-8") from error
    return text


DEFAULT_NAMESRV = "127.0.0.1:9876"

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="ADDRS",
        callback=_checked,
        help="NameServers, host:port separated by ';'.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Topic = Annotated[str, typer.Option("--topic", "-t", help="Topic.")]
TopicArgument = Annotated[str, typer.Argument(help="Topic.")]
GroupArgument = Annotated[str, typer.Argument(help="Consumer group.")]
Broker = Annotated[
    str, typer.Option("--broker", "-b", metavar="ADDR", help="One broker, host:port; otherwise all of the cluster.")
]
Cluster = Annotated[str, typer.Option("--cluster", "-c", help="Cluster; otherwise all that the NameServer knows.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="Configuration file, key=value lines.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration key; may be given repeatedly.")
]
