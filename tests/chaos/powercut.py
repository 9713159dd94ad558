"""One file system in a file, written to, shut down, filled and closed; prints what was seen, as JSON.

python -m tests.chaos.powercut FOLDER     (in a mount namespace of its own, chaos/host/namespaces.py)
python -m tests.chaos.powercut FOLDER die (ends with everything mounted)
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from chaos.host.loopdisk import BLOCK_BYTES, LoopDisk
from runtime.durable import fsync_folder

IMAGE_BYTES = 32 * 1024 * 1024
PIECE = b"x" * BLOCK_BYTES


def main() -> None:
    """Lose power, fill, drain, close."""
    folder = Path(sys.argv[1])
    disk = LoopDisk(folder / "image", folder / "device", IMAGE_BYTES)
    disk.open()
    store = disk.mount / "store"
    store.mkdir()
    if sys.argv[2:] == ["die"]:
        sys.stdout.write(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
        sys.stdout.flush()
        os._exit(3)
    fd = os.open(store / "log", os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, 100 * BLOCK_BYTES)
    write(fd, 0, 10)
    os.fsync(fd)
    fsync_folder(store)
    write(fd, 10, 5)
    os.close(fd)
    told = {"lost": disk.lose_power(), "blocks": (store / "log").read_bytes().count(PIECE)}
    told["taken"] = disk.fill()
    told["free"] = disk.free_bytes()
    fd = os.open(store / "log", os.O_RDWR)
    try:
        write(fd, 50, 1)
    except OSError as error:
        told["full"] = error.errno
    # What takes the room is durable, as it is when a member syncs a file of its own in the meantime.
    fsync_folder(disk.mount)
    disk.drain()
    os.close(fd)
    disk.lose_power()
    told["free_again"] = disk.free_bytes()
    fd = os.open(store / "log", os.O_RDWR)
    write(fd, 50, 1)
    os.fsync(fd)
    os.close(fd)
    disk.close()
    told["kept"] = (store / "log").read_bytes().count(PIECE)
    told["mounted"] = str(disk.mount) in Path("/proc/self/mounts").read_text(encoding="utf-8")
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(told))


def write(fd: int, first: int, count: int) -> None:
    """Write blocks one by one."""
    for number in range(first, first + count):
        os.pwrite(fd, PIECE, number * BLOCK_BYTES)


if __name__ == "__main__":
    main()
