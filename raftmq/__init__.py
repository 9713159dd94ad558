"""RaftMQ: a message broker cluster that speaks RocketMQ's protocol, and its client library.

    async with Producer("my_producer", "127.0.0.1:9876") as producer:
        await producer.send(Message("orders", b"hello"))

These are the public names; `raftmq.sync` has the same classes without asyncio, `client` says what each one does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftmq.names import *  # noqa: F403 # these, and no others


def __getattr__(name: str) -> Any:
    """Import the client when a public name is asked for: servers and most commands need none, and start sooner."""
    if name == "__all__" or not name.startswith("_"):
        names = import_module("raftmq.names")
        if name in ("__all__", *names.__all__):
            return getattr(names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
