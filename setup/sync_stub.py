"""Writes raftmq/sync.pyi: the signatures of the blocking classes, taken from the asynchronous ones that they stand for.

`python setup/sync_stub.py` writes it; a test compares. `raftmq.sync` passes every call on, so that type checkers would
see nothing of it: here stands for each method what its asynchronous twin takes, and what that returns once it is done.
"""

import ast
import builtins
import inspect
import re
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "raftmq" / "sync.pyi"
CLASSES = {
    "Producer": "client.produce.producer",
    "TransactionProducer": "client.produce.transactions",
    "PushConsumer": "client.consume.push",
    "LitePullConsumer": "client.consume.litepull",
    "SimpleConsumer": "client.consume.simple",
    "AdminClient": "client.admin.client",
}
HEAD = """# Signatures of the blocking classes, for type checkers; written by setup/sync_stub.py, not by hand.

import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from client.consume.pophandle import PopHandle
"""
COMMON = """
    def start(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
"""
# What stands for no method of the asynchronous twin.
MORE = {"SimpleConsumer": "    def __iter__(self) -> Iterator[PoppedMessage]: ...\n"}
# Classes that the stub has of its own, below.
OF_ITS_OWN = {"PoppedMessage"}
# What is no client, and what is no class.
FUNCTIONS = """
class PoppedMessage(MessageExt):
    origin: str
    handle: PopHandle
    expires_at: float
    acknowledged: bool
    def ack(self, *, timeout: float | None = ...) -> None: ...
    def nak(self, delay: float = ..., *, timeout: float | None = ...) -> None: ...
    def change_invisible(self, seconds: float, *, timeout: float | None = ...) -> None: ...

def answering(
    producer: Producer, answer: Callable[[MessageExt], bytes | None]
) -> Callable[[list[MessageExt]], None]: ...
"""
# What a blocking object does in its own way, or not at all.
OWN = {"start"}


class Names:
    """The names that signatures use, and where each is imported from."""

    def __init__(self) -> None:
        self.imports: dict[str, set[str]] = {}
        self._known: dict[str, str] = {}

    def use(self, node: ast.AST, module: str) -> None:
        """Note where the names in an annotation, which stands in a module, come from."""
        for name in {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}:
            if hasattr(builtins, name) or name in OF_ITS_OWN:
                continue
            source = self._source(name, module)
            if self._known.setdefault(name, source) != source:
                raise SystemExit(f"{name} is of {source} and of {self._known[name]}: one of them needs another name")
            self.imports.setdefault(source, set()).add(name)

    def _source(self, name: str, module: str) -> str:
        for statement in ast.parse(inspect.getsource(import_module(module))).body:
            if isinstance(statement, ast.ImportFrom) and name in {alias.name for alias in statement.names}:
                return statement.module or ""
        return module


def stub() -> str:
    """Return the stub's text."""
    names = Names()
    classes = [_class(name, module, names) for name, module in CLASSES.items()]
    imports = [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(names.imports.items())]
    text = "\n".join((HEAD, *imports, "", *classes, FUNCTIONS))
    command = [sys.executable, "-m", "ruff"]
    for step in (("check", "--select", "I,F401", "--fix", "-q"), ("format", "-q")):
        text = subprocess.run(
            [*command, *step, "--stdin-filename", str(STUB), "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return text


def _class(name: str, module: str, names: Names) -> str:
    kind = getattr(import_module(module), name)
    lines = [f"class {name}:"]
    done: set[str] = set(OWN)
    for each in kind.__mro__:
        if each is object:
            continue
        body = (
            ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
            if each.__module__.startswith("client")
            else None
        )
        for node in body.body if isinstance(body, ast.ClassDef) else ():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name in done:
                continue
            if node.name.startswith("_") and node.name != "__init__":
                continue
            done.add(node.name)
            lines += _method(node, each.__module__, names)
    return "\n".join(lines) + COMMON + MORE.get(name, "")


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, names: Names) -> list[str]:
    arguments = node.args
    annotations = [one.annotation for one in ast.walk(arguments) if isinstance(one, ast.arg) and one.annotation]
    returns = node.returns
    assert returns is not None, f"{module}.{node.name} says what it returns"
    for annotation in (*annotations, returns):
        if not (annotation is returns and "Future" in ast.unparse(returns)):
            names.use(annotation, module)
    ellipsis: ast.expr = ast.Constant(...)
    arguments.defaults = [ellipsis for _ in arguments.defaults]
    arguments.kw_defaults = [None if default is None else ellipsis for default in arguments.kw_defaults]
    told = (
        ast.unparse(returns).replace("asyncio.Future", "concurrent.futures.Future").replace("AsyncContext", "Context")
    )
    # What yields there, and is awaited, is an iterator here.
    told = re.sub(r"^AsyncGenerator\[(.+), None\]$", r"Iterator[\1]", told)
    marks = [
        f"    @{mark}" for each in node.decorator_list if (mark := ast.unparse(each)) in {"property", "staticmethod"}
    ]
    return [*marks, f"    def {node.name}({ast.unparse(arguments)}) -> {told}: ..."]


if __name__ == "__main__":
    STUB.write_text(stub(), "utf-8")
