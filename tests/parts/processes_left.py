"""What processes a run has left behind, once who was killed has had time to go."""

import time
from collections.abc import Callable
from pathlib import Path

GONE_S = 10.0


def left_of(found_in: Callable[[Path], list[str]], folder: Path) -> list[str]:
    """Return what is still found of a folder (command lines, devices) when it has had time to go; nothing is best."""
    deadline = time.monotonic() + GONE_S
    while (found := found_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
