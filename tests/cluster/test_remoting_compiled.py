"""The compiled hot path: which of the two runs, what set-up does about it, and what its source may hold."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remoting.compiled import door
from setup.compile import SUFFIX, lacking
from tests.unit.test_tidy import FILE_LINES_MAX, FORBIDDEN, PACKAGES

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "remoting" / "compiled"
SOURCE = "def twice(number) -> int:\n    return 2 * number\n"
COLUMNS_MAX = 120
ENDS_WITHIN_S = 300
needs_compiler = pytest.mark.skipif(bool(lacking()), reason=f"nothing can be compiled here: {lacking()}")


def run(*command: str | Path, root: Path = ROOT, code: int = 0, **more: str) -> str:
    """Run Python with a checkout; return what it printed, warnings first. Nothing of this run's choice is handed on."""
    kept = {key: value for key, value in os.environ.items() if key not in {"RAFTMQ_PURE", "CC"}}
    environment = {**kept, "PYTHONPATH": str(root), **more}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN_S
    )
    assert done.returncode == code, done.stderr
    return done.stderr + done.stdout


def compiled(source: Path, *, code: int = 0, **more: Any) -> str:
    """Run what set-up runs; return its line."""
    command: tuple[str | Path, ...] = ("-m", "setup.compile", "--source", source)
    return run(*command, root=ROOT, code=code, **more)


def told(root: Path, **more: Any) -> str:
    """What the door of a checkout says."""
    return run("-P", "-c", "from remoting.compiled import door; print(door.describe())", root=root, **more)


def checkout(root: Path) -> Path:
    """Make a checkout with nothing but the room, and a small source in it; return the source."""
    room = root / "remoting" / "compiled"
    room.mkdir(parents=True)
    for page in (root / "remoting", room):
        (page / "__init__.py").touch()
    shutil.copy(ROOM / "door.py", room)
    (room / "hotpath.pyx").write_text(SOURCE)
    return room / "hotpath.pyx"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled module, made of the small source."""
    source = checkout(tmp_path_factory.mktemp("built"))
    assert compiled(source) == "set-up: compiled the hot path\n"
    return source.with_name(f"hotpath{SUFFIX}")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return checkout(tmp_path)


@pytest.fixture
def module(source: Path, built: Path) -> Path:
    return Path(shutil.copy(built, source.parent))


def test_where_it_can_be_compiled_set_up_has_done_so() -> None:
    can = not lacking()
    assert told(ROOT) == ("compiled\n" if can else "pure Python (not built)\n"), "run: make venv"
    assert (can and os.environ.get("RAFTMQ_PURE") != "1") == door.COMPILED == (door.hotpath is not None)


@needs_compiler
def test_what_was_built_of_this_source_is_used_until_somebody_turns_it_off(module: Path, tmp_path: Path) -> None:
    assert module.exists()
    assert told(tmp_path) == told(tmp_path, RAFTMQ_PURE="0") == told(tmp_path, RAFTMQ_PURE="") == "compiled\n"
    assert told(tmp_path, RAFTMQ_PURE="1") == "pure Python (RAFTMQ_PURE=1)\n"
    used = run("-P", "-c", "from remoting.compiled.door import hotpath; print(hotpath.twice(21))", root=tmp_path)
    assert used == "42\n"


@needs_compiler
def test_what_is_of_another_source_is_not_used_and_that_is_said(module: Path, source: Path, tmp_path: Path) -> None:
    source.write_text(SOURCE + "# another word\n")
    warning, line = told(tmp_path).splitlines()
    assert warning.endswith("`make venv` builds it anew")
    assert line == "pure Python (what was built is of another source)"
    source.unlink()
    assert told(tmp_path) == "compiled\n", "where there is no source, as in a wheel, there is nothing to compare"
    module.write_bytes(b"no module")
    warning, line = told(tmp_path).splitlines()
    assert warning.endswith("`make venv` builds it")
    assert line == "pure Python (what was built cannot be loaded)"


def test_where_nothing_was_built_python_runs_without_a_word(source: Path, tmp_path: Path) -> None:
    assert source.exists()
    assert told(tmp_path) == "pure Python (not built)\n"


def test_a_wrong_switch_is_an_error_that_says_what_it_may_be() -> None:
    assert not door.wants_python({})
    with pytest.raises(
        ValueError, match="RAFTMQ_PURE is 'yes': 1 turns the compiled hot path off, 0 or nothing leaves"
    ):
        door.wants_python({"RAFTMQ_PURE": "yes"})


@needs_compiler
def test_set_up_compiles_once_and_anew_when_the_source_is_another_one(module: Path, source: Path) -> None:
    before = module.stat()
    assert compiled(source) == "set-up: the hot path is compiled already\n"
    assert module.stat().st_ino == before.st_ino
    source.write_text(SOURCE.replace("2", "3"))
    assert compiled(source) == "set-up: compiled the hot path\n"
    assert module.stat().st_ino != before.st_ino, "whoever uses the old one keeps it"
    assert compiled(source) == "set-up: the hot path is compiled already\n"
    assert sorted(path.name for path in source.parent.iterdir()) == ["__init__.py", "door.py", module.name, source.name]


@needs_compiler
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def twice(cdef_type number):\n    pass\n", "hotpath.pyx:1:"),
        ("cdef extern from 'none.h':\n    int x\ny = x", "none.h"),
    ],
)
def test_a_source_that_does_not_compile_is_one_line_and_tried_again(source: Path, text: str, said: str) -> None:
    old = source.with_name(f"hotpath{SUFFIX}")
    old.write_bytes(b"of before")
    source.write_text(text)
    line = compiled(source, code=1)
    assert line.startswith("set-up: ")
    assert said in line
    assert line.endswith(": the hot path runs as Python\n")
    assert line.count("\n") == 1
    assert not old.exists()


def test_without_a_compiler_set_up_ends_well(source: Path, tmp_path: Path) -> None:
    assert compiled(source, PATH=str(tmp_path)) == "set-up: no C compiler: the hot path runs as Python\n"
    assert compiled(source, RAFTMQ_PURE="1") == "set-up: RAFTMQ_PURE=1: the hot path runs as Python\n"


@needs_compiler
def test_what_was_built_of_this_source_outlives_runs_that_do_not_want_or_cannot_build_it(
    module: Path, source: Path, tmp_path: Path
) -> None:
    compiled(source, RAFTMQ_PURE="1")
    assert compiled(source, PATH=str(tmp_path)) == "set-up: the hot path is compiled already\n"
    assert module.exists()
    source.write_text(SOURCE + "# another word\n")
    compiled(source, PATH=str(tmp_path))
    assert not module.exists()


@pytest.mark.parametrize("path", sorted(ROOM.glob("hotpath.py?")), ids=lambda path: path.name)
def test_the_source_keeps_to_the_house(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= FILE_LINES_MAX
    assert [line for line in lines if len(line) > COLUMNS_MAX or line != line.rstrip()] == []
    assert [word for word in FORBIDDEN if word in text] == []
    # In a wheel our modules have other names, and it is compiled for those: what it needs it is handed.
    ours = re.compile(rf"\s*(from|import|cimport)\s+({'|'.join(PACKAGES)})\b")
    assert [line for line in lines if ours.match(line)] == []


def test_the_stub_says_what_is_there() -> None:
    if not door.COMPILED:
        return
    tree = ast.parse((ROOM / "hotpath.pyi").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions
    for node in functions:
        named = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        assert list(inspect.signature(getattr(door.hotpath, node.name)).parameters) == named, node.name
