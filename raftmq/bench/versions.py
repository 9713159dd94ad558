"""Two versions of RaftMQ on one interpreter: this tree, and the wheel, folder or release that it is compared with.

A version is a folder that Python's variable PYTHONPATH names for its servers, so nothing is installed: a wheel is
unpacked, a release built from its tag first. What packages both need are those of this interpreter.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from chaos.host.processes import ProcessError

TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
# Unpacking, asking git, importing a broker; building a wheel.
SHORT_S, BUILD_S = 100.0, 300.0
WHAT_TO_GIVE = (
    "there is nothing to compare with: give the last release's wheel (--wheel FILE), another checkout (--base DIR), or"
    " run it where git has a release's tag (vX.Y.Z)"
)
# Run as the servers of a version are: where each module of a broker comes from, and which version that says it is.
_PROBE = """
import importlib, importlib.metadata, importlib.util, json, sys
inside = "raftmq._lib." if importlib.util.find_spec("raftmq._lib") else ""
importlib.import_module("raftmq.cli.main")
importlib.import_module(inside + "broker.main")
parts = {"raftmq", "auth", "broker", "raft", "remoting", "runtime", "store"}
found = {name: module.__file__ for name, module in sys.modules.items()
         if name.split(".")[0] in parts and getattr(module, "__file__", None)}
told = [str(found[inside + "broker.main"]), sorted(found.values()), None, "pure Python"]
if importlib.util.find_spec(inside + "remoting.compiled") is not None:
    told[3] = importlib.import_module(inside + "remoting.compiled.door").describe()
try:
    about = importlib.metadata.distribution("raftmq")
    told[2] = [about.version, str(about.locate_file(""))]
except importlib.metadata.PackageNotFoundError:
    pass
print(json.dumps(told))
"""


class NoBase(Exception):
    """There is no version to compare with, or it is none; the text says what to give."""


@dataclass(frozen=True, slots=True)
class RunVersion:
    """A version whose servers can be started: `folder` is where its packages lie."""

    source: str
    """A wheel, a folder, or a release's tag."""
    version: str
    commit: str
    """Of a checkout, with "+" for changes that are in no commit; "" where that is not known."""
    loaded_from: str
    """The file of the broker's main module, as the interpreter that runs it says."""
    folder: Path
    hot_path: str
    """Which of the two runs: "compiled", or "pure Python" and why."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which its servers are started."""
        return _environment(self.folder)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**asdict(self), "folder": str(self.folder)}

    def __str__(self) -> str:
        commit = f", commit {self.commit}" if self.commit else ""
        return f"{self.version} ({self.source}{commit}), hot path {self.hot_path}, loaded from {self.loaded_from}"


def this_version() -> RunVersion:
    """Return the version that this process is of. Raises ProcessError."""
    return proved(this_folder(), f"folder {this_folder()}")


def this_folder() -> Path:
    """Return the folder that this process has its own package from: a checkout, or where it is installed."""
    return Path(__file__).resolve().parents[2]


@contextmanager
def base_version(wheel: Path | None, tree: Path | None) -> Iterator[RunVersion]:
    """Give the version to compare with: a wheel's, a checkout's, or that of the newest tag here, whose wheel is built.

    Raises NoBase, ProcessError.
    """
    if wheel is not None and tree is not None:
        raise NoBase("--wheel and --base are two versions: give one of them")
    if tree is not None:
        if not (tree / "raftmq" / "cli" / "main.py").is_file():
            raise NoBase(f"--base {tree}: that is no checkout of RaftMQ (it has no raftmq/cli/main.py)")
        yield proved(tree.resolve(), f"folder {tree.resolve()}")
        return
    with tempfile.TemporaryDirectory(prefix="raftmq-base-") as name:
        folder = Path(name).resolve()
        source, commit = f"wheel {wheel}", ""
        if wheel is None:
            tag = newest_tag(this_folder())
            if tag is None:
                raise NoBase(WHAT_TO_GIVE)
            wheel, source = built_of_tag(tag, folder), f"tag {tag}"
            commit = _said(["git", "rev-parse", "--short", f"{tag}^{{commit}}"], this_folder()).strip()
        unpack(wheel, folder / "unpacked")
        yield proved(folder / "unpacked", source, commit)


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack a wheel, which has all that its servers need but other packages. Raises NoBase."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            # Names that lead out of the folder are cut by extractall.
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise NoBase(f"--wheel {wheel}: that cannot be unpacked: {error}") from error
    if not (folder / "raftmq" / "cli" / "main.py").is_file():
        raise NoBase(f"--wheel {wheel}: that is no wheel of RaftMQ (it has no raftmq/cli/main.py)")


def newest_tag(checkout: Path) -> str | None:
    """Return the tag vX.Y.Z of the highest version that git knows there, None when there is none or no git."""
    if not (checkout / ".git").exists():
        # Installed somewhere below a repository of somebody else's.
        return None
    try:
        told = _said(["git", "tag", "--list", "v*"], checkout)
    except ProcessError:
        return None
    found = [(tuple(map(int, match.groups())), tag) for tag in told.split() if (match := TAG.fullmatch(tag))]
    return max(found)[1] if found else None


def built_of_tag(tag: str, folder: Path) -> Path:
    """Build the wheel of a tag of this checkout below `folder`. Raises ProcessError."""
    if importlib.util.find_spec("hatchling") is None:
        raise ProcessError(f"the wheel of {tag} is built by hatchling, which is not installed: `make venv` brings it")
    tree, out = folder / "tree", folder / "wheel"
    tree.mkdir()
    archive = folder / "tree.tar"
    _said(["git", "archive", "--output", str(archive), tag], this_folder())
    _said(["tar", "-xf", str(archive), "-C", str(tree)], folder)
    _said([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], tree, BUILD_S)
    (made,) = out.glob("*.whl")
    return made


def proved(folder: Path, source: str, commit: str = "") -> RunVersion:
    """Ask the interpreter what servers with this folder run. Raises ProcessError, when that is something else too."""
    told = _said([sys.executable, "-P", "-c", _PROBE], folder, more=_environment(folder))
    main, files, about, hot_path = orjson.loads(told.splitlines()[-1])
    strange = [file for file in files if not Path(file).resolve().is_relative_to(folder)]
    if strange:
        raise ProcessError(f"servers of {source} would run {strange[0]}, which lies elsewhere: what is to be measured?")
    if about is not None and Path(about[1]).resolve() == folder:
        version = str(about[0])
    else:
        # A checkout: what is installed beside it is another one.
        version = _declared(folder / "pyproject.toml")
    return RunVersion(source, version, commit or _commit(folder), str(main), folder, str(hot_path))


def _declared(project: Path) -> str:
    try:
        return str(tomllib.loads(project.read_text("utf-8"))["project"]["version"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return "unknown"


def _commit(folder: Path) -> str:
    """Return the commit of a checkout's root, "" of any other folder."""
    if not (folder / ".git").exists():
        return ""
    try:
        commit = _said(["git", "rev-parse", "--short", "HEAD"], folder).strip()
        changed = _said(["git", "status", "--porcelain", "--untracked-files=no"], folder).strip()
    except ProcessError:
        return ""
    return f"{commit}+" if changed else commit


def _environment(folder: Path) -> dict[str, str]:
    # Where this interpreter has its packages from may be told by the same variable.
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), others]))}


def _said(command: list[str], folder: Path, timeout_s: float = SHORT_S, more: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it printed. Raises ProcessError with its last line when it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(more or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise ProcessError(f"{command[0]} cannot be run: {error}") from error
    except subprocess.TimeoutExpired:
        raise ProcessError(f"{' '.join(command[:3])} in {folder} did not end within {timeout_s:g} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise ProcessError(f"{' '.join(command[:3])} failed in {folder}: {last}")
    return done.stdout
