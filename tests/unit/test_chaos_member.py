"""What a member's process has that a broker as deployed does not."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, time
from pathlib import Path
from chaos.faults.clock import set_clock
from chaos.site.member import turn_clock

told = Path(sys.argv[1])
real, real_ns, steady = time.time(), time.time_ns(), time.monotonic()
turn_clock(told)
for ahead in (7200, -60, 0):
    set_clock(told, ahead)
    while abs(time.time() - real - ahead) > 5 or abs(time.time_ns() - real_ns - ahead * 10**9) > 5 * 10**9:
        time.sleep(0.01)
assert time.monotonic() - steady < 60
print("jumped")
"""


def test_a_wall_clock_jumps_forward_back_and_home_while_the_monotonic_one_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "clock")], capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "jumped\n", done.stderr


DIALS = """
import asyncio, json
from chaos.site.member import redirect
from runtime.loop import Loop

made = []

async def connect(self, factory, host=None, port=None, **options):
    made.append((host, port, options))

Loop.create_connection = connect
redirect({"10.77.0.2:40911": "127.0.0.1:5"})

async def dial():
    for options in ({}, {"ssl": "context"}, {"ssl": "context", "server_hostname": "n1"}):
        await Loop.create_connection(None, None, "10.77.0.2", 40911, **options)
    await Loop.create_connection(None, None, "10.77.0.3", 40911, ssl="context")

asyncio.run(dial())
print(json.dumps(made))
"""


def test_behind_a_proxy_the_certificate_of_who_is_meant_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", DIALS], capture_output=True, text=True, timeout=30)
    assert json.loads(done.stdout) == [
        ["127.0.0.1", 5, {}],
        ["127.0.0.1", 5, {"ssl": "context", "server_hostname": "10.77.0.2"}],
        ["127.0.0.1", 5, {"ssl": "context", "server_hostname": "n1"}],
        ["10.77.0.3", 40911, {"ssl": "context"}],
    ], done.stderr


SYNCS = """
import errno, json, os, select, sys, time
from pathlib import Path
from chaos.host.powerloss import UndoFile, unsynced
from chaos.site.member import DiskFaults, watch_disk
from store.files.disk import Disk

folder = Path(sys.argv[1])
undo, told = folder / "undo", folder / "disk.json"
watch_disk(UndoFile(undo), DiskFaults(told))
disk = Disk()
fds = [disk.create(folder / name, 4096) for name in ("a", "b", "floor")]
syncs = disk.make_syncs()

def lost():
    return sorted(Path(write.path).name for write in unsynced(undo))

def write(*fds):
    for fd in fds:
        disk.pwrite(fd, os.urandom(100), 0)

def finished():
    results = []
    while syncs.under_way:
        assert select.select([syncs], [], [], 10)[0]
        results += syncs.collect()
    return [error and error.errno for error in results]

story = {}
write(fds[0], fds[1], fds[2])
disk.hand_over(fds[2], 0, 100)
before = lost()
taken = syncs.submit(fds[:2])
story["asked"] = [before, taken, lost()]
story["synced"] = [finished(), lost()]

write(fds[0])
syncs.submit(fds[:1])
write(fds[0])
story["written meanwhile"] = [finished(), lost()]

told.write_text(json.dumps({"fsync_ms": 1500}))
began = time.monotonic()
copy = os.dup(fds[0])
syncs.submit([copy, fds[1]])
os.close(copy)
at_once = time.monotonic() - began < 2.8 and syncs.collect() == []
story["slow"] = [at_once, finished(), time.monotonic() - began >= 3.0, lost()]

told.write_text(json.dumps({"fsync_errno": 5}))
write(fds[0])
syncs.submit(fds[:1])
story["failing"] = [finished(), lost()]
syncs.submit(fds[:1])
story["failing, waited for"] = [[error.errno for error in syncs.wait()], lost()]
told.unlink()
syncs.submit(fds[:1])
story["healed, waited for"] = [syncs.wait(), lost()]
syncs.close()

real, Disk.fdatasync = Disk.fdatasync, lambda self, fd: None
story["planted"] = disk.make_syncs()
print(json.dumps(story))
"""


def test_faults_and_notes_reach_the_kernel_s_syncs_as_well(tmp_path: Path) -> None:
    """A power cut may take what no sync covered; a disk that is slow or fails is so for the kernel's syncs too."""
    done = subprocess.run([sys.executable, "-c", SYNCS, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == {
        "asked": [["a", "b", "floor"], 2, ["a", "b", "floor"]],
        # With the device before: any sync makes it durable.
        "synced": [[None, None], []],
        "written meanwhile": [[None], ["a"]],
        "slow": [True, [None, None], True, []],
        "failing": [[5], ["a"]],
        "failing, waited for": [[5], ["a"]],
        "healed, waited for": [[None], []],
        # Whose fdatasync lies must not find that the kernel is asked in its place.
        "planted": None,
    }
