"""`raftmq message trace`: who sent and consumed a message, from the traces that clients wrote."""

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv
from raftmq.cli.output import emit, run, time_of, with_admin

if TYPE_CHECKING:
    from client.admin.client import AdminClient
    from client.trace.records import TraceRecord

COLUMNS = ("time", "what", "group", "ms", "done", "details")
FOUND_MAX = 64


def trace(
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id that `send` prints, the offset id, or a key.")
    ],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="The topic that traces are sent to.")
    ] = "RMQ_SYS_TRACE_TOPIC",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="Trace messages, of each broker.")
    ] = FOUND_MAX,
    as_json: Json = False,
) -> None:
    """Show who sent and consumed a message, as far as these clients write traces."""

    async def work() -> "list[TraceRecord]":
        from client.trace.records import decode_traces, trace_keys

        async with with_admin(namesrv) as admin:
            named = await _client_made(admin, message_id)
            found = await admin.messages_by_key(topic, named, most=limit)
        records = [record for message in found for record in decode_traces(bytes(message.body))]
        # A trace message holds those of others too.
        return [record for record in records if named in trace_keys(record)]

    records = sorted(run(work), key=_order)
    emit(
        as_json,
        [{"kind": type(record).__name__, **asdict(record)} for record in records],
        COLUMNS,
        [_row(record) for record in records],
        empty=f"no trace of {message_id} in topic {topic}: were its clients started with traces?",
    )


async def is_offset_id(admin: "AdminClient", text: str) -> bool:
    """Tell whether an id names one of the cluster's brokers: ids that clients make look alike. Raises ValueError."""
    from remoting.address import format_address
    from remoting.msgid import parse_offset_msg_id

    (host, port), _ = parse_offset_msg_id(text)
    return format_address(host, port) in {broker.address for broker in await admin.brokers()}


async def _client_made(admin: "AdminClient", text: str) -> str:
    """Return the id by which a message is traced: of an offset id that of the message there, else the text."""
    with suppress(ValueError):
        if await is_offset_id(admin, text) and (found := await admin.message_by_id(text)) is not None:
            return found.msg_id
    return text


def _order(record: "TraceRecord") -> tuple[int, int]:
    kinds = ("Pub", "Recall", "EndTransaction", "SubBefore", "SubAfter")
    return record.time_ms or 0, kinds.index(type(record).__name__)


def _row(record: "TraceRecord") -> tuple[Any, ...]:
    fields = asdict(record)
    shown = {"time_ms", "group", "cost_ms", "success"}
    names = {
        "Pub": "sent",
        "SubBefore": "consuming",
        "SubAfter": "consumed",
        "EndTransaction": "ended",
        "Recall": "recalled",
    }
    details = " ".join(
        f"{name}={value}" for name, value in fields.items() if name not in shown and value not in {None, ""}
    )
    return (
        time_of(record.time_ms or 0),
        names[type(record).__name__],
        record.group,
        fields.get("cost_ms"),
        fields.get("success"),
        details,
    )
