"""Says what is wrong with a command line without running it: programs, subcommands, options, targets unheard of."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

import typer

from raftmq.cli.main import app
from raftmq.cli.pipeline import app as pipeline
from tests.chaos import selftest
from tests.docs.documents import ROOT

_MAKE_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
_MAKE_VARIABLE = re.compile(r"^([A-Z]+) := ", re.MULTILINE)
# Programs of others that `make venv` installs.
DEVELOPERS = {"hatchling"}


def wrong_with(words: Sequence[str]) -> str:
    """Return what is wrong with a command line, "" when it could be run."""
    program, rest = words[0].removeprefix(".venv/bin/"), list(words[1:])
    match program, rest:
        case "raftmq", _:
            return _raftmq(typer.main.get_command(app), rest)
        case "make", _:
            return _make(rest)
        case "python", ["-m", "tests.chaos.selftest", *options]:
            return _options(selftest.arguments(), options)
        case "python", ["-m", module, *_] if _is_module(module):
            return ""
        case "pip", ["install", package]:
            return _package(package)
        case "spark-submit", _:
            at = next((number for number, word in enumerate(rest) if word.endswith("submit.py")), None)
            return "no submit.py" if at is None else _raftmq(typer.main.get_command(pipeline), rest[at + 1 :])
        case (("openssl" | "chmod"), _):
            return ""  # run as it stands, by test_docs_others.py and test_docs_security.py
        case (("bash" | "python"), [file, *_]) if (ROOT / file).is_file():
            return ""
        case _:
            return f"nobody knows how to check {program}"


def _raftmq(command: Any, words: list[str]) -> str:
    """Look for the subcommand and its options. Brackets say what may be left out; bars divide what one may take."""
    while hasattr(command, "commands") and words and not words[0].startswith(("-", "[")):
        asked = words.pop(0).split("|")
        if strange := [name for name in asked if name not in command.commands]:
            return f"{command.name} has no {', '.join(strange)}"
        command = command.commands[asked[0]]
    known = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")}
    places = [one for one in command.params if one.param_type_name == "argument"]
    given = 0
    left = [word for text in words for word in text.strip("[]").split() if word != "|"]
    while left:
        word, _, value = left.pop(0).partition("=")
        if word in {"-h", "--help"}:
            continue
        if not word.startswith("-"):
            given += 1
        elif word not in known:
            return f"{command.name} has no option {word}"
        elif not value and not known[word].is_flag:
            if not left:
                return f"{command.name} {word} takes a value"
            left.pop(0)
    if given > len(places) and not any(one.nargs < 0 for one in places):
        return f"{command.name} takes {len(places)} arguments, not {given}"
    return ""


def _make(words: Sequence[str]) -> str:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets, variables = set(_MAKE_TARGET.findall(makefile)), set(_MAKE_VARIABLE.findall(makefile))
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in (variables if equals else targets):
            return f"make has no {'variable' if equals else 'target'} {name}"
    return ""


def _is_module(name: str) -> bool:
    if name.split(".", maxsplit=1)[0] in DEVELOPERS:
        return True
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def _options(parser: Any, words: Sequence[str]) -> str:
    try:
        parser.parse_args(words)
    except SystemExit:
        return f"it does not take {' '.join(words)}"
    return ""


def _package(text: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, _, extra = text.rstrip("]").partition("[")
    # A path is the folder that the command is typed in: the project's own.
    if name not in {project["name"], "."}:
        return f"{name} is somebody else's package"
    return "" if not extra or extra in project["optional-dependencies"] else f"there is no extra {extra}"
