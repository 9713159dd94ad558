"""A broker that notes when it does what: `python -m raftmq.bench.traced_broker --marks FILE broker -c FILE`.

For measuring only. The broker is started as the command starts it; before that a few methods on a send's way through a
Raft group get a wrapper that notes the time (SEAMS), and links and connections a transport that does. So what is
deployed has no marks in it. Times are the machine's monotonic clock, so those of several processes compare. SIGUSR1 has
the marks written into the file: JSON, a list of [nanoseconds, kind, of whom, number].
"""

import argparse
import asyncio
import importlib
import os
import runpy
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import orjson

# The broker is started as the command starts it; it is no import of ours.
COMMAND = "raftmq.cli.main"
# Marks that are kept, some 150 bytes each; then the oldest go. A send makes about ten at a member.
MARKS_MAX = 1_000_000

# Kinds of marks, and what their number is.
READ, WRITTEN = "read", "written"
"""Bytes came, or were handed to the kernel: of a client or of the member that is named."""
PROPOSED = "proposed"
APPENDED = "appended"
"""A proposal is in the log: its index."""
SYNC_BEGUN, SYNCED = "sync begun", "synced"
DURABLE = "durable"
"""The member was told that its log is on its disk up to an index."""
COMMITTED = "committed"
"""The broker was told that the group has agreed up to an index."""
ANSWERED = "answered"
"""A send was answered: its opaque."""
CLIENT = "client"

TracedMark = tuple[int, str, str, int]


class Seam(NamedTuple):
    """A method that is wrapped: the module and class that has it, and its name; the first of several that is there."""

    module: str
    owner: str
    methods: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.owner}.{' or '.join(self.methods)} in {self.module}"


class SeamMissing(Exception):
    """The code has no such method any more; the text names it."""


CONNECTION_MADE = Seam("remoting.connection", "Connection", ("connection_made",))
CONNECTION_READ = Seam("remoting.connection", "Connection", ("data_received", "buffer_updated"))
LINK_MADE = Seam("raft.network.link", "Link", ("connection_made",))
LINK_READ = Seam("raft.network.link", "Link", ("buffer_updated", "data_received"))
PROPOSE = Seam("raft.core.node", "RaftNode", ("propose",))
NODE_DURABLE = Seam("raft.core.node", "RaftNode", ("durable",))
KERNEL_SUBMIT = Seam("store.files.kernelsync", "KernelSyncs", ("submit",))
KERNEL_COLLECT = Seam("store.files.kernelsync", "KernelSyncs", ("collect",))
THREAD_SYNC = Seam("store.log.commitlog", "CommitLog", ("sync",))
COMMIT = Seam("broker.raft_group.member", "RaftGroup", ("on_commit",))
ANSWER = Seam("broker.messages.send_answers", "SendAnswers", ("stored",))
SEAMS = (
    CONNECTION_MADE, CONNECTION_READ, LINK_MADE, LINK_READ, PROPOSE, NODE_DURABLE, KERNEL_SUBMIT, KERNEL_COLLECT,
    THREAD_SYNC, COMMIT, ANSWER,
)  # fmt: skip


def found(seam: Seam) -> tuple[type, str]:
    """Return the class of a seam and the name of its method. Raises SeamMissing."""
    try:
        owner = getattr(importlib.import_module(seam.module), seam.owner)
    except (ImportError, AttributeError):
        owner = object
    # Its own, not what it has of asyncio's protocols, which nobody calls then.
    own = [name for name in seam.methods if name in vars(owner)]
    if not own:
        raise SeamMissing(f"there is no {seam} any more: raftmq/bench/traced_broker.py must learn where that went")
    return owner, own[0]


class TracedTransport:
    """A transport that notes when it is written to; everything else is the other one's."""

    def __init__(self, transport: asyncio.Transport, noted: Callable[[], None]) -> None:
        self._transport = transport
        self._noted = noted

    def write(self, data: bytes | memoryview) -> None:
        """Write."""
        # Before: whoever is written to may have it before this returns.
        self._noted()
        self._transport.write(data)

    def writelines(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write several pieces."""
        self._noted()
        self._transport.writelines(pieces)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._transport, name)
        # Next time it is found at once.
        setattr(self, name, value)
        return value


class Marks:
    """What a process has noted; for any thread."""

    def __init__(self) -> None:
        self._kept: deque[TracedMark] = deque(maxlen=MARKS_MAX)

    def note(self, kind: str, whose: str = "", number: int = 0) -> None:
        """Note that something happens now."""
        self._kept.append((time.monotonic_ns(), kind, whose, number))

    def write(self, path: Path) -> None:
        """Write all of them into a file, which is there once it is whole."""
        beside = path.with_name(f"{path.name}.part")
        beside.write_bytes(orjson.dumps(list(self._kept)))
        beside.replace(path)

    def install(self) -> None:
        """Wrap every seam. Raises SeamMissing."""
        note = self.note
        self._around(PROPOSE, self._proposing)
        self._before(NODE_DURABLE, lambda _node, index, *_: note(DURABLE, "", index))
        self._before(COMMIT, lambda _group, index, *_: note(COMMITTED, "", index))
        self._before(ANSWER, lambda _answers, _connection, request, *_: note(ANSWERED, "", request.opaque))
        self._before(CONNECTION_READ, lambda *_: note(READ, CLIENT))
        self._before(LINK_READ, lambda link, *_: note(READ, link.peer))
        self._around(CONNECTION_MADE, lambda made: self._with_transport(made, lambda _: CLIENT))
        self._around(LINK_MADE, lambda made: self._with_transport(made, lambda link: str(link.peer)))
        for seam in (THREAD_SYNC, KERNEL_SUBMIT):
            self._before(seam, lambda *_: note(SYNC_BEGUN))
        self._after(THREAD_SYNC, lambda _log: note(SYNCED))
        self._after(KERNEL_COLLECT, lambda kernel: None if kernel.under_way else note(SYNCED))

    def _proposing(self, propose: Callable[..., Any]) -> Callable[..., Any]:
        def noted(node: Any, append: Callable[[int, int], int], *rest: Any) -> Any:
            def placed(term: int, commit: int) -> int:
                index = append(term, commit)
                self.note(APPENDED, "", index)
                return index

            self.note(PROPOSED)
            return propose(node, placed, *rest)

        return noted

    def _with_transport(self, made: Callable[..., Any], whose: Callable[[Any], str]) -> Callable[..., Any]:
        def noted(protocol: Any, transport: asyncio.Transport) -> None:
            made(protocol, TracedTransport(transport, lambda: self.note(WRITTEN, whose(protocol))))

        return noted

    def _before(self, seam: Seam, note: Callable[..., None]) -> None:
        def around(method: Callable[..., Any]) -> Callable[..., Any]:
            def noted(*arguments: Any, **named: Any) -> Any:
                note(*arguments)
                return method(*arguments, **named)

            return noted

        self._around(seam, around)

    def _after(self, seam: Seam, note: Callable[[Any], None]) -> None:
        def around(method: Callable[..., Any]) -> Callable[..., Any]:
            def noted(owner: Any, *arguments: Any, **named: Any) -> Any:
                result = method(owner, *arguments, **named)
                note(owner)
                return result

            return noted

        self._around(seam, around)

    @staticmethod
    def _around(seam: Seam, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        owner, name = found(seam)
        method = getattr(owner, name)
        setattr(owner, name, wraps(method)(around(method)))


def main() -> None:
    """Read our own arguments, hand the rest to the raftmq command."""
    parser = argparse.ArgumentParser(prog="python -m raftmq.bench.traced_broker")
    parser.add_argument("--marks", type=Path, required=True)
    options, rest = parser.parse_known_args()
    # As raftmq/cli/main.py has it, before anything imports NumPy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    marks = Marks()
    try:
        marks.install()
    except SeamMissing as error:
        sys.exit(f"raftmq: {error}")
    signal.signal(signal.SIGUSR1, lambda *_: marks.write(options.marks))
    sys.argv = ["raftmq", *rest]
    runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
