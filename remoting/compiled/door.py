"""The one door to the compiled hot path: `hotpath` is the module, or None where the Python it stands for has to run.

None where it was not built, where RAFTMQ_PURE=1 says so, and where it was made of another source than lies beside it.
Whoever has a compiled way and one in Python chooses once, when imported, by COMPILED: type checkers see both ways then,
and take `hotpath` for the module that its stub describes.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

__all__ = ("COMPILED", "describe", "hotpath", "stale", "wants_python")

_log = logging.getLogger(__name__)

SWITCH = "RAFTMQ_PURE"
# Of an installed package there is none: what is compiled came with it.
SOURCE = Path(__file__).with_name("hotpath.pyx")


def wants_python(environment: Mapping[str, str]) -> bool:
    """Tell whether the environment asks for no compiled code. Raises ValueError."""
    given = environment.get(SWITCH, "")
    if given not in {"", "0", "1"}:
        raise ValueError(f"{SWITCH} is {given!r}: 1 turns the compiled hot path off, 0 or nothing leaves it on")
    return given == "1"


def stale(built_from: str, source: Path) -> bool:
    """Tell whether a source is there, and is not, with what it includes, the one with the digest that was built."""
    if not source.exists():
        return False
    digest = hashlib.sha256()
    for part in (source, *sorted(source.parent.glob("*.pxi"))):
        digest.update(part.read_bytes())
    return digest.hexdigest() != built_from


def _why_not() -> str:
    """Return why there is nothing compiled to use, or ""."""
    if wants_python(os.environ):
        return f"{SWITCH}=1"
    try:
        from remoting.compiled import hotpath as built
    except Exception as error:
        # ImportError is Python's word for a name that a package lacks; what is there and cannot be loaded may have any.
        if isinstance(error, ImportError) and error.name == __package__:
            return "not built"
        _log.warning("the compiled hot path cannot be loaded (%s): Python runs instead; `make venv` builds it", error)
        return "what was built cannot be loaded"
    if stale(getattr(built, "SOURCE_DIGEST", ""), SOURCE):
        _log.warning("the compiled hot path is not of this source: Python runs instead; `make venv` builds it anew")
        return "what was built is of another source"
    return ""


_WHY_NOT = _why_not()
COMPILED = not _WHY_NOT

if TYPE_CHECKING or COMPILED:
    from remoting.compiled import hotpath
else:
    hotpath = None


def describe() -> str:
    """Return which of the two runs, for people."""
    return "compiled" if COMPILED else f"pure Python ({_WHY_NOT})"
