"""`raftmq pipeline`: jobs over topics and logs in Spark, on this machine or under spark-submit (raftmq/submit.py)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv, TopicArgument
from raftmq.cli.output import FAILED, fail, print_json, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(no_args_is_help=True, help="Jobs over topics and logs in Spark: audit, reconcile, archive, …")

Since = Annotated[
    str, typer.Option("--from", metavar="TIME", help="Stored at or after: ms, or 2026-11-22T10:00 (UTC).")
]
Until = Annotated[str, typer.Option("--to", metavar="TIME", help="Stored before; by default all there is now.")]
Cores = Annotated[int | None, typer.Option("--cores", min=1, help="Cores of this machine; all by default.")]
Memory = Annotated[int, typer.Option("--memory", min=512, metavar="MIB", help="Memory of Spark's JVM.")]
DIFFERENT = 1
# Of commands whose 1 is an answer: what was asked for could not be done.
NOT_DONE = 254


@app.command()
def audit(
    topic: TopicArgument,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    since: Since = "",
    until: Until = "",
    cores: Cores = None,
    memory: Memory = 2048,
    as_json: Json = False,
) -> None:
    """Tell what is in a topic: counts, rates, sizes, skew of keys, gaps in offsets, duplicates."""
    from pipeline.spark.jobs.audit import Window
    from pipeline.spark.jobs.audit import audit as job

    window = Window(namesrv, topic, parse_moment(since, "--from"), parse_moment(until, "--to"))
    report = _run("audit", cores, memory, lambda spark: job(spark, window))
    if as_json:
        print_json(report)
        return
    rates = report["rates"]
    _facts(
        {
            "messages": report["messages"], "bytes": report["bytes"], "bytes a message": report["bytes_mean"],
            "missing offsets": report["gaps"], "duplicates": report["duplicates"],
            "messages a second": rates["per_second"], "in the busiest second": rates["per_second_most"],
        }
    )  # fmt: skip
    columns = ("broker", "queue", "messages", "first", "last", "gaps", "bytes", "largest", "from", "to")
    names = ("brokerName", "queueId", "messages", "first", "last", "gaps", "bytes", "largest", "from", "to")
    print_table(columns, [[_shown(queue[name]) for name in names] for queue in report["queues"]])
    for title, name in (("key", "keys"), ("tag", "tags")):
        if report[name]:
            typer.echo("")
            rows = [(one["value"], one["messages"], f"{one['share']:.1%}") for one in report[name]]
            print_table((title, "messages", "share"), rows)


@app.command()
def reconcile(
    topic: TopicArgument,
    ledger: Annotated[str, typer.Option("--ledger", metavar="PATH", help="Parquet files of what was sent.")] = "",
    jdbc: Annotated[str, typer.Option("--jdbc", metavar="URL", help="A database with such a table, instead.")] = "",
    table: Annotated[str, typer.Option("--table", help="The table, with --jdbc.")] = "",
    key: Annotated[str, typer.Option("--key", help="The ledger's column with the key of a message.")] = "key",
    by: Annotated[str, typer.Option("--by", help="What that is in the topic: keys or msgId.")] = "keys",
    out: Annotated[str, typer.Option("--out", metavar="PATH", help="Where all differences go, as Parquet.")] = "",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    since: Since = "",
    until: Until = "",
    cores: Cores = None,
    memory: Memory = 2048,
    as_json: Json = False,
) -> None:
    """Compare what a producer wrote down as sent with what the topic holds.

    Exit codes: 0 equal, 1 they differ, 2 wrong command line, 254 it could not be done.
    """
    from pipeline.spark.jobs.audit import Window
    from pipeline.spark.jobs.reconcile import BadLedger, Ledger
    from pipeline.spark.jobs.reconcile import reconcile as job

    if by not in {"keys", "msgId"}:
        raise typer.BadParameter("it is keys or msgId", param_hint="--by")
    window = Window(namesrv, topic, parse_moment(since, "--from"), parse_moment(until, "--to"))
    told = Ledger(ledger, jdbc, table, key, by=by)
    try:
        report = _run("reconcile", cores, memory, lambda spark: job(spark, told, window, out), NOT_DONE)
    except BadLedger as error:
        fail(str(error), NOT_DONE)
    if as_json:
        print_json(report)
    else:
        names = ("ledger", "messages", "missing", "unexpected", "repeated", "different")
        _facts({name: report[name] for name in names})
        rows = [(one["what"], one["key"], one["rows"], one["times"], one["place"]) for one in report["examples"]]
        if rows:
            print_table(("what", "key", "in the ledger", "in the topic", "first at"), rows)
    raise typer.Exit(0 if report["equal"] else DIFFERENT)


@app.command()
def archive(
    topic: TopicArgument,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the Parquet files are; any path of Spark's.")],
    step: Annotated[int, typer.Option("--step", min=1, help="Messages that are written at a time.")] = 2_000_000,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cores: Cores = None,
    memory: Memory = 2048,
    as_json: Json = False,
) -> None:
    """Append a topic's new messages to Parquet files by date; run again, it goes on where it ended."""
    from pipeline.spark.jobs.archive import archive as job

    report = _run("archive", cores, memory, lambda spark: job(spark, namesrv, topic, folder, step=step))
    _say(report, as_json, f"{report['messages']:,} messages of {topic} archived in {folder}")


@app.command()
def restore(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An archive.")],
    topic: TopicArgument,
    since: Annotated[str, typer.Option("--from", metavar="DATE", help="The first date, 2026-11-22.")] = "0001-01-01",
    until: Annotated[str, typer.Option("--to", metavar="DATE", help="The last date.")] = "9999-12-31",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    cores: Cores = None,
    memory: Memory = 2048,
    as_json: Json = False,
) -> None:
    """Send an archive's messages to a topic, at least once each."""
    from pipeline.spark.jobs.archive import restore as job

    dates = (since, until)
    report = _run("restore", cores, memory, lambda spark: job(spark, namesrv, topic, folder, dates=dates))
    _say(report, as_json, f"{report['messages']:,} messages of {folder} sent to {topic}")


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Store folders of a group's members.")],
    names: Annotated[str, typer.Option("--names", help="What the members are called, by commas.")] = "",
    cores: Cores = None,
    memory: Memory = 2048,
    as_json: Json = False,
) -> None:
    """Compare the logs of a group's members, also while it serves.

    Exit codes: 0 equal, 1 they differ, 2 wrong command line, 254 it could not be done.
    """
    from pipeline.spark.jobs.compare import compare as job

    called = [name.strip() for name in names.split(",") if name.strip()] or [_name(folder) for folder in folders]
    if len(called) != len(folders) or len(set(called)) < len(called):
        raise typer.BadParameter("a name for each folder, all different", param_hint="--names")
    wrong = [str(folder) for folder in folders if not (folder / "commitlog").is_dir()]
    if wrong:
        fail(f"{', '.join(wrong)}: no store folder, it has no commitlog", NOT_DONE)
    given = {name: str(folder) for name, folder in zip(called, folders, strict=True)}
    report = _run("compare", cores, memory, lambda spark: job(spark, given), NOT_DONE)
    if as_json:
        print_json(report)
    else:
        columns = ("member", "messages", "last", "term", "committed", "end", "torn")
        print_table(columns, [[_shown(state[name]) for name in columns] for state in report["members"]])
        for one in report["first"]:
            typer.echo(f"at {one['at']}: {one['members']}")
        typer.echo(f"{report['differences']:,} differences")
    raise typer.Exit(DIFFERENT if report["differences"] else 0)


def parse_moment(text: str, option: str) -> int | None:
    """Return the ms of a time, None for no text; raises BadParameter."""
    if not text:
        return None
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time: write ms, or 2026-11-22T10:00", param_hint=option) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _name(folder: Path) -> str:
    # A broker's folder is called after it; its store is often just "store".
    return folder.resolve().parent.name if folder.name == "store" else folder.name


def _run(
    name: str,
    cores: int | None,
    memory: int,
    job: "Callable[[SparkSession], dict[str, Any]]",
    failing: int = FAILED,
) -> dict[str, Any]:
    """Run a job in a session of its own, its progress on standard error; errors end in one line, with `failing`."""
    from pipeline.judge import why_no_spark

    why = why_no_spark()
    if why:
        fail(why, failing)
    from pyspark.errors import PySparkException

    from pipeline.spark.session import spark_session
    from pipeline.spark.topic.options import OptionError

    spark = spark_session(f"raftmq {name}", cores=cores, memory_mb=memory)
    try:
        with _progress(spark, name):
            return job(spark)
    except (PySparkException, OptionError) as error:
        fail(_words(error), failing)
    finally:
        spark.stop()


def _words(error: Exception) -> str:
    """Return the last line of an error that says something: what Spark wraps around it is of no help."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith(("\tat", "  at"))]
    told = [line for line in lines if "Error: " in line or "Lost: " in line or "Exception: " in line]
    return (told or lines or [type(error).__name__])[-1]


@contextmanager
def _progress(spark: "SparkSession", name: str) -> Iterator[None]:
    """Show how many of Spark's tasks are done, at a terminal."""
    import threading

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = threading.Event()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(name, total=None)

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(0.5):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                known = [stage for stage in stages if stage is not None]
                if known:
                    ended, total = (
                        sum(getattr(one, kind) for one in known) for kind in ("numCompletedTasks", "numTasks")
                    )
                    bars.update(task, description=f"{name}: {known[0].name}", completed=ended, total=total)

        watcher = threading.Thread(target=watch, name="raftmq-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _say(report: Mapping[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print_json(report)
    else:
        typer.echo(text)


def _facts(facts: Mapping[str, Any]) -> None:
    print_table(("", ""), [(name, _shown(value)) for name, value in facts.items()])
    typer.echo("")


def _shown(value: Any) -> Any:
    return value.isoformat(" ", "milliseconds") if isinstance(value, datetime) else value
