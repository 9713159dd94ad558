"""`raftmq inspect DIR`: what a store folder holds, read offline and without changing a byte."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import Json
from raftmq.cli.output import FAILED, fail, one_line_errors, print_json, print_json_line, print_table, text_of, time_of

if TYPE_CHECKING:
    from store.recovery.inspect import Check, StoreFolder

SEGMENT_COLUMNS = ("commit log", "size", "records", "ends at", "first stored", "last stored", "gaps")
QUEUE_COLUMNS = ("topic", "queue", "files", "min offset", "max offset", "from position", "to position")
INDEX_COLUMNS = ("index file", "size", "entries", "slots used", "from", "to")


def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A broker's storePathRootDir.")],
    messages: Annotated[bool, typer.Option("--messages", help="Print the messages instead of the overview.")] = False,
    start: Annotated[int, typer.Option("--from", min=0, metavar="POSITION", help="First position of --messages.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many of --messages.")] = 100,
    check: Annotated[bool, typer.Option("--check", help="Compare every queue with the log; 1 if they differ.")] = False,
    log_folder: Annotated[
        Path | None, typer.Option("--commit-log", metavar="D", help="storePathCommitLog, where it is not below DIR.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a store folder offline: segments, queues, index files, checkpoint, messages."""
    from store.errors import StoreError
    from store.recovery.inspect import StoreFolder

    with one_line_errors():
        try:
            store = StoreFolder(folder, log_folder=log_folder)
            if check:
                _report(store.check_queues(), as_json)
            elif messages:
                _print_messages(itertools.islice(_messages(store, start), limit), as_json)
            elif as_json:
                print_json(_overview(store))
            else:
                _print_overview(store)
        except StoreError as error:
            fail(str(error))


def _overview(store: "StoreFolder") -> dict[str, Any]:
    checkpoint = asdict(store.checkpoint())
    del checkpoint["replication"]
    return {
        "folder": str(store.root),
        "unclean": store.unclean,
        "checkpoint": checkpoint,
        "segments": [asdict(segment) for segment in store.segments()],
        "queues": [asdict(queue) for queue in store.queues()],
        "index_files": [asdict(index) for index in store.index_files()],
        "config": store.config(),
    }


def _print_overview(store: "StoreFolder") -> None:
    state = "in use, or not closed in good order" if store.unclean else "closed in good order"
    typer.echo(f"{store.root}: {state}\n")
    segments = store.segments()
    rows = [
        (s.name, s.size, s.records, s.end, time_of(s.first_timestamp), time_of(s.last_timestamp), len(s.gaps))
        for s in segments
    ]
    print_table(SEGMENT_COLUMNS, rows, empty="no commit log")
    for segment in segments:
        for gap in segment.gaps:
            typer.echo(f"gap in {segment.name} at {gap.start} to {gap.end}: {gap.reason}")
    queues = [
        (q.topic, q.queue_id, q.files, q.min_offset, q.max_offset, q.first_physical, q.end_physical)
        for q in store.queues()
    ]
    typer.echo("")
    print_table(QUEUE_COLUMNS, queues, empty="no queues")
    indexes = [
        (i.name, i.size, i.entries, i.slots_used, time_of(i.begin_timestamp), time_of(i.end_timestamp))
        for i in store.index_files()
    ]
    typer.echo("")
    print_table(INDEX_COLUMNS, indexes, empty="no index files")
    checkpoint = store.checkpoint()
    typer.echo(
        f"\ncheckpoint: log {time_of(checkpoint.log_timestamp)}, queues {time_of(checkpoint.queue_timestamp)}, "
        f"index {time_of(checkpoint.index_timestamp)}, dispatched {checkpoint.dispatched}, flushed {checkpoint.flushed}"
    )
    typer.echo("config: " + (", ".join(store.config()) or "none"))


def _messages(store: "StoreFolder", start: int) -> Iterator[dict[str, Any]]:
    from raftmq.cli.talk import described
    from store.recovery.inspect import Gap

    for found in store.messages(start):
        yield {"gap": asdict(found)} if isinstance(found, Gap) else described(found)


def _print_messages(messages: Iterator[dict[str, Any]], as_json: bool) -> None:
    for message in messages:
        if as_json:
            print_json_line(message)
        elif "gap" in message:
            typer.echo("gap at {start} to {end}: {reason}".format(**message["gap"]))
        else:
            where = f"{message['physical_offset']} {message['topic']}:{message['queue']}@{message['offset']}"
            typer.echo(f"{message['stored']} {where} {text_of(message['body'].encode())}")


def _report(found: "Check", as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
    else:
        typer.echo(
            f"{found.records} records in {found.queues} queues: {found.wrong} differences between log and queues"
        )
        for problem in found.problems:
            typer.echo(f"  {problem}")
    if found.wrong:
        raise typer.Exit(FAILED)
