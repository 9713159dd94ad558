"""RaftMQ: a message broker cluster that speaks RocketMQ's protocol, and its client library.

    async with Producer("my_producer", "127.0.0.1:9876") as producer:
        await producer.send(Message("orders", b"hello"))

These are the public names; `raftmq.sync` has the same classes without asyncio, `client` says what each one does.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftmq.names import *  # noqa: F403 # these, and no others


# In a checkout they are found by these names, which a user's file may have too; in the wheel they are inside.
_PARTS = ("client", "remoting", "raft", "runtime")


def _check_parts() -> None:
    """Raise ImportError for a module of another's that hides a part of a checkout."""
    root = Path(__file__).resolve().parent.parent
    for part in _PARTS if (root / "client").is_dir() else ():
        spec = find_spec(part)
        origin = spec.origin if spec is not None else None
        if origin is None or Path(origin).resolve().parent != root / part:
            raise ImportError(
                f"RaftMQ runs from its checkout {root} here, and its part {part!r} is hidden by "
                f"{origin or 'something without a file'}: rename that, or install RaftMQ as a wheel"
            )


def __getattr__(name: str) -> Any:
    """Import the client when a public name is asked for: servers and most commands need none, and start sooner."""
    if name == "__all__" or not name.startswith("_"):
        _check_parts()
        names = import_module("raftmq.names")
        if name in ("__all__", *names.__all__):
            return getattr(names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
