"""The build hook of the wheel: all packages of the checkout become one import package, `raftmq`.

Installed at top level, `client`, `store` or `chaos` would break whoever has a file of that name beside his program. So
`broker/x.py` goes to `raftmq/_lib/broker/x.py`, `raftmq/` itself stays what it is, and imports are rewritten: `from
broker.x import …` to `from raftmq._lib.broker.x import …`, and a text that is a module's whole name, as after `-m`. All
imports here are absolute, so the names alone say what is ours. What comes out depends on the sources and nothing else,
but for the hot path: where setup/compile.py can compile it, the wheel has it and is for this platform and Python alone.
"""

import ast
import shutil
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PUBLIC, INSIDE = "raftmq", "raftmq._lib"
ABOUT_INSIDE = '"""The parts of RaftMQ: not for import from outside, they change without notice."""\n'
# The room of the compiled hot path, and what of it does not go along: its source, and what was compiled for use from
# the checkout, under the name that the module has there.
COMPILED = Path("remoting", "compiled")
STAYS = {".pyx", ".pxi", ".so"}


class Edit(NamedTuple):
    """A name in a source: its line (from 1), its first column (from 0, in bytes of UTF-8), and what it becomes."""

    line: int
    column: int
    old: str
    new: str


class ImportUnclear(Exception):
    """An import that cannot be rewritten; the text says where and why."""


def packages(root: Path) -> tuple[str, ...]:
    """Return the packages of a checkout that become parts: the folders beside `raftmq` that it is built of."""
    built: list[str] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "root_packages"
    ]
    return tuple(name for name in built if name != PUBLIC)


def modules(root: Path, parts: tuple[str, ...]) -> frozenset[str]:
    """Return the dotted names of all modules in the parts."""
    found = (path.relative_to(root).with_suffix("") for part in parts for path in (root / part).rglob("*.py"))
    return frozenset(".".join(path.parts).removesuffix(".__init__") for path in found)


def rewritten(source: str, parts: tuple[str, ...], names: frozenset[str], where: str) -> str:
    """Return a module's source with the names of our modules as they are installed. Raises ImportUnclear."""
    lines = source.encode().splitlines(keepends=True)
    for edit in sorted(_edits(ast.parse(source), parts, names, where), reverse=True):
        line, old = lines[edit.line - 1], edit.old.encode()
        end = edit.column + len(old)
        if line[edit.column : end] != old:
            raise ImportUnclear(f"{where}:{edit.line}: {edit.old} does not stand where Python says")
        lines[edit.line - 1] = line[: edit.column] + edit.new.encode() + line[end:]
    return b"".join(lines).decode()


def _edits(tree: ast.Module, parts: tuple[str, ...], names: frozenset[str], where: str) -> Iterator[Edit]:
    # A package's bare name is a word as others are.
    dotted = {name for name in names if "." in name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in parts:
                    # `import a.b` binds `a`, which the code then names: only `from` has one name to rewrite.
                    raise ImportUnclear(f"{where}:{node.lineno}: write `from … import …`, not `import {alias.name}`")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ImportUnclear(f"{where}:{node.lineno}: a relative import; all are absolute here")
            module = node.module or ""
            if module.split(".")[0] in parts:
                yield Edit(node.lineno, node.col_offset + len("from "), module, f"{INSIDE}.{module}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in dotted:
            yield Edit(node.lineno, node.col_offset + 1, node.value, f"{INSIDE}.{node.value}")


def build(root: Path, out: Path) -> None:
    """Write the tree that is installed below `out`."""
    parts = packages(root)
    names = modules(root, parts)
    for part in (*parts, PUBLIC):
        for path in sorted((root / part).rglob("*")):
            if path.is_dir() or "__pycache__" in path.parts or path.suffix in STAYS:
                continue
            place = (out if part == PUBLIC else out / PUBLIC / "_lib") / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in {".py", ".pyi"}:
                with tokenize.open(path) as file:
                    source = file.read()
                place.write_text(rewritten(source, parts, names, str(path.relative_to(root))), "utf-8")
            else:
                shutil.copyfile(path, place)
    (out / PUBLIC / "_lib" / "__init__.py").write_text(ABOUT_INSIDE, "utf-8")


def add_compiled(root: Path, out: Path) -> bool:
    """Add the hot path, compiled as what it is called there, to a tree; return whether it could be had."""
    folder = out / PUBLIC / "_lib" / COMPILED
    name = ".".join((INSIDE, *COMPILED.parts, "hotpath"))
    command: list[str | Path] = [sys.executable, root / "setup" / "compile.py", "--into", folder, "--name", name]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    # What a back end prints to stdout may be for whoever called it.
    print(said, end="", file=sys.stderr)
    return any(folder.glob("*.so"))


class OneName(BuildHookInterface[Any]):
    """Gives hatchling the rewritten tree; an editable install imports from the checkout as it is."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the tree, which finalize() removes."""
        if self.target_name != "wheel" or version == "editable":
            return
        self._out = Path(tempfile.mkdtemp(prefix="raftmq-wheel-"))
        build(Path(self.root), self._out)
        build_data["force_include"][str(self._out / PUBLIC)] = PUBLIC
        if add_compiled(Path(self.root), self._out):
            build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 # as the interface has it
        """Remove what initialize() made."""
        if (out := getattr(self, "_out", None)) is not None:
            shutil.rmtree(out)
