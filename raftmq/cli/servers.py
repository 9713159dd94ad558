"""`raftmq namesrv`, `raftmq broker`: one server process, as deployed."""

from pathlib import Path
from typing import Annotated

import typer

from raftmq.cli.options import ConfigFile, Settings
from raftmq.cli.output import fail, one_line_errors, parse_settings


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
        from auth.settings import shown_config
        from namesrv.config import load_namesrv_config
        from namesrv.foreign_keys import KEYS
        from namesrv.server import run_namesrv
        from runtime.config import config_values, format_properties
        from runtime.log import set_up_logging

        values = _values(config, settings, file_key="configStorePath")
        if port is not None:
            values["listenPort"] = str(port)
        built, unknown = load_namesrv_config(values)
        if print_config:
            typer.echo(format_properties(shown_config(config_values(built))), nl=False)
            _show_others(unknown, KEYS.without_effect(values))
            return
        set_up_logging()
        _check_secrets(config, values)
        _name_others("namesrv", unknown, KEYS.without_effect(values))
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
        from auth.settings import shown_config
        from broker.main import run_broker
        from broker.metadata.table_file import MetadataError
        from broker.settings import decision as override
        from broker.settings.foreign_keys import KEYS
        from raft.core.votefile import VoteFileDamaged, VoteFileMissing
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
            typer.echo(format_properties(shown_config(effective)), nl=False)
            _show_others(unknown, KEYS.without_effect(values()))
            return
        _check_secrets(config, values())
        _name_others("broker", unknown, KEYS.without_effect(values()))
        try:
            run_broker(broker_config, store_config, force=force, reload=lambda: override.load(values())[:2])
        except (StoreError, MetadataError, VoteFileDamaged, VoteFileMissing) as error:
            fail(str(error))


def _values(config: Path | None, settings: list[str] | None, *, file_key: str) -> dict[str, str]:
    """Read the file and what --set adds; `file_key` names the file itself, where changes made from afar are kept."""
    from auth.config_secrets import check_arguments
    from runtime.config import load_properties

    values: dict[str, str] = {}
    if config is not None:
        values = {file_key: str(config.resolve()), **load_properties(config)}
    said = parse_settings(settings)
    check_arguments(said)
    return {**values, **said}


def _check_secrets(config: Path | None, values: dict[str, str]) -> None:
    """Refuse a start with secrets in files of which others may read them. Arguments have none: see _values."""
    from auth.config_secrets import check_config_file, check_key_files
    from runtime.config import load_properties

    if config is not None:
        check_config_file(config, load_properties(config))
    check_key_files(values)


def _name_others(name: str, unknown: list[str], idle: dict[str, list[str]]) -> None:
    """Log which keys are nobody's, and which of RocketMQ's have no effect here, by the reason."""
    import logging

    for key in unknown:
        logging.getLogger(name).warning("the configuration key %s is unknown and has no effect", key)
    for why, keys in idle.items():
        logging.getLogger(name).info("configuration keys without effect here: %s (%s)", ", ".join(keys), why)


def _show_others(unknown: list[str], idle: dict[str, list[str]]) -> None:
    # Not among the configuration, which may be piped into a file.
    for key in unknown:
        typer.echo(f"raftmq: the configuration key {key} is unknown and has no effect", err=True)
    for why, keys in idle.items():
        typer.echo(f"raftmq: configuration keys without effect here: {', '.join(keys)} ({why})", err=True)
