"""How server processes are begun: as children of this one, or in whatever way tests have it."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Protocol


class Begun(Protocol):
    """A child process that was begun, as subprocess.Popen has it."""

    pid: int

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code when it has ended; raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, if it is still there."""

    def kill(self) -> None:
        """End it at once."""


def begin(command: Sequence[str], log: BinaryIO, environment: Mapping[str, str]) -> Begun:
    """Begin a server that says what it says into a log."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # Its own session, so that Ctrl-C reaches the parent alone, which then stops it in good order.
        start_new_session=True,
        env=environment,
    )
