"""`raftmq group dead-letters`: what a group failed to consume too often; looked at, sent again, taken along."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.group_offsets import parse_time
from raftmq.cli.options import DEFAULT_NAMESRV, GroupArgument, Json, Namesrv
from raftmq.cli.output import emit, fail, print_json_line, run, text_of, time_of, with_admin
from raftmq.cli.talk import described

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from client.admin.client import AdminClient
    from remoting.message import MessageExt

app = typer.Typer(no_args_is_help=True, help="Messages that a group failed to consume too often.")

COLUMNS = ("stored", "topic", "message id", "tags", "keys", "tried", "body")
BODY_SHOWN = 60
LIMIT = 1000

Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many, the oldest.")]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only those that died since: milliseconds, or ISO 8601.")
]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this message; may be repeated.")]


@app.command("list")
def list_groups(namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """List the groups that have dead letters, and how many are kept."""

    async def work() -> dict[str, int]:
        async with with_admin(namesrv) as admin:
            return await admin.dead_letter_groups()

    rows = [{"group": group, "letters": count} for group, count in sorted(run(work).items())]
    emit(as_json, rows, ("group", "letters"), [tuple(row.values()) for row in rows], empty="no dead letters")


@app.command()
def show(
    group: GroupArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    ids: Ids = None,
    since: Since = "begin",
    limit: Limit = LIMIT,
    as_json: Json = False,
) -> None:
    """Show a group's dead letters, oldest first."""
    since_ms = parse_time(since)

    async def work() -> "list[MessageExt]":
        async with with_admin(namesrv) as admin:
            return await _letters(admin, group, ids or [], since_ms, limit)

    letters = run(work)
    rows = [
        (
            time_of(letter.store_timestamp),
            origin(letter),
            letter.msg_id,
            letter.tags,
            " ".join(letter.keys),
            letter.reconsume_times,
            text_of(letter.body, BODY_SHOWN),
        )
        for letter in letters
    ]
    shown = [{**described(letter), "origin": origin(letter)} for letter in letters]
    emit(as_json, shown, COLUMNS, rows, empty=f"the group {group} has no dead letters")


@app.command()
def resend(
    group: GroupArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    ids: Ids = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, or those since --since.")] = False,
    since: Since = "begin",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="With --all: at most so many, the oldest.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Have dead letters consumed once more, by their group alone. They stay dead letters too, until they expire."""
    if everything == bool(ids):
        fail("resend takes --id, or --all", code=2)
    since_ms = parse_time(since)
    sent: list[MessageExt] = []
    # The one whose turn it is, which is sent or not.
    turn: list[MessageExt] = []

    async def in_turn(letters: "AsyncIterator[MessageExt]") -> "AsyncIterator[MessageExt]":
        async for letter in letters:
            turn[:] = [letter]
            if len(sent) == limit:
                return
            yield letter

    async def work() -> None:
        async with with_admin(namesrv) as admin:
            if ids:
                found = await _letters(admin, group, ids, since_ms, LIMIT)
                await admin.resend_dead_letters(group, found, on_sent=sent.append)
            else:
                letters = in_turn(admin.each_dead_letter(group, since_ms))
                await admin.resend_dead_letters(group, letters, on_sent=sent.append)

    ended: typer.Exit | None = None
    try:
        run(work)
    except typer.Exit as error:
        ended = error
    if sent or ended is None:
        rows = [{"id": letter.msg_id, "topic": origin(letter)} for letter in sent]
        empty = f"the group {group} has no dead letters"
        emit(as_json, rows, ("message id", "topic"), [tuple(row.values()) for row in rows], empty=empty)
    if turn and sent and (ended is not None or turn[0] is not sent[-1]):
        rest = f"`--since {time_of(turn[0].store_timestamp)}` goes on with the next"
        typer.echo(f"raftmq: {len(sent)} dead letters were sent again, {rest}", err=True)
    if ended is not None:
        raise ended


@app.command()
def export(
    group: GroupArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    ids: Ids = None,
    since: Since = "begin",
    limit: Limit = LIMIT,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file; by default standard output.")
    ] = None,
) -> None:
    """Write dead letters as lines of JSON, with the body in base64 too, for it need not be text."""
    since_ms = parse_time(since)

    async def work() -> "list[MessageExt]":
        async with with_admin(namesrv) as admin:
            return await _letters(admin, group, ids or [], since_ms, limit)

    rows = [_exported(letter) for letter in run(work)]
    if output is None:
        for row in rows:
            print_json_line(row)
        return
    import orjson

    try:
        with output.open("xb") as file:
            file.writelines(orjson.dumps(row) + b"\n" for row in rows)
    except OSError as error:
        fail(f"{output}: {error.strerror}")
    typer.echo(f"{len(rows)} dead letters in {output}")


def origin(letter: "MessageExt") -> str:
    """Return the topic that a dead letter was first sent to."""
    from remoting.properties import PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_RETRY_TOPIC

    properties = letter.properties
    return properties.get(PROPERTY_DLQ_ORIGIN_TOPIC) or properties.get(PROPERTY_RETRY_TOPIC) or letter.topic


def _exported(letter: "MessageExt") -> dict[str, Any]:
    body = base64.b64encode(letter.body).decode("ascii")
    return {**described(letter), "origin": origin(letter), "body_base64": body}


async def _letters(admin: "AdminClient", group: str, ids: list[str], since_ms: int, limit: int) -> "list[MessageExt]":
    """Return a group's oldest dead letters, or those of the ids; ends the command for an id that is none."""
    if not ids:
        letters = await admin.dead_letters(group, most=limit + 1, begin_ms=since_ms)
        if len(letters) > limit:
            rest = f"`--since {time_of(letters[limit].store_timestamp)}` has the next, `--limit` more at once"
            typer.echo(f"raftmq: these are the {limit} oldest: {rest}", err=True)
        return letters[:limit]
    letters = await admin.find_dead_letters(group, ids)
    known = {letter.msg_id for letter in letters} | {letter.offset_msg_id for letter in letters}
    if strange := [each for each in ids if each not in known]:
        fail(f"the group {group} has no dead letter {strange[0]}: `raftmq group dead-letters show {group}` shows them")
    return letters
