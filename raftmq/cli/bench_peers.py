"""`raftmq bench peers`: other brokers and ours, loaded by one client, by turns."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.bench_running import Folder, finite, measured, seconds_option
from raftmq.cli.options import Json
from raftmq.cli.output import fail, print_json_line, print_table

if TYPE_CHECKING:
    from raftmq.bench.peers.rounds import PeerRound
    from raftmq.bench.peers.summary import PeerRow

COLUMNS = (
    "system", "acknowledged when", "in flight", "bytes", "msgs/s", "p50 ms", "p99 ms", "CPU µs/msg", "load busy",
    "others busy",
)  # fmt: skip
IN_FLIGHT_MAX = 65_535
BYTES_MAX = 1024 * 1024  # what NATS takes at most
WINDOW_BYTES_MAX = 512 * 1024 * 1024
# What pulls are measured of, unless told otherwise; and what a broker gives at once, at most.
SINGLES = "raftmq-single,rocketmq-single"
PULL_BYTES_MAX = 256 * 1024


def peers(
    systems: Annotated[
        str, typer.Option("--systems", help="Names with commas, the first is compared with; by default all found here.")
    ] = "",
    in_flight: Annotated[
        str, typer.Option("--in-flight", "-w", help="Sends in flight on the one connection: numbers with commas.")
    ] = "1,64,512",
    size: Annotated[int, typer.Option("--size", "-s", min=1, max=BYTES_MAX, help="Bytes of a body.")] = 100,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="How often each is measured.")] = 3,
    seconds: Annotated[float, seconds_option("Measured time of each figure.", 600)] = 2.0,
    warm_up: Annotated[
        float,
        typer.Option(
            "--warm-up", min=0, max=600, callback=finite, help="Seconds of load after each start of what is Java."
        ),
    ] = 25.0,
    together: Annotated[
        bool, typer.Option("--together", help="All are up at once: sooner over, but idle ones take processor time.")
    ] = False,
    pulls: Annotated[
        bool, typer.Option("--pulls", help="Pulls of 32 messages in place of sends, of RaftMQ and RocketMQ.")
    ] = False,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure other brokers and ours side by side: one client in C, one connection, every answer checked, by turns.

    Systems: raftmq-raft, raftmq-raft-nofsync, raftmq-sync, raftmq-single; the real RocketMQ: rocketmq-dledger,
    rocketmq-sync, rocketmq-single (Java and Maven, which brings it); nats-r3 (nats-server); rabbitmq-quorum
    (rabbitmq-server). In each round each is started on loopback, loaded and ended. The first one is measured twice a
    round, which tells how much is chance. A measurement with an answer that is an error does not count, and the command
    then ends with 1. All nine systems take some fifteen minutes. With --pulls each is filled first, and the first
    160,000 messages are pulled again and again; by default of raftmq-single and rocketmq-single.
    """
    from raftmq.bench.peers.rounds import PeersLoad, run_peers

    numbers = _numbers(in_flight, size)
    chosen = _chosen(systems, SINGLES if pulls else "")
    if pulls:
        _check_pulled(chosen, size, max(numbers))
    load = PeersLoad(chosen, numbers, size, rounds, seconds, warm_up, together, pulls)
    found: list[PeerRound] = []

    async def work() -> None:
        async with aclosing(run_peers(load, lambda text: typer.echo(text, err=True), folder)) as all_:
            async for one in all_:
                found.append(one)
                if as_json:
                    print_json_line(one.as_dict())
                else:
                    typer.echo(_told(one))

    try:
        measured(work)
    finally:
        # What was measured before Ctrl-C, or a failure, took a while too.
        if not as_json:
            _show(found)
    if bad := [one for one in found if one.failed is not None]:
        fail(f"{len(bad)} of {len(found)} measurements do not count, the first of {bad[0].system}: {bad[0].failed}")


def _chosen(text: str, usual: str) -> list[str]:
    """Return the systems to measure, by default the `usual` ones, or all.

    Ends the command for a name that is none, or one that cannot run here.
    """
    from raftmq.bench.peers.systems import SYSTEMS, lacking

    named = _listed(text)
    if wrong := [name for name in named if name not in SYSTEMS]:
        fail(f"--systems {wrong[0]}: there is no such system; it takes {', '.join(SYSTEMS)}", code=2)
    wanted = named or _listed(usual) or list(SYSTEMS)
    if any(SYSTEMS[name].family == "RocketMQ" for name in wanted):
        typer.echo("RocketMQ is looked for; the first time Maven brings it, which takes minutes …", err=True)
    why = lacking(wanted)
    if named and why:
        fail(f"{next(iter(why))} cannot be measured here: {next(iter(why.values()))}")
    for name, reason in why.items():
        typer.echo(f"{name} is left out: {reason}", err=True)
    return [name for name in wanted if name not in why]


def _check_pulled(systems: Sequence[str], size: int, window: int) -> None:
    """End the command where nothing can be pulled, or not 32 messages at once."""
    from raftmq.bench.peers.rounds import RECORD_BYTES
    from raftmq.bench.peers.systems import SYSTEMS
    from raftmq.bench.suite import PULL_COUNT

    if other := [name for name in systems if SYSTEMS[name].family not in {"RaftMQ", "RocketMQ"}]:
        fail(f"--pulls: {other[0]} does not speak RocketMQ's protocol; leave it out of --systems", code=2)
    most = PULL_BYTES_MAX // PULL_COUNT - RECORD_BYTES
    if size > most:
        fail(f"--pulls with --size {size}: a broker gives no 32 of more than {most} bytes at once", code=2)
    if window * PULL_COUNT * size > WINDOW_BYTES_MAX:
        fail(f"--in-flight times 32 times --size is above {WINDOW_BYTES_MAX >> 20} MiB", code=2)


def _numbers(text: str, size: int) -> list[int]:
    """Return how many are to be in flight; ends the command for what is no number of them."""
    try:
        numbers = [int(word) for word in _listed(text)]
    except ValueError:
        numbers = []
    if not numbers or not all(1 <= number <= IN_FLIGHT_MAX for number in numbers):
        fail(f"--in-flight {text}: it takes numbers from 1 to {IN_FLIGHT_MAX} with commas between them", code=2)
    if max(numbers) * size > WINDOW_BYTES_MAX:
        fail(f"--in-flight times --size is above {WINDOW_BYTES_MAX >> 20} MiB, which is in memory at once", code=2)
    return numbers


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _name(one: "PeerRound | PeerRow") -> str:
    return f"{one.system} again" if one.again else one.system


def _told(one: "PeerRound") -> str:
    what = f"round {one.round + 1}, {one.in_flight} in flight, {_name(one)}"
    return (
        f"{what} does not count: {one.failed}" if one.failed is not None else f"{what}: {one.messages_per_s:,} msgs/s …"
    )


def _show(found: "Sequence[PeerRound]") -> None:
    from raftmq.bench.peers.summary import peer_noise, peer_rows

    rows = peer_rows(found)
    if not rows:
        return
    first = rows[0].system
    print_table(
        (*COLUMNS, f"{first} brings"),
        [
            (
                _name(row), row.promise, row.in_flight, row.body_bytes, row.messages_per_s, row.p50_ms, row.p99_ms,
                row.cpu_us_per_message, f"{row.client_busy:.0%}", f"{row.others_busy:.0%}",
                None if row.first_times is None else f"{row.first_times:g} x",
            )
            if row.rounds
            else (_name(row), row.promise, row.in_flight, row.body_bytes, "failed", *[None] * 6)
            for row in rows
        ],
    )  # fmt: skip
    for noise in peer_noise(found):
        typer.echo(
            f"{noise.system} against itself, {noise.in_flight} in flight: {noise.ratio:g} times"
            f" ({noise.lowest:g} to {noise.highest:g}); what differs by no more is chance."
        )
