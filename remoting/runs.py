"""Runs: usual requests of one kind and one read, served together; sends always, pulls by the compiled hot path only.

What is unusual about one of them, or about the moment, makes a command of it again, which is then served as ever: so
nothing but the usual way is written twice.
"""

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, cast

from remoting import sendrows
from remoting.codec import decode_parts
from remoting.command import COMMAND_BYTES, JSON, Command
from remoting.compiled.door import COMPILED, hotpath

if TYPE_CHECKING:
    from remoting.compiled.hotpath import PullRows

    SendRows = hotpath.SendRows | sendrows.SendRows

# In the place of a request code, in the tables of those who take runs: codes of the wire have 32 bits.
SEND_RUN = 310 << 32
PULL_RUN = 11 << 32
RUNS = frozenset({SEND_RUN, PULL_RUN})

# (consumerGroup, topic, subscription, expressionType) of a pull: the same object for pulls of the same.
PullTexts = tuple[str, str, str | None, str | None]
# Texts, opaque, queueId, queueOffset, maxMsgNums, sysFlag, commitOffset, suspendTimeoutMillis, subVersion, maxMsgBytes;
# the last is -1 where it is not there.
PullRow = tuple[PullTexts, int, int, int, int, int, int, int, int, int]


class RequestRun:
    """Looks like one command to who reads and who serves. `rows` has the requests; the rest is as of a Command."""

    __slots__ = ("read_at", "rows", "until", "waited")

    code = 0
    flag = 0
    body = b""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.until = self.read_at = self.waited = 0.0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def header_bytes(self) -> int:
        """What it takes in memory, about, beside what one command takes."""
        return len(self.rows.data) + (len(self.rows) - 1) * COMMAND_BYTES

    def commands(self) -> list[Command]:
        """Return the requests as the commands that they are."""
        return [self._command(header, body) for header, body in self.rows.frames()]

    def left(self) -> list[Command]:
        """Return what is to be served in its place, once who serves it has returned it."""
        return self.commands()

    def _command(self, header: bytes, body: bytes) -> Command:
        command = decode_parts(JSON, header, body)
        command.until, command.read_at, command.waited = self.until, self.read_at, self.waited
        return command


# Data, position, requests at most, bytes of a frame at most.
Cut = Callable[[bytes, int, int, int], RequestRun | None]


class SendRun(RequestRun):
    """Sends: all of them are stored in one step, or each comes by itself."""

    __slots__ = ()

    code = SEND_RUN
    rows: "SendRows"


class PullRun(RequestRun):
    """Pulls: answered from the first to the last; `at` is the next one."""

    __slots__ = ("_apart", "_goes_on", "at")

    code = PULL_RUN
    rows: "PullRows"

    def __init__(self, rows: "PullRows") -> None:
        super().__init__(rows)
        self.at = 0
        self._apart = self._goes_on = False

    def __len__(self) -> int:
        return len(self.rows) - self.at

    def commands(self) -> list[Command]:
        """Return the pulls that are not answered as the commands that they are."""
        return [self._command(*self.rows.frame(at)) for at in range(self.at, len(self.rows))]

    def stopped(self, at: int, *, apart: bool) -> "PullRun":
        """Note that the pulls before `at` are answered, the others are next; `apart`: that one by itself."""
        self.at, self._apart, self._goes_on = at, apart, True
        return self

    def left(self) -> list[Command]:
        """Return what stopped() has said is next; all that is left by itself when whoever was given it did not."""
        if not self._goes_on:
            return self.commands()
        self._goes_on = False
        found = []
        if self._apart:
            found.append(self._command(*self.rows.frame(self.at)))
            self.at += 1
        if self.at < len(self.rows):
            found.append(cast(Command, self))
        return found


def requests_in(commands: list[Command]) -> int:
    """Return how many requests some commands are, runs among them."""
    return sum([len(each) if isinstance(each, RequestRun) else 1 for each in commands])


def cut_sends(data: bytes, position: int, most: int, limit: int) -> RequestRun | None:
    """Return the run of sends that begins at a position of what was read, None where none does.

    At most so many requests; `limit`: bytes of a frame. len(run.rows.data) bytes of `data` are theirs.
    """
    rows = (hotpath if COMPILED else sendrows).cut_sends(data, position, most, limit)
    return None if rows is None else SendRun(rows)


def cut_pulls(data: bytes, position: int, most: int, limit: int) -> RequestRun | None:
    """Do as cut_sends() does with pulls; compiled only."""
    rows = hotpath.cut_pulls(data, position, most, limit)
    return None if rows is None else PullRun(rows)


def cut_any(data: bytes, position: int, most: int, limit: int) -> RequestRun | None:
    """Do as cut_sends() does, with pulls as well."""
    return cut_sends(data, position, most, limit) or cut_pulls(data, position, most, limit)


def cut_for(served: Container[int]) -> Cut | None:
    """Return what cuts the runs of which there is somebody to serve them, None when there is nobody."""
    if COMPILED and PULL_RUN in served:
        return cut_any if SEND_RUN in served else cut_pulls
    return cut_sends if SEND_RUN in served else None
