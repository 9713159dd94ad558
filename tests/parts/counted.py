"""A broker that counts its Python calls from a send's bytes to the answer: python -m tests.parts.counted FILE COMMAND…

It counts from SIGUSR1 on. With SIGUSR2 it stops, and FILE has the calls of each send as a JSON list.
"""

import json
import signal
import sys
from pathlib import Path
from types import FrameType

from broker.messages.send import SendHandlers
from broker.messages.send_answers import SendAnswers
from raftmq.cli.main import main
from remoting.framing import FrameReader
from remoting.side import Side

# Where a send's way begins and ends, by code: a name that is gone makes this fail.
_READ, _SEND = FrameReader.feed.__code__, SendHandlers._send.__code__
_STORED, _LEFT = SendAnswers.stored.__code__, Side._flush.__code__


class Count:
    """One send at a time: reads of other kinds in between belong to the send that is open."""

    def __init__(self) -> None:
        self.calls = 0
        self.sends: list[int] = []
        self._read = self._began = 0
        self._open = self._answered = False

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take note of what the interpreter tells: see sys.setprofile."""
        if event != "call":
            return
        self.calls += 1
        code = frame.f_code
        if code is _READ:
            self._read = self.calls
        elif code is _SEND:
            self._began, self._open, self._answered = self._read, True, False
        elif code is _STORED:
            self._answered = True
        elif code is _LEFT and self._open and self._answered:
            self.sends.append(self.calls - self._began + 1)
            self._open = False


def run() -> None:
    """Run the broker that the command line names, and count."""
    into, sys.argv = Path(sys.argv[1]), [sys.argv[0], *sys.argv[2:]]
    count = Count()

    def stop(_number: int, _frame: FrameType | None) -> None:
        sys.setprofile(None)
        written = into.with_suffix(".new")
        written.write_text(json.dumps(count.sends))
        written.rename(into)

    signal.signal(signal.SIGUSR1, lambda _number, _frame: sys.setprofile(count.note))
    signal.signal(signal.SIGUSR2, stop)
    main()


if __name__ == "__main__":
    run()
