"""`raftmq local`: a cluster on this machine to develop against, in a folder that may be used again."""

import os
import select
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftmq.cli.output import fail, one_line_errors, print_json_line

if TYPE_CHECKING:
    from chaos.host.local import LocalCluster
    from chaos.host.processes import ServerProcess
    from chaos.host.security import Security

WATCH_S = 0.2
GROUP_SIZES = (1, 3, 5)
NAMESRV_PORT, BROKER_PORT = 9876, 10911
# A cluster that ends as a whole has no leader that a member could forward to: clients need not be waited for.
LOCAL_SETTINGS = {"shutdownForwardMs": 50}


def local(
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="D", help="Folder that keeps all data and ports; otherwise a temporary one."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", help="Brokers: 1, or 3 or 5 that form a Raft group; otherwise as in D, or 1."),
    ] = None,
    namesrv_port: Annotated[
        int | None,
        typer.Option("--namesrv-port", min=0, max=65535, help="Otherwise as in D, or 9876; 0 takes a free one."),
    ] = None,
    broker_port: Annotated[
        int | None,
        typer.Option("--broker-port", min=0, max=65535, help="Otherwise as in D, or 10911; 0 takes a free one."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="With users and TLS; certificates and an administrator come into D/security."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as one line of JSON.")] = False,
) -> None:
    """Run a NameServer and a broker, or a Raft group of brokers, in the foreground until Ctrl-C.

    With --dir the same command starts the same cluster again: data, ports and configuration files stay, and it stays
    secured.
    """
    from chaos.host.localfolder import FolderInUse, taken
    from chaos.host.processes import ProcessError

    if nodes is not None and nodes not in GROUP_SIZES:
        fail(f"--nodes {nodes}: it takes 1, 3 or 5; a group of an even size survives no more failures", code=2)
    with ExitStack() as stack:
        stack.enter_context(one_line_errors())
        home = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftmq-local-")))
        try:
            stack.enter_context(taken(home.resolve()))
            security = _security(home.resolve() / "security", secure=secure)
            cluster = _cluster(home.resolve(), nodes, (namesrv_port, broker_port), security)
            _run(cluster, lambda: _announce(cluster, home, security, as_json))
        except (FolderInUse, ProcessError) as error:
            fail(str(error))


def _security(folder: Path, *, secure: bool) -> "Security | None":
    from chaos.host.security import Security

    return Security(folder) if secure or Security.is_in(folder) else None


def _cluster(
    home: Path, nodes: int | None, ports: tuple[int | None, int | None], security: "Security | None"
) -> "LocalCluster":
    """Make the cluster that is in the folder, or the first one there."""
    from chaos.host.local import LocalCluster
    from chaos.host.localfolder import kept_nodes

    kept = kept_nodes(home)
    if kept and nodes not in {None, kept}:
        fail(f"--nodes {nodes}: {home} has a cluster of {kept}: leave --nodes out, or give another --dir", code=2)
    defaults = (0, 0) if kept else (NAMESRV_PORT, BROKER_PORT)
    return LocalCluster(
        home,
        nodes=kept or nodes or 1,
        namesrv_port=defaults[0] if ports[0] is None else ports[0],
        broker_port=defaults[1] if ports[1] is None else ports[1],
        broker_settings=LOCAL_SETTINGS,
        security=security,
        keep=True,
    )


class StopSignal:
    """A flag that a signal's handler may set while its own thread waits for it.

    threading.Event is none: its lock is not reentrant, and a handler that comes while wait() takes it waits for itself.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def set(self) -> None:
        """Set it; for handlers, any number of times."""
        if not self.wait(0):
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; tell whether it is set."""
        return bool(select.select([self._read], (), (), seconds)[0])

    def close(self) -> None:
        """Give its descriptors back; no handler may set it any more."""
        os.close(self._read)
        os.close(self._write)


def _run(cluster: "LocalCluster", announce: Callable[[], None]) -> None:
    """Start the cluster, watch over it until a signal, and stop it; raises ProcessError, KeyboardInterrupt."""
    from chaos.host.localfolder import users

    stop, starting = StopSignal(), True

    def told(_number: int, _frame: object) -> None:
        stop.set()
        if starting:
            # Nobody waits for the start of what is to end.
            raise KeyboardInterrupt

    # The servers have sessions of their own: they would outlive a terminal that is closed (SIGHUP).
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, told)
    cluster.start()
    starting = False
    try:
        announce()
        _watch(cluster, stop)
        cluster.stop()
    except BaseException:
        cluster.kill()
        raise
    for name, pid in users(cluster.folder):
        typer.echo(f"raftmq: {name} (process {pid}) was started by hand and goes on: kill {pid} ends it", err=True)


def _watch(cluster: "LocalCluster", stop: StopSignal) -> None:
    """Say which servers end, until a signal comes, or nobody is left."""
    ended: list[ServerProcess] = []
    while not stop.wait(WATCH_S):
        for server in cluster.servers:
            if not server.running and server not in ended:
                ended.append(server)
                typer.echo(f"raftmq: {_end_of(server)}", err=True)
        if len(ended) == len(cluster.servers):
            fail(f"no server is left; the last one said:\n{ended[-1].last_words()}")


def _end_of(server: "ServerProcess") -> str:
    code = server.exit_code
    assert code is not None, f"{server.name} runs"
    how = f"ended with {code} (its log: {server.log})" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    called = sys.argv[0] if Path(sys.argv[0]).name == "raftmq" else "raftmq"
    again = shlex.join([called, *server.arguments])
    return f"{server.name} {how}; the others go on. To start it again: {again}"


def _announce(cluster: "LocalCluster", home: Path, security: "Security | None", as_json: bool) -> None:
    brokers = [broker.address for broker in cluster.brokers]
    variables = {} if security is None else dict(security.environment())
    if as_json:
        said = {"namesrv": cluster.address, "broker": brokers[0], "brokers": brokers, "dir": str(home)}
        print_json_line({**said, "environment": variables} if variables else said)
        return
    named = "broker" if len(brokers) == 1 else "brokers"
    typer.echo(f"NameServer {cluster.address}   {named} {' '.join(brokers)}   data in {home}")
    told = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    typer.echo(f"use it with: export NAMESRV_ADDR={cluster.address}{told and ' ' + told}    (Ctrl-C ends it)")
