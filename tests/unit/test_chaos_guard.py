"""The watcher of servers: they end with the process that started them, whatever ended that, and nobody else does."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.host.guard import began

# Starts a child and has it watched, tells its id, and stays.
PARENT = """
import subprocess, sys, time
from chaos.host.guard import watch
children = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
for child in children:
    watch(child.pid)
ended = subprocess.Popen(["true"])
watch(ended.pid)
ended.wait()
print(*(child.pid for child in children), flush=True)
sys.stdin.read(1)
"""
GONE_S = 20


def ends(held: int) -> bool:
    """Tell whether a process ends."""
    return bool(select.select([held], [], [], GONE_S)[0])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_servers_end_with_the_process_that_started_them(how: signal.Signals | None) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        held = [os.pidfd_open(int(word)) for word in parent.stdout.readline().split()]
        try:
            assert len(held) == 2
            assert not select.select(held, [], [], 0)[0]
            if how is None:
                # In good order, without having ended them.
                parent.communicate(b"x", timeout=GONE_S)
            else:
                parent.send_signal(how)
                parent.wait(GONE_S)
            assert all(ends(one) for one in held)
        finally:
            for one in held:
                os.close(one)


def test_a_later_process_of_the_same_id_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        guard = Path(__file__).parents[2] / "chaos" / "host" / "guard.py"
        told = f"{other.pid} {int(began(other.pid)) - 1}\n999999999 1\n"
        subprocess.run([sys.executable, "-I", "-S", str(guard)], input=told, text=True, timeout=GONE_S, check=True)
        assert other.poll() is None
        told = f"{other.pid} {began(other.pid)}\n"
        subprocess.run([sys.executable, "-I", "-S", str(guard)], input=told, text=True, timeout=GONE_S, check=True)
        assert other.wait(GONE_S) == -signal.SIGKILL
    finally:
        other.kill()
        other.wait()
