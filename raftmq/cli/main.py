"""The command `raftmq`: puts the themes together."""

import logging

import typer

from raftmq.cli import bench, chaos, cluster, group, inspect, message, pipeline, servers, talk, topic
from raftmq.cli.demo import demo
from raftmq.cli.verify import verify

app = typer.Typer(
    name="raftmq",
    help="RaftMQ: a message broker that speaks RocketMQ's own protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(servers.local)
app.command()(servers.namesrv)
app.command()(servers.broker)
app.command()(talk.send)
app.command()(talk.consume)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(cluster.app, name="cluster")
app.add_typer(message.app, name="message")
app.command("inspect")(inspect.inspect)
app.add_typer(bench.app, name="bench")
app.add_typer(chaos.app, name="chaos")
app.command()(verify)
app.add_typer(pipeline.app, name="pipeline")


def main() -> None:
    """Run the command; the process's exit code is its own."""
    # What the client logs of its retries is no news at a terminal: what fails in the end is said in one line. Server
    # commands set up logging of their own.
    logging.getLogger().setLevel(logging.ERROR)
    app()


if __name__ == "__main__":
    main()
