"""What a member's process has that a broker as deployed does not."""

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
