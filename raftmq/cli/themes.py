"""The commands at the top of `raftmq`, each imported when it is asked for: none waits for what the others need.

With all of them a command took twice the processor time to start.
"""

from collections import UserDict
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

# In the order of the help text: the name of each, the module here that has it, and what it is called there.
THEMES = {
    "demo": ("demo", "demo"),
    "local": ("local", "local"),
    "namesrv": ("servers", "namesrv"),
    "broker": ("servers", "broker"),
    "send": ("talk", "send"),
    "consume": ("talk", "consume"),
    "request": ("request", "request"),
    "inspect": ("inspect", "inspect"),
    "verify": ("verify", "verify"),
    "topic": ("topic", "app"),
    "group": ("group", "app"),
    "cluster": ("cluster", "app"),
    "message": ("message", "app"),
    "transaction": ("transaction", "app"),
    "user": ("user", "app"),
    "acl": ("user", "acl"),
    "bench": ("bench", "app"),
    "chaos": ("chaos", "app"),
    "pipeline": ("pipeline", "app"),
}


class _Made(UserDict[str, Any]):
    """Commands by name, made from a table when they are looked at."""

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, tuple):
            found = self.data[name] = _make(name, *found)
        return found


class Themes(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Made(THEMES)


def _make(name: str, module: str, attribute: str) -> Any:
    """Import a command, or a group of them, and make it as typer makes what is registered at an application."""
    there = import_module(f"raftmq.cli.{module}")
    found = getattr(there, attribute)
    above = typer.Typer()
    if isinstance(found, typer.Typer):
        above.add_typer(found, name=name)
    else:
        # A command whose exit codes are its own is of a class of its own.
        above.command(name, cls=getattr(there, "OwnCommand", None))(found)
    return typer.main.get_group(above).commands[name]
