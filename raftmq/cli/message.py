"""`raftmq message`: finding messages by id, by key, or by their place in a queue; recalling timer messages."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.group_offsets import parse_time
from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv, TopicArgument
from raftmq.cli.output import emit, fail, print_json, print_table, run, text_of, time_of, with_admin
from raftmq.cli.talk import described
from raftmq.cli.traces import is_offset_id, trace

if TYPE_CHECKING:
    from client.admin.client import AdminClient
    from remoting.message import MessageExt

app = typer.Typer(no_args_is_help=True, help="Finding messages, recalling those not delivered yet.")
app.command()(trace)

COLUMNS = ("stored", "place", "message id", "tags", "keys", "body")
BODY_SHOWN = 60


@app.command()
def get(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `send` prints, or the offset id.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Its topic; without it all are searched.")] = None,
    as_json: Json = False,
) -> None:
    """Show one message by its id."""

    async def work() -> "MessageExt | None":
        async with with_admin(namesrv) as admin:
            try:
                if topic is None and not await is_offset_id(admin, message_id):
                    return await _anywhere(admin, message_id)
                return await admin.message_by_id(message_id, topic)
            except ValueError as error:
                fail(f"{message_id}: {error}")

    found = run(work)
    if found is None:
        fail(f"there is no message {message_id}")
    _show(found, as_json)


@app.command()
def query(
    topic: TopicArgument,
    key: Annotated[str, typer.Argument(help="A key of the message, or with --unique its message id.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    unique: Annotated[bool, typer.Option("--unique", help="KEY is the id that the client made.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many from each broker.")] = 64,
    begin: Annotated[str, typer.Option("--begin", metavar="TIME", help="Stored at or after.")] = "begin",
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="Stored at or before.")] = "end",
    as_json: Json = False,
) -> None:
    """Find messages by key, oldest first."""
    begin_ms, end_ms = parse_time(begin), parse_time(end)

    async def work() -> list["MessageExt"]:
        async with with_admin(namesrv) as admin:
            if unique:
                return await admin.messages_by_unique_key(topic, key)
            span: dict[str, int] = {"begin_ms": max(begin_ms, 0)}
            if end_ms >= 0:
                span["end_ms"] = end_ms
            return await admin.messages_by_key(topic, key, most=limit, **span)

    _emit(run(work), as_json, empty=f"no message has the key {key}")


@app.command(name="list")
def list_messages(
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    begin: Annotated[str, typer.Option("--from", metavar="TIME", help="Stored at or after.")] = "begin",
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="Stored before.")] = "end",
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many, the oldest.")] = 1000,
    as_json: Json = False,
) -> None:
    """List the messages of a topic's queues that were stored in a span of time, oldest first."""
    begin_ms, end_ms = parse_time(begin), parse_time(end)
    if end_ms >= 0 and begin_ms < 0:
        fail("--from end --to a time: that span holds nothing", code=2)

    async def work() -> list["MessageExt"]:
        async with with_admin(namesrv) as admin:
            return await admin.messages_by_time(topic, begin_ms, end_ms if end_ms >= 0 else None, most=limit)

    _emit(run(work), as_json, empty=f"topic {topic} has no message of that time")


@app.command()
def view(
    topic: TopicArgument,
    queue: Annotated[str, typer.Argument(metavar="BROKER:ID", help="The queue, such as broker-a:3.")],
    offset: Annotated[int, typer.Argument(min=0, help="Its offset in the queue.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Show the message at an offset of a queue."""
    from remoting.bodies.registry import MessageQueue

    broker, _, number = queue.rpartition(":")
    if not (broker and number.isdigit()):
        fail(f"{queue}: it takes the broker's name and the queue's number, broker-a:3", code=2)

    async def work() -> "MessageExt | None":
        async with with_admin(namesrv) as admin:
            return await admin.message_by_offset(MessageQueue(topic, broker, int(number)), offset)

    found = run(work)
    if found is None:
        fail(f"{topic} {queue} has no message at offset {offset}: `raftmq topic status {topic}` shows what it has")
    _show(found, as_json)


@app.command()
def recall(
    topic: TopicArgument,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="The recall handle that `send` prints.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    group: Annotated[str, typer.Option("--group", "-g", help="Producer group.")] = "raftmq_cli",
    as_json: Json = False,
) -> None:
    """Recall a timer message that is not delivered yet: it never will be."""

    async def work() -> str:
        from client.produce.producer import Producer

        async with Producer(group, namesrv) as producer:
            return await producer.recall(topic, handle)

    recalled = run(work)
    emit(as_json, {"topic": topic, "recalled": recalled}, ("topic", "recalled"), [(topic, recalled)])


async def _anywhere(admin: "AdminClient", message_id: str) -> "MessageExt | None":
    """Look for an id that a client made in one topic after the other."""
    from client.errors import RouteError

    for topic in await admin.topics():
        # One that is deleted meanwhile, or has no broker, does not have it.
        with suppress(RouteError):
            if found := await admin.messages_by_unique_key(topic, message_id):
                return found[0]
    return None


def _emit(messages: list["MessageExt"], as_json: bool, *, empty: str) -> None:
    rows = [
        (
            time_of(message.store_timestamp),
            f"{message.broker_name}:{message.queue_id}@{message.queue_offset}",
            message.msg_id,
            message.tags,
            " ".join(message.keys),
            text_of(bytes(message.body), BODY_SHOWN),
        )
        for message in messages
    ]
    emit(as_json, [described(message) for message in messages], COLUMNS, rows, empty=empty)


def _show(message: "MessageExt", as_json: bool) -> None:
    fields: dict[str, Any] = described(message)
    if as_json:
        print_json(fields)
        return
    texts = {**fields, "keys": " ".join(message.keys), "body": text_of(bytes(message.body), 2000)}
    properties = texts.pop("properties")
    rows = [*texts.items(), *((f"property {name}", value) for name, value in sorted(properties.items()))]
    print_table(("", ""), [(name, str(value) if value is not None else None) for name, value in rows])
