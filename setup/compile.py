"""Compiles the hot path (remoting/compiled/hotpath.pyx) where Cython, a C compiler and Python.h are there.

`python -m setup.compile` puts it beside its source, where remoting/compiled/door.py finds it, unless what lies there
was made of the same; the wheel's build hook says where else to, and the module's name there, which is compiled in. It
says in one line what came of it: RaftMQ does without. The exit code is 1 where it should have been compiled.
"""

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.metadata import PackageNotFoundError, version
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "remoting" / "compiled" / "hotpath.pyx"
NAME = "remoting.compiled.hotpath"
SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX")
SWITCH = "RAFTMQ_PURE"
# No -g and no -march: the same bytes wherever it is made with the same tools, and they run on any machine of the kind.
FLAGS = ("-O2", "-fwrapv", "-fPIC", "-DNDEBUG")
LINKED = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
# Some seconds is usual; a machine may have other things to do.
STEP_SECONDS_MAX = 300


class Stamp(NamedTuple):
    """What a module was made of; it is added to the module's own names."""

    source_digest: str
    built_with: str


class NotCompiled(Exception):
    """The hot path was not compiled; the text says why, in a few words."""


class CannotCompile(NotCompiled):
    """Nothing can be compiled here, or is wanted to be."""


def compiler() -> list[str]:
    """Return the C compiler's command, or nothing: $CC, or the one that made this Python, or whichever there is."""
    wanted = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    for command in (shlex.split(one) for one in wanted if one):
        if shutil.which(command[0]) is not None:
            return command
    return []


def lacking() -> str:
    """Return what of the machine is missing, or ""."""
    if not compiler():
        return "no C compiler"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return f"no Python.h (Debian: apt-get install python{sysconfig.get_python_version()}-dev)"
    return ""


def stamp(source: Path) -> Stamp:
    """Return what a module that is made now will be made of. Raises NotCompiled."""
    try:
        cython = version("cython")
    except PackageNotFoundError:
        raise CannotCompile("no Cython in this environment") from None
    digest = hashlib.sha256()
    for part in (source, *included(source)):
        digest.update(part.read_bytes())
    return Stamp(digest.hexdigest(), f"Cython {cython} {' '.join(FLAGS)}")


def included(source: Path) -> list[Path]:
    """Return the parts that a source includes: all that lie beside it."""
    return sorted(source.parent.glob("*.pxi"))


def stamp_of(module: Path) -> Stamp | None:
    """Return what a compiled module was made of; None when it cannot be loaded."""
    loader = ExtensionFileLoader(NAME, str(module))
    spec = spec_from_loader(NAME, loader)
    assert spec is not None
    try:
        loaded = module_from_spec(spec)
        loader.exec_module(loaded)
        return Stamp(loaded.SOURCE_DIGEST, loaded.BUILT_WITH)
    except (ImportError, AttributeError):
        return None


def compile_into(folder: Path, name: str, source: Path, made_of: Stamp) -> Path:
    """Compile the source as a module of a name into a folder; return where it is. Raises NotCompiled."""
    stem = source.stem
    # Nothing that is compiled may depend on where this is: relative names only.
    for part in included(source):
        shutil.copyfile(part, folder / part.name)
    text = source.read_text("utf-8")
    (folder / source.name).write_text(
        f"{text}\n\nSOURCE_DIGEST = {made_of.source_digest!r}\nBUILT_WITH = {made_of.built_with!r}\n", "utf-8"
    )
    _run([sys.executable, "-m", "cython", "-3", "--module-name", name, "-o", f"{stem}.c", source.name], folder)
    made = folder / f"{stem}{SUFFIX}"
    headers = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    includes = [f"-I{path}" for path in sorted(headers)]
    _run([*compiler(), *LINKED, *FLAGS, *includes, f"{stem}.c", "-o", made.name], folder)
    return made


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=STEP_SECONDS_MAX, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCompiled(str(error)) from error
    if done.returncode:
        told = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        places = [line for line in told if re.search(r"\.(pyx|c):\d+", line) and "warning" not in line]
        raise NotCompiled((places or told[-1:] or [f"{command[0]} ended with {done.returncode}"])[0])


def place(made: Path, target: Path) -> None:
    """Put a file where another one may be in use: whoever opens it has the one or the other."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def ensure(into: Path, name: str, source: Path, *, anew: bool) -> str:
    """See to it that the folder has the module; return what was done. Raises NotCompiled."""
    target = into / f"{source.stem}{SUFFIX}"
    if os.environ.get(SWITCH) == "1":
        raise CannotCompile(f"{SWITCH}=1")
    made_of = stamp(source)
    if not anew and target.exists() and stamp_of(target) == made_of:
        return "the hot path is compiled already"
    try:
        _compile(target, name, source, made_of, load=not anew)
    except (NotCompiled, OSError):
        # One of before is of another source, and would be a warning at every start.
        target.unlink(missing_ok=True)
        raise
    return "compiled the hot path"


def _compile(target: Path, name: str, source: Path, made_of: Stamp, *, load: bool) -> None:
    if missing := lacking():
        raise CannotCompile(missing)
    with tempfile.TemporaryDirectory(prefix="raftmq-compile-") as folder:
        made = compile_into(Path(folder), name, source, made_of)
        if load and stamp_of(made) != made_of:
            raise NotCompiled("what was compiled cannot be loaded")
        target.parent.mkdir(parents=True, exist_ok=True)
        place(made, target)


def main() -> None:
    """Compile, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--into", type=Path, help="a folder; compiled anew, and not loaded")
    parser.add_argument("--name", default=NAME, help="the module's whole name")
    given = parser.parse_args()
    into = given.into or given.source.parent
    try:
        said, failed = ensure(into, given.name, given.source.resolve(), anew=given.into is not None), False
    except (NotCompiled, OSError) as error:
        said, failed = f"{error}: the hot path runs as Python", not isinstance(error, CannotCompile)
    print(f"set-up: {said}")
    # Whoever could have it, and has not, is to try again.
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
