"""`raftmq bench`: raw frames (`send`, `pull`, `suite`, `raft`, `replication`), the client (`consume`), Raft groups."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_backlog import backlog
from raftmq.cli.bench_batches import batches
from raftmq.cli.bench_fairness import fairness
from raftmq.cli.bench_growth import growth, plot
from raftmq.cli.bench_guard import guard
from raftmq.cli.bench_latency import latency
from raftmq.cli.bench_orderly import orderly
from raftmq.cli.bench_peers import peers
from raftmq.cli.bench_readers import readers
from raftmq.cli.bench_rebalance import rebalance
from raftmq.cli.bench_running import Folder, measured, seconds_option
from raftmq.cli.bench_security import security
from raftmq.cli.options import DEFAULT_NAMESRV, Json, Namesrv, in_utf8
from raftmq.cli.output import fail, print_json, print_json_line, print_table, run

if TYPE_CHECKING:
    from raftmq.bench.load import Result

app = typer.Typer(no_args_is_help=True)
app.command()(backlog)
app.command()(batches)
app.command()(fairness)
app.command()(guard)
app.command()(growth)
app.command()(latency)
app.command()(orderly)
app.command()(plot)
app.command()(peers)
app.command()(readers)
app.command()(rebalance)
app.command()(security)


@app.callback()
def bench() -> None:
    """Load generators that print their figures."""
    # What is measured is RaftMQ, whatever else is installed beside it.
    os.environ.setdefault("OTEL_SDK_DISABLED", "true")


def _checked(address: str) -> str:
    """Return the broker's address; ends the command when it can be none."""
    from remoting.address import parse_address

    try:
        parse_address(address)
    except ValueError as error:
        fail(f"-a: {error}", code=2)
    return address


Address = Annotated[
    str,
    typer.Option("--address", "-a", metavar="ADDR", callback=_checked, help="The broker to load, host:port."),
]
Spawn = Annotated[bool, typer.Option("--spawn", help="Start a broker of its own in a temporary folder and load that.")]
Flush = Annotated[str, typer.Option("--flush", help="flushDiskType of the spawned broker: async or sync.")]
InFlight = Annotated[int, typer.Option("--in-flight", "-w", min=1, max=65535, help="Requests in flight a connection.")]
Connections = Annotated[int, typer.Option("--connections", min=1, max=1024)]
Size = Annotated[int, typer.Option("--size", "-s", min=1, max=4 * 1024 * 1024, help="Bytes of a body.")]
Seconds = Annotated[float, seconds_option("Measured time, after half a second of warm-up.")]
TopicName = Annotated[str, typer.Option("--topic", "-t", callback=in_utf8, help="Topic; created by the first send.")]
Messages = Annotated[int, typer.Option("--messages", "-m", min=1, max=100_000_000)]

COLUMNS = ("what", "conns", "in flight", "bytes", "msgs/s", "p50 ms", "p99 ms", "max ms", "server µs/msg", "errors")


@app.command()
def send(
    in_flight: InFlight = 64,
    size: Size = 100,
    seconds: Seconds = 5.0,
    connections: Connections = 1,
    address: Address = "127.0.0.1:10911",
    spawn: Spawn = False,
    flush: Flush = "async",
    topic: TopicName = "",
    as_json: Json = False,
) -> None:
    """Measure sends: raw frames, a constant number in flight on each connection."""
    from raftmq.bench.suite import send_load

    async def work() -> "Result":
        async with _target(address, spawn, flush) as (where, cpu):
            return await send_load(
                where,
                in_flight=in_flight,
                size=size,
                seconds=seconds,
                connections=connections,
                topic=topic,
                cpu_seconds=cpu,
            )

    _show([measured(work)], as_json)


@app.command()
def pull(
    in_flight: InFlight = 16,
    size: Size = 100,
    seconds: Seconds = 5.0,
    count: Annotated[int, typer.Option("--count", min=1, max=1024, help="Messages asked for at a time.")] = 32,
    connections: Connections = 1,
    address: Address = "127.0.0.1:10911",
    spawn: Spawn = False,
    topic: TopicName = "",
    as_json: Json = False,
) -> None:
    """Fill a topic for two seconds, then measure pulls from its start: raw frames, records counted but not decoded."""
    from raftmq.bench.suite import pull_load

    async def work() -> "Result":
        async with _target(address, spawn, "async") as (where, cpu):
            return await pull_load(
                where,
                in_flight=in_flight,
                size=size,
                seconds=seconds,
                count=count,
                connections=connections,
                topic=topic,
                cpu_seconds=cpu,
            )

    _show([measured(work)], as_json)


@app.command()
def consume(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    messages: Messages = 50_000,
    size: Size = 100,
    topic: TopicName = "bench_consume",
    timeout: Annotated[float, typer.Option(help="Seconds after which it gives up.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Send messages, then measure how fast RaftMQ's own push consumer takes them."""
    from raftmq.bench.endtoend import consume_load

    async def work() -> "Result":
        return await consume_load(namesrv, topic=topic, messages=messages, size=size, timeout_s=timeout)

    _show([measured(work)], as_json)


@app.command("at-rest")
def at_rest(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    messages: Messages = 1_000,
    size: Size = 100,
    topic: TopicName = "bench_latency",
    as_json: Json = False,
) -> None:
    """Send one message at a time to a cluster that runs: time to its acknowledgement, and to its arrival at a consumer.

    The consumer is RaftMQ's own push consumer; how long a message takes under load: `raftmq bench latency`.
    """
    from raftmq.bench.endtoend import latency_load

    _show(run(lambda: latency_load(namesrv, topic=topic, messages=messages, size=size)), as_json)


@app.command()
def suite(
    seconds: Annotated[float, seconds_option("Measured time of each figure.")] = 3.0,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure the matrix of docs/performance.md: sends by flush type, size and requests in flight, and pulls of 32."""
    from raftmq.bench.suite import run_suite

    _show_matrix("flush", run_suite(seconds, folder), as_json)


@app.command()
def raft(
    seconds: Annotated[float, seconds_option("Measured time of each figure.")] = 3.0,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure sends side by side: a single broker and a Raft group of three, each with and without fsync."""
    from raftmq.bench.group import RAFT_MODES, run_matrix

    _show_matrix("mode", run_matrix(RAFT_MODES, seconds, folder), as_json)


@app.command()
def replication(
    seconds: Annotated[float, seconds_option("Measured time of each figure.")] = 3.0,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure sends by the way to replicate: single, async and sync master with a slave, Raft group of three."""
    from raftmq.bench.group import REPLICATION_MODES, run_matrix

    _show_matrix("mode", run_matrix(REPLICATION_MODES, seconds, folder), as_json)


@app.command()
def failover(
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000)] = 20,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure a Raft group's failover (kill -9 to the first acknowledged send) and its start on empty folders."""
    from raftmq.bench.group import cold_start
    from raftmq.bench.group import failover as failover_rounds

    found = [
        measured(lambda: failover_rounds(rounds, folder)),
        measured(lambda: cold_start(max(1, rounds // 4), folder)),
    ]
    if as_json:
        print_json([one.as_dict() for one in found])
        return
    print_table(("what", "rounds", "p50 s", "max s"), [(one.what, one.rounds, one.p50_s, one.max_s) for one in found])


@app.command()
def recovery(
    restart_mib: Annotated[int, typer.Option("--restart-mib", min=64, help="Log of the restarted member.")] = 2048,
    behind_mib: Annotated[int, typer.Option("--behind-mib", min=64, help="What the follower missed.")] = 1024,
    lost_file: Annotated[
        bool, typer.Option("--lost-file", help="Instead: a follower's CommitLog file is lost, and repaired under load.")
    ] = False,
    file_mib: Annotated[int, typer.Option("--file-mib", min=1, max=1024, help="Of a lost file.")] = 1024,
    size: Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of a message of the load.")] = 1024,
    fill_size: Annotated[
        int, typer.Option("--fill-size", min=1, help="Of those that the files are filled with.")
    ] = 4096,
    fill_in_flight: Annotated[
        int, typer.Option("--fill-in-flight", min=1, help="And how many of them at once: 1 makes entries of one each.")
    ] = 64,
    load_in_flight: Annotated[
        int,
        typer.Option("--load-in-flight", min=0, max=1024, help="Sends of the load at once; 0: a repair without load."),
    ] = 16,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure the restart of a Raft member with a long log and the catch-up of one that fell behind, or a repair."""
    from raftmq.bench.group import recovery as recovery_figures
    from raftmq.bench.lostfile import lost_file as lost_file_figures

    if lost_file:
        found = measured(lambda: lost_file_figures(file_mib, size, fill_size, fill_in_flight, load_in_flight, folder))
    else:
        found = measured(lambda: recovery_figures(restart_mib, behind_mib, folder))
    if as_json:
        print_json(found)
    else:
        print_table(("what", "value"), list(found.items()))


@app.command()
def memory(
    gib: Annotated[int, typer.Option("--gib", min=1, max=100, help="How much is appended.")] = 10,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure the memory of a Raft group's members while much is appended; mapped files are not counted."""
    from raftmq.bench.group import memory as memory_figures

    found = measured(lambda: memory_figures(gib, folder))
    if as_json:
        print_json(found)
    else:
        print_table(tuple(found[0]), [tuple(row.values()) for row in found])


@app.command()
def pipeline(
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=10_000, help="Acknowledged sends of the larger run.")
    ] = 10_000_000,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Measure this alone: topic, log or checker; may be repeated.")
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure Spark: log source and checker on a run and on one of a tenth of its size, and the topic source."""
    from pipeline.judge import why_no_spark

    why = why_no_spark()
    if why:
        fail(why)
    from raftmq.bench.pipeline import BenchPart, run_pipeline

    try:
        parts = [BenchPart(name) for name in only or list(BenchPart)]
    except ValueError:
        fail(f"--only takes {', '.join(BenchPart)}")
    found = []
    for row in run_pipeline(messages, parts, folder, lambda what: typer.echo(what, err=True)):
        found.append(row)
        # A run takes an hour: what it has found stays if it is ended.
        typer.echo(", ".join(f"{name} {value}" for name, value in row.items()), err=True)
    if as_json:
        print_json(found)
        return
    columns = (
        "what",
        "messages",
        "seconds",
        "per_second",
        "mb_per_second",
        "verdict",
        "jvm_peak_mib",
        "driver_peak_mib",
    )
    print_table(columns, [tuple(row.get(name, "") for name in columns) for row in found])


@app.command()
def registration(
    topics: Annotated[int, typer.Option("--topics", min=1, max=1_000_000)] = 100_000,
    as_json: Json = False,
) -> None:
    """Measure what a broker of many topics costs a NameServer: registrations over the wire, to one started for it."""
    from raftmq.bench.registration import registration_load

    results = measured(lambda: registration_load(topics))
    if as_json:
        print_json([result.as_dict() for result in results])
        return
    columns = ("what", "topics", "body bytes", "took ms", "server CPU ms", "server memory MB")
    print_table(columns, [tuple(result.as_dict().values()) for result in results])


@asynccontextmanager
async def _target(address: str, spawn: bool, flush: str) -> AsyncIterator[tuple[str, Callable[[], float] | None]]:
    """Give the broker to load, and how to learn its processor time (only of one that was started here)."""
    if not spawn:
        yield address, None
        return
    if flush not in {"async", "sync"}:
        fail(f"--flush {flush}: it takes async or sync", code=2)
    from raftmq.bench.suite import spawned_broker

    with spawned_broker("sync" if flush == "sync" else "async") as broker:
        yield broker.address, broker.cpu_seconds


def _show_matrix(first: str, results: AsyncGenerator[tuple[str, "Result"]], as_json: bool) -> None:
    """Show figures, told one by one while they are measured; `first` names what each begins with."""
    figures: list[dict[str, object]] = []
    rows: list[tuple[object, ...]] = []

    async def work() -> None:
        async with aclosing(results):
            async for name, result in results:
                figures.append({first: name, **result.as_dict()})
                rows.append((name, *_row(result)))
                if not as_json:
                    text = f"{name}, {result.what}, {result.in_flight} in flight, {result.body_bytes} B …"
                    typer.echo(text)

    measured(work)
    if as_json:
        print_json(figures)
    else:
        print_table((first, *COLUMNS), rows)


def _show(results: Sequence["Result"], as_json: bool) -> None:
    if not as_json:
        print_table(COLUMNS, [_row(result) for result in results])
        return
    for result in results:
        print_json_line(result.as_dict())


def _row(result: "Result") -> tuple[object, ...]:
    return (
        result.what,
        result.connections,
        result.in_flight,
        result.body_bytes,
        result.messages_per_s,
        result.p50_ms,
        result.p99_ms,
        result.max_ms,
        result.server_cpu_us_per_message,
        ", ".join(f"{count} x code {code}" for code, count in result.errors.items()) or None,
    )
