"""A small file system, in memory or an ext4 in a file, that real processes keep their stores on and that can be full.

It is mounted in a mount namespace of its own, which a process holds that ends with its standard input: whatever ends
this one, nothing is left. Servers are brought into it by nsenter; from here it is reached through /proc.
"""

import os
import subprocess
from pathlib import Path

from chaos.host.loopdisk import MAKE
from chaos.host.namespaces import tool
from chaos.host.processes import ServerProcess

_HOLD = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'
# The loop device goes with the mount.
_HOLD_EXT4 = (
    f'truncate -s "$1" "$2.ext4" && mkfs.ext4 {" ".join(MAKE)} "$2.ext4" && mount -t ext4 -o loop "$2.ext4" "$2"'
    " && echo mounted && exec cat"
)
BALLAST = "ballast"
_PIECE = bytes(4096)


class NoNamespace(Exception):
    """It cannot be had here; the text says why."""


class SmallDisk:
    """Mounted at `path` for those who run in it."""

    def __init__(self, path: Path, size_bytes: int, *, ext4: bool = False) -> None:
        """An ext4 keeps 4 MiB of it for its journal, and takes root."""
        unshare, nsenter, mount = tool("unshare"), tool("nsenter"), tool("mount")
        if unshare is None or nsenter is None or mount is None:
            raise NoNamespace("unshare, nsenter or mount is not installed")
        path.mkdir(parents=True, exist_ok=True)
        root = os.geteuid() == 0
        self._holder = subprocess.Popen(
            [unshare, *([] if root else ["--user", "--map-root-user"]), "--mount", "--",
             "sh", "-c", _HOLD_EXT4 if ext4 else _HOLD, "sh", str(size_bytes), str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        pipes = self._holder.stdin, self._holder.stdout, self._holder.stderr
        self._pipes = [pipe for pipe in pipes if pipe is not None]
        assert self._holder.stdout is not None, "it is a pipe"
        if self._holder.stdout.readline() != b"mounted\n":
            assert self._holder.stderr is not None, "it is a pipe"
            self._holder.kill()
            why = self._holder.stderr.read().decode(errors="replace").strip()
            self.close()
            raise NoNamespace(f"no file system can be mounted in a namespace: {why}")
        user = [] if root else ["--user", "--preserve-credentials"]
        self._enter = [nsenter, f"--target={self._holder.pid}", *user, "--mount", "--"]
        self.path = Path(f"/proc/{self._holder.pid}/root{path}")

    def take(self, process: ServerProcess) -> None:
        """Have a server started on it from now on."""
        process.within = self._enter

    def fill(self, spare: int = 0) -> None:
        """Take all the room that is left but so many bytes."""
        found = os.statvfs(self.path)
        left = found.f_bavail * found.f_frsize - spare
        with (self.path / BALLAST).open("ab", buffering=0) as file:
            while left > 0:
                try:
                    left -= file.write(_PIECE)
                except OSError:
                    return

    def drain(self) -> None:
        """Give the room back."""
        (self.path / BALLAST).unlink()

    def close(self) -> None:
        """Give everything up; whoever runs on it must be dead."""
        for pipe in self._pipes:
            pipe.close()
        self._holder.kill()
        self._holder.wait()
