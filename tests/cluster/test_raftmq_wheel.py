"""The wheel as its users have it: one import package, in an environment of its own, with the checkout out of reach."""

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import files
from pathlib import Path

import pytest

from pipeline.judge import why_no_spark
from setup.compile import SUFFIX, SWITCH, lacking
from setup.demo_packages import NAMES, demo_packages
from setup.one_name import INSIDE, ImportUnclear, modules, packages, rewritten
from setup.sync_stub import STUB, stub

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(sysconfig.get_path("purelib"))
# A wheel is compiled in half a minute; beside others, at a load of 20, in three times as much.
ENDS_WITHIN_S = 300
# What may stand beside a user's program, and in his repository.
HIS_FILES = ("client.py", "store.py", "broker.py", "pipeline.py", "raft.py", "chaos/__init__.py", "runtime/__init__.py")
# PYSPARK_PYTHON stays behind in a process that had a session: the tests that ran before in this one.
LEADS_BACK = {"PYTHONPATH", "NAMESRV_ADDR", "VIRTUAL_ENV", "PYSPARK_PYTHON"}
# What `pip install raftmq` brings, as installed packages are called.
BASE = ("cbor2", "isal", "lz4", "msgspec", "orjson", "tenacity", "zstandard")
SPOKEN = {
    "chaos.apps",
    "chaos.pop",
    "chaos.runs.namespace_main",
    "chaos.host.loopdisk",
    "chaos.site.member",
    "chaos.site.netns",
    "chaos.proxy",
}
SPOKEN |= {"pipeline.spark.log.logsource", "pipeline.spark.topic.source"}
# The seams at which `bench latency --explain` looks on (raftmq/bench/traced_broker.py).
SPOKEN |= {
    "broker.messages.send_answers",
    "broker.raft_group.member",
    "raft.core.node",
    "raft.network.link",
    "remoting.connection",
    "store.files.kernelsync",
    "store.log.commitlog",
}

# What of the hot path is in a wheel that is built here.
COMPILES = not lacking() and os.environ.get(SWITCH) != "1"
COMPILED_THERE = [f"raftmq/_lib/remoting/compiled/hotpath{SUFFIX}"] if COMPILES else []

pytestmark = pytest.mark.timeout(300)


def run(command: Sequence[str | Path], folder: Path, *, code: int = 0, **more: str) -> str:
    """Run a command where nothing leads to the checkout; return what it printed."""
    kept = {key: value for key, value in os.environ.items() if key not in LEADS_BACK}
    done = subprocess.run(
        command, cwd=folder, env={**kept, **more}, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def built(root: Path, out: Path, target: str) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out], root)
    (made,) = out.iterdir()
    return made


def environment(folder: Path, wheel: Path, packages: Path) -> Path:
    """Make one with the wheel and the packages of a folder, whose .pth files count for nothing there."""
    run([sys.executable, "-m", "venv", "--without-pip", folder], ROOT)
    python = folder / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel], ROOT)
    site = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip()
    (Path(site) / "packages.pth").write_text(str(packages))
    return python


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with all extras."""
    return environment(tmp_path_factory.mktemp("all") / "venv", wheel, PACKAGES)


@pytest.fixture
def his(tmp_path: Path) -> Path:
    """A user's folder, with files of names that parts of RaftMQ have in the checkout."""
    for name in HIS_FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('this is not of RaftMQ')\n")
    return tmp_path


def test_the_wheel_is_one_import_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        sources = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith((".py", ".pyi"))}
        assert {"raftmq/py.typed", "raftmq/sync.pyi"} < set(archive.namelist())
        compiled = [name for name in archive.namelist() if name.endswith((".so", ".pyx", ".pxi"))]
    name, version, *tags = wheel.stem.split("-")
    assert tops == {"raftmq", f"{name}-{version}.dist-info"}
    # Where nothing can be compiled it is for every platform.
    assert (compiled, tags == ["py3", "none", "any"]) == (COMPILED_THERE, not COMPILED_THERE)
    assert len(sources) > 500
    parts = packages(ROOT)
    imported = {
        (node.module or "").split(".")[0]
        for source in sources.values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
    }
    assert imported.isdisjoint(parts)


def test_the_source_distribution_builds_the_same_wheel_byte_for_byte(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "sdist").mkdir()
    source = built(ROOT, tmp_path / "sdist", "sdist")
    run(["tar", "-xzf", source, "-C", tmp_path], tmp_path)
    (tmp_path / "wheel").mkdir()
    again = built(tmp_path / source.name.removesuffix(".tar.gz"), tmp_path / "wheel", "wheel")
    assert again.read_bytes() == wheel.read_bytes()


def test_names_of_modules_are_rewritten_wherever_they_are_spoken() -> None:
    parts = packages(ROOT)
    names = modules(ROOT, parts)
    spoken = {
        node.value
        for part in (*parts, "raftmq")
        for path in (ROOT / part).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value and node.value in names
    }
    assert spoken == SPOKEN, "look whether the new one is a module's name, and name it here"
    source = (
        'from broker.server import f; name = "…"; run("ü", "chaos.proxy", "broker.conf", "broker", "chaos.proxys")\n'
    )
    assert rewritten(source, parts, names, "x.py") == (
        f'from {INSIDE}.broker.server import f; name = "…"; '
        f'run("ü", "{INSIDE}.chaos.proxy", "broker.conf", "broker", "chaos.proxys")\n'
    )
    for unclear in ("import broker.messages.send", "from . import x", '"chaos" ".proxy"'):
        with pytest.raises(ImportUnclear, match=r"^x\.py:1: "):
            rewritten(unclear, parts, names, "x.py")


def test_the_stub_of_the_blocking_classes_is_what_the_asynchronous_ones_say() -> None:
    assert STUB.read_text() == stub(), "run: python -m setup.sync_stub"


@contextlib.contextmanager
def local(python: Path, folder: Path) -> Iterator[str]:
    """Run `raftmq local --nodes 3` from the wheel; gives its NameServer's address."""
    command: list[str | Path] = [
        python.with_name("raftmq"),
        "local",
        "--nodes",
        "3",
        "--dir",
        folder / "cluster",
        "--json",
    ]
    process = subprocess.Popen(
        [*command, "--namesrv-port", "0", "--broker-port", "0"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "it said nothing"
        yield json.loads(line)["namesrv"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0


READ = """
from raftmq.spark import spark_session
spark = spark_session("wheel", cores=1, memory_mb=512, quick=True)
read = spark.read.format("raftmq").option("namesrv", "{namesrv}").option("topic", "kept").load()
print([bytes(row.body).decode() for row in read.select("body").collect()])
"""


def test_beside_files_of_the_same_names_all_of_it_works(python: Path, his: Path) -> None:
    raftmq = python.with_name("raftmq")
    program = "import raftmq; from raftmq import Producer; import raftmq.sync; print(raftmq.__file__, Producer)"
    assert str(python.parents[1]) in run([python, "-c", program], his)
    with local(python, his) as namesrv:
        run([raftmq, "send", "kept", "hello", "-n", namesrv], his)
        shown = run([raftmq, "consume", "kept", "-n", namesrv, "--count", "1", "--timeout", "20", "--json"], his)
        assert json.loads(shown)["body"] == "hello"
        if not why_no_spark():
            (his / "read.py").write_text(READ.format(namesrv=namesrv))
            assert "['hello']" in run([python, "read.py"], his)
    stores = [f"--store={his}/cluster/{member}/store" for member in ("n0", "n1", "n2")]
    assert '"verdict": "valid"' in run([raftmq, "verify", *stores, "--json"], his)


SCENARIO = """
def test_a_leader_dies(chaos_run):
    chaos_run(faults=("kill-leader",), workloads=("send",), seconds=6, promises={"acknowledged_min": 10})
"""


def test_the_fixture_works_in_a_repository_that_has_a_package_chaos(python: Path, his: Path) -> None:
    (his / "test_his.py").write_text(SCENARIO)
    assert "1 passed" in run([python, "-m", "pytest", "-q", "test_his.py", "--chaos-dir", "runs"], his)


TYPED = """
import asyncio
import raftmq.sync
from raftmq import Message, Producer, SendResult


async def main() -> SendResult:
    async with Producer("p", "127.0.0.1:9876") as producer:
        return await producer.send(Message("orders", b"hello"), timeout=3.0)


def blocking() -> SendResult:
    with raftmq.sync.Producer("p") as producer:
        return producer.send(Message("orders", b"hello"), timeout=3.0)
"""


def test_a_type_checker_sees_the_client(python: Path, his: Path) -> None:
    mypy: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        python,
        "--no-incremental",
    ]
    # One run for all: what is read for each is most of it.
    (his / "right.py").write_text(TYPED)
    wrong = {"waits.py": "await producer.send(", "blocks.py": "return producer.send("}
    for name, call in wrong.items():
        with_typo = TYPED.replace(
            f'{call}Message("orders", b"hello"), timeout', f'{call}Message("orders", b"hello"), tiemout'
        )
        (his / name).write_text(with_typo)
    told = run([*mypy, "right.py", *wrong], his, code=1)
    found = re.findall(
        r'^(\S+?):\d+: error: Unexpected keyword argument "tiemout" for "send" of "Producer"', told, re.MULTILINE
    )
    assert sorted(found) == sorted(wrong), told
    # Of the right one not a word.
    assert "Found 2 errors in 2 files (checked 3 source files)" in told


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with what a client needs alone, and without uvloop."""
    folder = tmp_path_factory.mktemp("base")
    return environment(folder / "venv", wheel, linked(folder / "packages", BASE))


def test_what_came_compiled_is_used(bare: Path, his: Path) -> None:
    program = (
        f"from {INSIDE}.remoting.compiled import door; print(door.describe(), getattr(door.hotpath, '__name__', ''))"
    )
    told = f"compiled {INSIDE}.remoting.compiled.hotpath" if COMPILES else "pure Python ("
    assert run([bare, "-c", program], his).startswith(told)
    assert run([bare, "-c", program], his, RAFTMQ_PURE="1") == "pure Python (RAFTMQ_PURE=1) \n"


def test_the_base_is_what_a_client_needs(bare: Path, his: Path) -> None:
    program = (
        "import sys, raftmq.sync; from raftmq import Producer; import raftmq.names; print('uvloop' in sys.modules)"
    )
    assert run([bare, "-c", program], his).strip() == "False"
    program = (
        "import asyncio, raftmq.sync as s\n"
        "from raftmq import Message, SendFailed, RouteError\n"
        "with s.Producer('p', '127.0.0.1:1', retries=0, send_timeout=0.5) as producer:\n"
        "    try: producer.send(Message('T', b'x'))\n"
        "    except (SendFailed, RouteError) as error: print('refused:', type(error).__name__)\n"
    )
    assert "refused: " in run([bare, "-c", program], his)


def test_in_a_checkout_a_hidden_part_is_named(his: Path) -> None:
    told = run([sys.executable, "-c", "from raftmq import Producer"], his, code=1).splitlines()[-1]
    assert told.startswith(
        f"ImportError: RaftMQ runs from its checkout {ROOT} here, and its part 'client' is hidden by "
    )
    assert str(his / "client.py") in told


@pytest.fixture(scope="session")
def small(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the packages that `make demo` installs."""
    folder = tmp_path_factory.mktemp("demo")
    return environment(folder / "venv", wheel, linked(folder / "packages", NAMES.read_text().split()))


def linked(folder: Path, names: Sequence[str]) -> Path:
    """Return a folder with nothing but some of the packages that are installed here."""
    folder.mkdir()
    tops = {file.parts[0] for name in names for file in files(name) or ()} - {"..", "__pycache__"}
    for top in tops:
        (folder / top).symlink_to(PACKAGES / top)
    return folder


def test_the_demo_runs_with_what_make_demo_installs(small: Path, his: Path) -> None:
    assert NAMES.read_text() == demo_packages(), "run: python -m setup.demo_packages"
    assert "lost                     0" in run([small.with_name("raftmq"), "demo", "--messages", "500"], his)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("verify .", "verify"),
        ("chaos list", "chaos"),
        ("pipeline audit T", "spark"),
        ("local", "server"),
        ("demo", "demo"),
        ("topic list", "cli"),
        ("", "cli"),
    ],
)
def test_a_command_says_which_extra_it_lacks(bare: Path, his: Path, command: str, extra: str) -> None:
    (line,) = run([bare.with_name("raftmq"), *command.split()], his, code=1).splitlines()
    assert line.startswith("raftmq: ")
    assert line.endswith(f"pip install 'raftmq[{extra}]'")
