"""`raftmq chaos pop`: consumers that pop and are killed while they hold messages, and the verdict on what they saw."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.chaos_apps import SEED_MAX, folder_of, make_run
from raftmq.cli.options import Json
from raftmq.cli.output import print_json, print_table

if TYPE_CHECKING:
    from pipeline.history.results import Results

MESSAGES, RATE = 100_000, 400.0
# A history is judged in memory: some 2 KiB a message.
MESSAGES_MAX = 5_000_000


def pop(
    messages: Annotated[
        int, typer.Option("--messages", min=1, max=MESSAGES_MAX, help="How many are sent, and must be acknowledged.")
    ] = MESSAGES,
    rate: Annotated[
        float, typer.Option("--rate", min=1, help="Sends per second; faults come as long as there are sends.")
    ] = RATE,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=SEED_MAX, help="What happens comes from it.")] = None,
    folder: Annotated[Path | None, typer.Option("--dir", help="Where the run's files go; kept.")] = None,
    again: Annotated[
        bool, typer.Option("--judge-again", help="Make no run: judge the one that is in --dir already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pop messages from a Raft group, kill consumers that hold some, break the leader, and judge what came to whom.

    Exit codes: 0 valid, 1 invalid, 254 unknown (evidence is missing) or a wrong command line, 255 it broke down itself.
    """
    from chaos.apps.judge import EXIT_CODES
    from chaos.pop.driver import pop_torture
    from chaos.pop.plan import PLAN, make_pop_plan
    from chaos.pop.verdict import judge_pop_folder

    drawn, into = folder_of(folder, "pop", seed, again=again)
    if not again:
        make_run(into, lambda say: pop_torture(make_pop_plan(drawn, messages, rate), into, say))
    elif not (into / PLAN).exists():
        raise typer.BadParameter(f"{into} holds no run of POP", param_hint="--dir")
    try:
        results = judge_pop_folder(into)
    except (KeyError, TypeError, ValueError) as error:
        raise typer.BadParameter(f"{into} holds no run of POP: {error}", param_hint="--dir") from error
    if as_json:
        print_json(results.as_dict() | {"folder": str(into)})
    else:
        _tell(results, into)
    raise typer.Exit(EXIT_CODES[results.verdict])


def _tell(results: "Results", folder: Path) -> None:
    """Print what was found: a line for each check, and how often what came again."""
    figures = results.figures
    print_table(
        ("check", "verdict", "found", "what"),
        [(f"{one.check} {one.title}", str(one.verdict), one.count, one.text) for one in results.findings],
    )
    for one in results.findings:
        for witness in one.witnesses[:3]:
            typer.echo(f"  {one.check}: {witness}")
    typer.echo("")
    print_table(("came again, for it was", "times"), list(figures["again"].items()), empty="nothing came again")
    late = ", ".join(f"{name} {late_ms:,} ms" for name, late_ms in figures["late_ms"].items()) or "never"
    happened = ", ".join(f"{kind} {count}" for kind, count in figures["happened"].items()) or "nothing happened"
    typer.echo(f"\nagain after its time: {late}\n{happened}; {figures['terms']} terms")
    counts = ", ".join(f"{count:,} {fate}" for fate, count in sorted(figures["messages"].items())) or "none"
    settled = ", ".join(f"{count:,} {what}" for what, count in sorted(figures["settled"].items())) or "none"
    typer.echo(
        f"{results.verdict.upper()} (seed {figures['seed']}): messages {counts}; "
        f"{figures['popped']:,} popped; answered {settled}\nfiles: {folder}"
    )
