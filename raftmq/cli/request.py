"""`raftmq request`: one message is sent, and the reply of whoever consumes it printed."""

import os
from typing import Annotated

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv, TopicArgument
from raftmq.cli.output import parse_settings, print_json_line, run, text_of
from raftmq.cli.talk import described

TIMEOUT_S = 10.0


def request(
    topic: TopicArgument,
    body: Annotated[str, typer.Argument(help="The request's body.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the reply.")] = TIMEOUT_S,
    tags: Annotated[str | None, typer.Option("--tags", help="The tag that consumers filter by.")] = None,
    properties: Annotated[list[str] | None, typer.Option("--property", metavar="NAME=VALUE")] = None,
    group: Annotated[str, typer.Option("--group", "-g", help="Producer group.")] = "raftmq_cli",
    as_json: Json = False,
) -> None:
    """Send a request and print the reply to it."""
    from client.message import Message
    from client.produce.producer import Producer
    from remoting.message import MessageExt

    named = parse_settings(properties)

    async def work() -> MessageExt:
        async with Producer(group, namesrv) as producer:
            message = Message(topic, os.fsencode(body), tags=tags, properties=named)
            return await producer.request(message, timeout=timeout)

    reply = run(work)
    if as_json:
        print_json_line(described(reply))
    else:
        typer.echo(text_of(bytes(reply.body)))
