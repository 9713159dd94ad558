"""What a process still has of a client that was closed: tasks in its loop, TCP connections, threads."""

import asyncio
import contextlib
import threading
from pathlib import Path

# What a closed transport and a cancelled task may need to be gone; none of these turns waits for anything.
TURNS = 10
THREADS = ("raftmq", "consume")


async def tasks_left(ours: "set[asyncio.Task[object]]") -> list[str]:
    """Return what tasks are called that are neither `ours` nor this one, after some turns of the loop."""
    for _turn in range(TURNS):
        await asyncio.sleep(0)
    known = {*ours, asyncio.current_task()}
    return sorted(task.get_name() for task in asyncio.all_tasks() if task not in known)


def threads_left() -> list[str]:
    """Return the client's threads that run."""
    return sorted(one.name for one in threading.enumerate() if one.name.startswith(THREADS))


def connections() -> list[str]:
    """Return this process's TCP sockets as "local>remote" in the kernel's notation (Linux ``/proc``)."""
    known = dict(_tcp_sockets())
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(descriptor.readlink())
            if target.startswith("socket:[") and target[8:-1] in known:
                found.append(known[target[8:-1]])
    return sorted(found)


def _tcp_sockets() -> list[tuple[str, str]]:
    """Return (inode, ends) of the TCP sockets that there are in this network namespace."""
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]
            fields = (line.split() for line in lines)
            found += [(field[9], f"{field[1]}>{field[2]}") for field in fields if len(field) > 9]
    return found
