"""`raftmq namesrv`, `raftmq broker`: one server process, as deployed; `raftmq local`: a cluster to develop against."""

import signal
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from raftmq.cli.options import ConfigFile, Settings
from raftmq.cli.output import fail, one_line_errors, parse_settings, print_json_line

WATCH_S = 0.2
GROUP_SIZES = (1, 3, 5)
# A cluster that ends as a whole has no leader that a member could forward to: clients need not be waited for.
LOCAL_SETTINGS = {"shutdownForwardMs": 50}


def namesrv(
    config: ConfigFile = None,
    port: Annotated[int | None, typer.Option("--port", "-p", help="listenPort; 9876 unless configured.")] = None,
    settings: Settings = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the effective configuration and end.")
    ] = False,
) -> None:
    """Run a NameServer in the foreground until SIGTERM or Ctrl-C."""
    with one_line_errors():
        from namesrv.config import load_namesrv_config
        from namesrv.server import run_namesrv
        from runtime.config import config_values, format_properties
        from runtime.log import set_up_logging

        values = _values(config, settings, file_key="configStorePath")
        if port is not None:
            values["listenPort"] = str(port)
        built, unknown = load_namesrv_config(values)
        if print_config:
            typer.echo(format_properties(config_values(built)), nl=False)
            return
        set_up_logging()
        _name_unknown("namesrv", unknown)
        run_namesrv(built)


def broker(
    config: ConfigFile = None,
    namesrv_addr: Annotated[
        str, typer.Option("--namesrv", "-n", metavar="ADDRS", help="namesrvAddr: host:port separated by ';'.")
    ] = "",
    settings: Settings = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", "-p", help="Print the effective configuration and end.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Start as a single broker on a Raft group's store that did not leave its group. Lost is what the "
            "group acknowledged and this member lacks; kept is what the group never agreed upon. The other members "
            "must never meet this store again.",
        ),
    ] = False,
) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C."""
    with one_line_errors():
        from broker import override
        from broker.configfile import MetadataError
        from broker.process import run_broker
        from runtime.config import config_values, format_properties
        from runtime.log import set_up_logging
        from store.errors import StoreError

        def values() -> dict[str, str]:
            read = _values(config, settings, file_key="brokerConfigPath")
            return {**read, "namesrvAddr": namesrv_addr} if namesrv_addr else read

        if not print_config:
            set_up_logging()
        broker_config, store_config, unknown = override.load(values(), look_only=print_config)
        if print_config:
            effective = {**config_values(store_config), **config_values(broker_config)}
            typer.echo(format_properties(effective), nl=False)
            return
        _name_unknown("broker", unknown)
        try:
            run_broker(broker_config, store_config, force=force, reload=lambda: override.load(values())[:2])
        except (StoreError, MetadataError) as error:
            fail(str(error))


def local(
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="D", help="Folder that keeps all data; otherwise a temporary one.")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", help="Brokers: 1, or 3 or 5 that form a Raft group.")] = 1,
    namesrv_port: Annotated[int, typer.Option("--namesrv-port", help="0 takes a free one.")] = 9876,
    broker_port: Annotated[int, typer.Option("--broker-port", help="0 takes a free one.")] = 10911,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as one line of JSON.")] = False,
) -> None:
    """Run a NameServer and a broker, or a Raft group of brokers, in the foreground until Ctrl-C."""
    from chaos.local import LocalCluster
    from chaos.processes import ProcessError

    if nodes not in GROUP_SIZES:
        fail(f"--nodes {nodes}: it takes 1, 3 or 5; a group of an even size survives no more failures", code=2)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    with ExitStack() as stack:
        home = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftmq-local-")))
        cluster = LocalCluster(
            home.resolve(),
            nodes=nodes,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            broker_settings=LOCAL_SETTINGS,
        )
        try:
            cluster.start()
            _announce(cluster.address, [broker.address for broker in cluster.brokers], home, as_json)
            while not stop.wait(WATCH_S):
                for server in cluster.servers:
                    if not server.running:
                        cluster.kill()
                        fail(f"{server.name} ended with {server.exit_code}:\n{server.last_words()}")
            cluster.stop()
        except ProcessError as error:
            cluster.kill()
            fail(str(error))


def _announce(namesrv_address: str, brokers: list[str], home: Path, as_json: bool) -> None:
    if as_json:
        print_json_line({"namesrv": namesrv_address, "broker": brokers[0], "brokers": brokers, "dir": str(home)})
        return
    named = "broker" if len(brokers) == 1 else "brokers"
    typer.echo(f"NameServer {namesrv_address}   {named} {' '.join(brokers)}   data in {home}")
    typer.echo(f"use it with: export NAMESRV_ADDR={namesrv_address}    (Ctrl-C ends it)")


def _values(config: Path | None, settings: list[str] | None, *, file_key: str) -> dict[str, str]:
    """Read the file and what --set adds; `file_key` names the file itself, where changes made from afar are kept."""
    from runtime.config import load_properties

    values: dict[str, str] = {}
    if config is not None:
        values = {file_key: str(config.resolve()), **load_properties(config)}
    return {**values, **parse_settings(settings)}


def _name_unknown(name: str, unknown: list[str]) -> None:
    import logging

    for key in unknown:
        logging.getLogger(name).warning("the configuration key %s is unknown and has no effect", key)
