"""`raftmq message trace`: who sent and consumed a message, from the traces that clients wrote."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv
from raftmq.cli.output import emit, run, time_of, with_admin

if TYPE_CHECKING:
    from client.trace.records import TraceRecord

COLUMNS = ("time", "what", "group", "ms", "done", "details")
FOUND_MAX = 64


def trace(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `send` prints, or a key.")],
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
            found = await admin.messages_by_key(topic, message_id, most=limit)
        records = [record for message in found for record in decode_traces(bytes(message.body))]
        # A trace message holds those of others too.
        return [record for record in records if message_id in trace_keys(record)]

    records = sorted(run(work), key=_order)
    emit(
        as_json,
        [{"kind": type(record).__name__, **asdict(record)} for record in records],
        COLUMNS,
        [_row(record) for record in records],
        empty=f"no trace of {message_id} in topic {topic}: were its clients started with traces?",
    )


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
