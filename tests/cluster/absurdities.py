"""The command tree, and for each command lines that nobody should type: absurd values for each parameter."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from raftmq.cli.main import app

TEXTS = ("", "-1", "x" * 300, "%s", "a\udcffb", ";", "orders/../..")
NUMBERS = ("-1", "0", "1", "99999999999999999999", "nan", "inf", "-inf", "1e400", "x", "")
ADDRESSES = ("", "foo", "host:99999", "127.0.0.1:1", ":", "[::1", "127.0.0.1:x")
PATHS = ("folder", "binary", "half.json", "no/such", "", "binary/below", "x" * 300)
# What stands for a value that is all right, by the parameter's name.
GOOD: Mapping[str, str] = {"seconds": "0.1", "messages": "2", "timeout": "0.1", "count": "1"}
ADDRESS_NAMES = {"namesrv", "namesrv_addr", "address", "broker", "at", "raft_address"}
PATH_NAMES = {"ledger"}


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the commands below one, with the words that lead to each."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*path, name))


COMMANDS: Mapping[str, tuple[tuple[str, ...], Any]] = {
    " ".join(path): (path, command) for path, command in leaves(typer.main.get_command(app))
}


def command_lines(name: str) -> Iterator[list[str]]:
    """Yield command lines in which one parameter has an absurd value, and the others good ones."""
    path, command = COMMANDS[name]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.is_flag]
    good = [_good(one) for one in arguments if one.required]
    base = [f"{one.opts[0]}={GOOD[one.name]}" for one in options if one.name in GOOD]
    yield [*path, *base, *good]
    for place, argument in enumerate(arguments):
        for value in _absurd(argument):
            yield [*path, *base, "--", *good[:place], value, *good[place + 1 :]]
    for option in options:
        for value in _absurd(option):
            given = [f"{option.opts[0]}={value}"] if option.opts[0].startswith("--") else [option.opts[0], value]
            yield [*path, *base, *given, *good]


def _absurd(parameter: Any) -> Sequence[str]:
    kind = str(parameter.type_descriptor.annotation)
    if "Path" in kind or parameter.name in PATH_NAMES:
        return PATHS
    if "int" in kind or "float" in kind:
        return NUMBERS
    return (*TEXTS, *ADDRESSES) if parameter.name in ADDRESS_NAMES else (*TEXTS, *NUMBERS[3:6])


def _good(parameter: Any) -> str:
    kind = str(parameter.type_descriptor.annotation)
    if "Path" in kind:
        return "folder"
    return "1" if "int" in kind or "float" in kind else GOOD.get(parameter.name, "orders")


def make_files(folder: Path) -> None:
    """Make what the command lines name: a folder, a file that is no text, and a file that ends in the middle."""
    (folder / "folder").mkdir()
    (folder / "binary").write_bytes(b"\xff\xfe\x00\x9f\n\xff" * 50)
    (folder / "half.json").write_text('{"a":')
