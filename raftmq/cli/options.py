"""Options that several commands take, declared once."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_NAMESRV = "127.0.0.1:9876"

Namesrv = Annotated[
    str,
    typer.Option(
        "--namesrv", "-n", envvar="NAMESRV_ADDR", metavar="ADDRS", help="NameServers, host:port separated by ';'."
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
