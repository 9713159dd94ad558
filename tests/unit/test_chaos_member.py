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
