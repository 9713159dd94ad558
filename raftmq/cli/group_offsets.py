"""`raftmq group reset-offset`, `skip` and `clone-offset`: where a group goes on; with `--dry-run`, where it would."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, GroupArgument, Json, Namesrv, TopicArgument
from raftmq.cli.output import emit, fail, run, with_admin

if TYPE_CHECKING:
    from client.admin.client import AdminClient
    from client.admin.replay import OffsetMove
    from remoting.bodies.registry import MessageQueue

TO_THE_END = -1
COLUMNS = ("broker", "queue", "before", "offset", "messages")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


def reset_offset(
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="begin, end, milliseconds, or ISO 8601 (local unless it says).")
    ] = "",
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="BROKER:N", help="Only this queue; may be repeated. All of the topic."),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Instead of a time: an offset, of one --queue.")
    ] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    forward: Annotated[bool, typer.Option("--forward/--back-only", help="Whether offsets may move forward.")] = True,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Set a group's offsets in a topic to a time, or in one queue to a number; members that are online go on there."""
    queues = [_queue(topic, text) for text in queue or []]
    if (offset is None) == (not to):
        fail("reset-offset takes --to or --offset, one of the two", code=2)
    if offset is not None and len(queues) != 1:
        fail("--offset is of one queue: name it with --queue", code=2)
    timestamp_ms = TO_THE_END if offset is not None else parse_time(to)

    async def work() -> "list[OffsetMove]":
        async with with_admin(namesrv) as admin:
            moves = await admin.plan_reset(
                group, topic, timestamp_ms=timestamp_ms, offset=offset, force=forward, queues=queues
            )
            if dry_run:
                return moves
            if queues:
                # What is kept needs no request, and its place may be out of the queue's range by now.
                await admin.apply_moves(group, [move for move in moves if forward or move.offset != move.before])
                return moves
            return await _whole(admin, group, topic, timestamp_ms, forward, moves)

    _show(run(work), dry_run, as_json)


def skip(
    group: GroupArgument,
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Have a group go on at the end of a topic: what it has not consumed by now, it never will."""

    async def work() -> "list[OffsetMove]":
        async with with_admin(namesrv) as admin:
            moves = await admin.plan_reset(group, topic)
            return moves if dry_run else await _whole(admin, group, topic, TO_THE_END, True, moves)

    _show(run(work), dry_run, as_json)


def clone_offset(
    source: Annotated[str, typer.Argument(help="Group whose offsets are taken.")],
    target: Annotated[str, typer.Argument(help="Group that gets them; made when it is new.")],
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Give one group the offsets that another has in a topic."""
    from remoting.topics import check_group

    if wrong := check_group(target):
        fail(wrong)

    async def work() -> "list[OffsetMove]":
        async with with_admin(namesrv) as admin:
            moves = await admin.plan_clone(source, target, topic)
            if not moves:
                fail(f"the group {source} has no offsets in {topic}")
            if not dry_run:
                await admin.clone_offsets(source, target, topic)
            return moves

    _show(run(work), dry_run, as_json)


async def _whole(
    admin: "AdminClient", group: str, topic: str, timestamp_ms: int, force: bool, moves: "list[OffsetMove]"
) -> "list[OffsetMove]":
    """Reset all queues with one request a broker, and return what came of it: more may have come since the plan."""
    from client.admin.replay import OffsetMove

    before = {move.queue: move.before for move in moves}
    done = await admin.reset_offset(group, topic, timestamp_ms=timestamp_ms, force=force)
    return [OffsetMove(queue, before.get(queue), offset) for queue, offset in sorted(done.items())]


def _show(moves: "list[OffsetMove]", dry_run: bool, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "broker": move.queue.brokerName,
            "queue": move.queue.queueId,
            "before": move.before,
            "offset": move.offset,
            "messages": None if move.before is None else move.offset - move.before,
        }
        for move in moves
    ]
    emit(as_json, rows, COLUMNS, [tuple(row.values()) for row in rows], empty="no queues")
    if dry_run and not as_json:
        typer.echo("nothing was changed: this was --dry-run")


def _queue(topic: str, text: str) -> "MessageQueue":
    from remoting.bodies.registry import MessageQueue

    broker, colon, number = text.rpartition(":")
    if not (broker and colon and number.isdecimal() and len(number) < 10):
        fail(f"--queue {text}: it takes a broker's name and a number, such as broker-a:0", code=2)
    return MessageQueue(topic, broker, int(number))


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch, -1 for the end; ends the command when the text is no time."""
    if text in {"begin", "end"}:
        return 0 if text == "begin" else TO_THE_END
    if text.isdigit():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        fail(f"{text} is no time: it takes begin, end, milliseconds, or ISO 8601 such as 2026-01-31T12:00:00", code=2)
