"""The folder of a local cluster that is started again and again: who uses it, and what its servers are to keep.

The configuration files are the memory: a Raft group knows its members by address, so a member must come back at its
port, and what a person (or `raftmq cluster config --set`) wrote there is to stay.
"""

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from runtime.config import ConfigError, load_properties

LOCK_NAME = "local.lock"
ELSE = "use that cluster, end it with Ctrl-C, or give this one a folder of its own (--dir)"
# How long servers may take to go whose command was killed (chaos/host/guard.py), on a busy machine.
ENDING_S, POLL_S = 5.0, 0.05
CONFIG_NAMES = frozenset({"broker.conf", "namesrv.conf"})
_CONFIG_NAMES = frozenset(map(os.fsencode, CONFIG_NAMES))
PROC = Path("/proc")
# struct flock of fcntl(2) on Linux, 64 bits: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
_PID_DIGITS_MAX = 20
_PORT_KEYS = ("listenPort", "httpPort", "haListenPort")


class FolderInUse(Exception):
    """Somebody else's servers work on the folder; the text says whose, and what to do."""


@contextlib.contextmanager
def taken(
    folder: Path,
    *,
    servers: Path | None = None,
    lock_name: str = LOCK_NAME,
    by: str = "raftmq local",
    else_: str = ELSE,
) -> Iterator[None]:
    """Have the folder alone as long as the block runs; raises FolderInUse (nothing is changed then), OSError.

    `servers` is where the folders of the servers are, this one unless it is said; `by` is the command that may have it
    already, and `else_` what to do then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The lock ends with this process, however that ends; servers that were started by hand do not.
    lock = os.open(folder / lock_name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, _PID_DIGITS_MAX, 0).decode("ascii", errors="replace").strip()
            raise FolderInUse(
                f"{folder} is used by another `{by}`, process {holder or '(not known)'}: {else_}"
            ) from None
        if found := _remaining((servers or folder).resolve()):
            named = ", ".join(f"{name} (process {pid or 'not known'})" for name, pid in found)
            pids = " ".join(str(pid) for _, pid in found if pid)
            raise FolderInUse(
                f"{folder} is used by {named}: end that first" + (f" (kill {pids})" if pids else "") + ", or give this "
                "cluster a folder of its own (--dir)"
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


def _remaining(folder: Path) -> list[tuple[str, int]]:
    """Return `users`, without those of a command that was just killed, which end with it a moment later."""
    deadline = time.monotonic() + ENDING_S
    while (found := users(folder)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


def users(folder: Path) -> list[tuple[str, int]]:
    """Return the servers that work in the folder, by their own folder's name, and their process ids (0: not known)."""
    found = {pid: name for name, pid in _started_with(folder)}
    unknown = []
    for path in sorted(folder.glob("*/store/lock")):
        pid = _lock_holder(path)
        if pid is not None:
            name = path.parent.parent.name
            if pid > 0:
                found.setdefault(pid, name)
            else:
                unknown.append((name, 0))
    return sorted([*((name, pid) for pid, name in found.items()), *unknown])


def kept_values(path: Path) -> dict[str, str]:
    """Return what a configuration file says, nothing when there is none; raises ConfigError."""
    return load_properties(path) if path.exists() else {}


def kept_port(path: Path, key: str) -> int:
    """Return the port that a configuration file gives, 0 when it gives none; raises ConfigError."""
    text = kept_values(path).get(key, "0")
    try:
        return max(int(text), 0)
    except ValueError:
        raise ConfigError(f"{path}: {key}={text}: it takes a whole number") from None


def kept_ports(folder: Path) -> set[int]:
    """Return all ports that the configuration files of a cluster's servers give; raises ConfigError."""
    given = {kept_port(path, key) for name in CONFIG_NAMES for path in folder.glob(f"*/{name}") for key in _PORT_KEYS}
    return given | set(kept_peers(folder).values())


def kept_peers(folder: Path) -> dict[str, int]:
    """Return the members of the Raft group whose files are in the folder, and their Raft ports; raises ConfigError."""
    for path in sorted(folder.glob("n*/broker.conf")):
        if text := kept_values(path).get("dLegerPeers", ""):
            parts = [peer.strip().partition("-") for peer in text.split(";") if peer.strip()]
            try:
                return {member: int(address.rpartition(":")[2]) for member, _, address in parts}
            except ValueError:
                raise ConfigError(f"{path}: dLegerPeers={text}: a member is written as n0-host:port") from None
    return {}


def kept_nodes(folder: Path) -> int:
    """Return how many brokers the cluster in the folder has, 0 when there is none; raises ConfigError."""
    return len(kept_peers(folder)) or int((folder / "broker" / "broker.conf").exists())


def _lock_holder(path: Path) -> int | None:
    """Return the process that has locked a store (-1, 0: it is not known here), None when nobody has."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Byte 0, as store/files/lockfile.py and RocketMQ lock it.
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _started_with(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the processes that were started with a configuration file of the folder: a NameServer locks nothing."""
    for process in PROC.glob("[0-9]*"):
        # Another user's processes, and those that end meanwhile, cannot be looked at.
        with contextlib.suppress(OSError):
            here = (process / "cwd").readlink()
            for argument in (process / "cmdline").read_bytes().split(b"\0"):
                # By name first: a command line may have arguments by the ten thousand.
                if argument.rpartition(b"/")[2] in _CONFIG_NAMES:
                    path = (here / os.fsdecode(argument)).resolve()
                    if path.parent.parent == folder:
                        yield path.parent.name, int(process.name)
