"""`raftmq send` and `raftmq consume`: messages from and to the terminal."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.delays import Timing
from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv, TopicArgument
from raftmq.cli.output import fail, parse_settings, print_json_line, print_table, run, text_of, time_of

if TYPE_CHECKING:
    from client.consume.litepull import LitePullConsumer
    from client.consume.simple import SimpleConsumer
    from client.message import SendResult
    from remoting.message import MessageExt

POLL_S = 0.5
# With --pop: messages of one request, and how long one waits, in seconds.
POP_MAX = 32
POP_WAIT_S = 15.0
VIEWER = "raftmq_cli_viewer"  # the group of those who only look; it stores no offsets
SEND_COLUMNS = ("status", "broker", "queue", "offset", "message id")


def send(
    topic: TopicArgument,
    body: Annotated[str | None, typer.Argument(help="The body; without it each line of standard input is one.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    tags: Annotated[str | None, typer.Option("--tags", help="The tag that consumers filter by.")] = None,
    keys: Annotated[list[str] | None, typer.Option("--key", "-k", help="A key to find it by; repeatable.")] = None,
    properties: Annotated[list[str] | None, typer.Option("--property", metavar="NAME=VALUE")] = None,
    queue: Annotated[str, typer.Option("--queue", metavar="BROKER:ID", help="One queue; otherwise in turn.")] = "",
    priority: Annotated[int | None, typer.Option("--priority", min=0, help="Its queue's number, or the last.")] = None,
    group: Annotated[str, typer.Option("--group", "-g", help="Producer group.")] = "raftmq_cli",
    delay: Annotated[
        str, typer.Option("--delay", metavar="TIME", help="Deliver so much later: 90, 90s, 15m, 1.5h, 2d.")
    ] = "",
    deliver_at: Annotated[
        str, typer.Option("--deliver-at", metavar="TIME", help="Deliver then: ISO 8601, or milliseconds.")
    ] = "",
    trace: Annotated[bool, typer.Option("--trace", help="Write a trace, for `raftmq message trace`.")] = False,
    as_json: Json = False,
) -> None:
    """Send one message, or each line of standard input that is not empty."""
    from client.message import Message
    from client.produce.producer import Producer
    from remoting.bodies.registry import MessageQueue

    named = parse_settings(properties)
    broker, _, number = queue.rpartition(":")
    if queue and not (broker and number.isdecimal()):
        fail(f"--queue {queue}: it takes the broker's name and the queue's number, broker-a:3", code=2)
    target = MessageQueue(topic, broker, int(number)) if queue else None
    timing = Timing.read(delay, deliver_at)

    results: list[SendResult] = []
    reached = 0  # line of standard input

    async def work() -> None:
        nonlocal reached
        async with Producer(group, namesrv, trace=trace) as producer:
            for line, one in [(1, os.fsencode(body))] if body is not None else _lines():
                reached = line
                message = Message(topic, one, tags=tags, keys=keys or (), properties=named, priority=priority)
                message.delay, message.deliver_at = timing.delay_s, timing.deliver_ms
                results.append(await producer.send(message, queue=target))

    try:
        run(work)
    except typer.Exit:
        # Why has been said; what is there all the same must be known to whoever sends the rest.
        if body is None and reached:
            _print_sent(results, as_json=as_json)
            typer.echo(
                f"raftmq: line {reached} of standard input failed; messages sent before it: {len(results)}", err=True
            )
        raise
    if not results:
        fail("nothing to send: standard input had no line that is not empty")
    _print_sent(results, as_json=as_json)


def _print_sent(results: "list[SendResult]", *, as_json: bool) -> None:
    if as_json:
        for result in results:
            print_json_line(_sent(result))
        return
    # Handles are long, and only timer messages have one.
    more = ("recall_handle",) if any(result.recall_handle for result in results) else ()
    rows = [
        tuple(_sent(result).get(key) for key in ("status", "broker", "queue", "offset", "id", *more))
        for result in results
    ]
    print_table((*SEND_COLUMNS, *(("recall handle",) if more else ())), rows)


def consume(
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    group: Annotated[
        str, typer.Option("--group", "-g", help="Consume as a member of this group; otherwise only look.")
    ] = "",
    expression: Annotated[str, typer.Option("--tags", help="Tag expression, such as 'a || b'.")] = "*",
    sql: Annotated[str, typer.Option("--sql", help="SQL92 filter, such as \"price > 10 AND region = 'eu'\".")] = "",
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many messages; 0 goes on.")] = 0,
    from_end: Annotated[
        bool, typer.Option("--from-end", help="Begin at the end; for a group only where it has no offset.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="End after so many seconds without a message; 0 waits on.")] = 0.0,
    pop: Annotated[
        bool, typer.Option("--pop", help="Take messages from any queue, and acknowledge each when it is printed.")
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="With --pop: each queue in its order, one member of the group at a time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print messages as they come, until --count, --timeout or Ctrl-C."""
    if ordered and not pop:
        fail("--ordered is for --pop: without it queues are shared out, and read in their order anyhow")
    if pop and not group:
        fail("--pop takes messages, so that no other member of the group gets them: name the group by --group")

    async def work() -> int:
        from client.consume.litepull import LitePullConsumer
        from client.consume.simple import SimpleConsumer
        from client.message import ConsumeFrom

        where = ConsumeFrom.LAST_OFFSET if from_end else ConsumeFrom.FIRST_OFFSET
        wanted = sql or None
        if pop:
            async with SimpleConsumer(group, namesrv, ordered=ordered, from_where=where) as taker:
                taker.subscribe(topic, expression, sql=wanted)
                return await _take_all(taker, count, timeout, as_json=as_json)
        consumer = LitePullConsumer(group or VIEWER, namesrv, from_where=where, auto_commit=False)
        if group:
            consumer.subscribe(topic, expression, sql=wanted)
        async with consumer:
            if not group:
                queues = await consumer.queues(topic)
                await consumer.assign(queues, expression, sql=wanted)
                for queue in queues:
                    await (consumer.seek_to_end(queue) if from_end else consumer.seek_to_begin(queue))
            return await _show_all(consumer, count, timeout, as_json=as_json, commit=bool(group))

    shown = run(work)
    if count and shown < count:
        fail(f"{shown} of {count} messages came within {timeout:g} s")


async def _show_all(consumer: "LitePullConsumer", count: int, timeout_s: float, *, as_json: bool, commit: bool) -> int:
    """Print messages and (for a group) store the position behind those that were printed; returns how many."""
    shown = 0
    quiet_since = time.monotonic()
    while not timeout_s or time.monotonic() - quiet_since < timeout_s:
        messages = await consumer.poll(POLL_S)
        wanted = messages[: count - shown] if count else messages
        for message in wanted:
            _show(message, as_json)
        shown += len(wanted)
        if len(wanted) < len(messages):
            # What was fetched but not printed is not consumed; a poll gives messages of one queue, in their order.
            first = messages[len(wanted)]
            from remoting.bodies.registry import MessageQueue

            consumer.seek(MessageQueue(first.topic, first.broker_name, first.queue_id), first.queue_offset)
        if wanted:
            quiet_since = time.monotonic()
            if commit:
                await consumer.commit()
        if count and shown >= count:
            break
    return shown


async def _take_all(consumer: "SimpleConsumer", count: int, timeout_s: float, *, as_json: bool) -> int:
    """Print messages and acknowledge those; returns how many."""
    shown = 0
    quiet_since = time.monotonic()
    while (not timeout_s or time.monotonic() - quiet_since < timeout_s) and not (count and shown >= count):
        left = timeout_s - (time.monotonic() - quiet_since) if timeout_s else POP_WAIT_S
        most = min(POP_MAX, count - shown) if count else POP_MAX
        messages = await consumer.receive(most, wait=max(0.0, min(left, POP_WAIT_S)))
        for message in messages:
            _show(message, as_json)
        await asyncio.gather(*(message.ack() for message in messages))
        shown += len(messages)
        if messages:
            quiet_since = time.monotonic()
    return shown


def _lines() -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        if stripped := line.rstrip(b"\r\n"):
            yield number, stripped


def _sent(result: "SendResult") -> dict[str, Any]:
    fields = {
        "status": result.status.name,
        "topic": result.queue.topic,
        "broker": result.queue.brokerName,
        "queue": result.queue.queueId,
        "offset": result.queue_offset,
        "id": result.msg_id,
        "offset_id": result.offset_msg_id,
    }
    return fields | ({"recall_handle": result.recall_handle} if result.recall_handle else {})


def _show(message: "MessageExt", as_json: bool) -> None:
    if as_json:
        print_json_line(described(message))
        return
    where = f"{message.broker_name or '-'}:{message.queue_id}@{message.queue_offset}"
    tags = f" [{message.tags}]" if message.tags else ""
    typer.echo(f"{time_of(message.store_timestamp)} {where}{tags} {text_of(bytes(message.body))}")


def described(message: "MessageExt") -> dict[str, Any]:
    """Return a message for JSON; the body as text, with escapes for bytes that are none."""
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "id": message.msg_id,
        "offset_id": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "born": time_of(message.born_timestamp),
        "born_host": "{}:{}".format(*message.born_host),
        "stored": time_of(message.store_timestamp),
        "store_host": "{}:{}".format(*message.store_host),
        "reconsume_times": message.reconsume_times,
        "size": message.size,
        "body": bytes(message.body).decode("utf-8", errors="backslashreplace"),
    }
