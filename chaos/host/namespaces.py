"""A run in namespaces of its own: what it makes there (interfaces, mounts, processes) the kernel takes away with it.

The first process of a new PID namespace (chaos/runs/namespace_main.py) makes the run, in a mount namespace of its own,
and in a network namespace of its own where the scenario asks for one, which has no way out. When that process ends, by
whatever, or when the process that started it is gone and its standard input ends, the kernel kills everything in
there, and nothing is left: no interface, no mount, no loop device, no broker. Root needs no user namespace; all others
get one.
"""

import asyncio
import contextlib
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from chaos.host.interpreter import MODULE

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
# Set in the process that makes the run, so that it makes it itself.
MARK = "RAFTMQ_CHAOS_INSIDE"
LINE_BYTES_MAX = 1024 * 1024
Say = Callable[[str, int], None]


class InsideError(Exception):
    """The run in there broke down; the text says why."""


def tool(name: str) -> str | None:
    """Return where a program is, also one of those that only administrators have on their PATH; None without it."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *SBIN)))


def unshare(*, network: bool) -> list[str]:
    """Return the command that runs what follows in namespaces of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    net = ["--net"] if network else []
    return ["unshare", *user, *net, "--mount", "--mount-proc", "--pid", "--fork", "--kill-child", "--"]


def is_inside() -> bool:
    """Tell whether this process is the one that makes a run in namespaces of its own."""
    return MARK in os.environ


def environment() -> Mapping[str, str]:
    """Return the variables of a program that imports what this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


async def make_run(what: object, folder: Path, *, network: bool, say: Say | None) -> None:
    """Have namespace_main make the run in `folder`, an absolute path, that `what` describes; raises InsideError.

    The progress of that run is told to `say`. When this is cancelled, everything in there is killed.
    """
    try:
        described = pickle.dumps(what)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InsideError(f"this scenario cannot be handed to another process: {error}") from error
    async with _process(folder, network) as process:
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        # Its standard input stays open: the end of it says that we are gone.
        process.stdin.write(len(described).to_bytes(8, "big") + described)
        why = ""
        while line := await process.stdout.readline():
            told = _told(line)
            why = str(told.get("error", why))
            if "say" in told and say is not None:
                say(str(told["say"]), int(told["acknowledged"]))
        code = await process.wait()
    if code or why:
        raise InsideError(why or f"the run in namespaces of its own ended with {code}; see {folder}")


def _told(line: bytes) -> dict[str, Any]:
    """Return what a line tells; whatever else is printed in there is none of it."""
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}


@contextlib.asynccontextmanager
async def _process(folder: Path, network: bool) -> AsyncIterator[asyncio.subprocess.Process]:
    # Ports are locked by files: those of a network of its own are nobody else's, whose lock files it may not write.
    own = {"TMPDIR": tempfile.mkdtemp(prefix="tmp-", dir=folder)} if network else {}
    process = await asyncio.create_subprocess_exec(
        *unshare(network=network), *MODULE, "chaos.runs.namespace_main", str(folder),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**environment(), **own, MARK: "1"}, limit=LINE_BYTES_MAX, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        for path in own.values():
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
