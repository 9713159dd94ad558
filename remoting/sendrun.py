"""A run of sends: usual ones of one read, served together; cut out of its bytes by the compiled hot path only.

What is unusual about one of them, or about the moment, makes commands of all of them again, which are then served as
ever: so nothing but the usual way is written twice.
"""

from typing import TYPE_CHECKING

from remoting.codec import decode_parts
from remoting.command import COMMAND_BYTES, JSON, Command

if TYPE_CHECKING:
    from remoting.compiled.hotpath import SendRows

# In the place of a request code, in the tables of those who take runs: codes of the wire have 32 bits.
SEND_RUN = 310 << 32


class SendRun:
    """Looks like one command to who reads and who serves. `rows` has the sends; the rest is as of a Command."""

    __slots__ = ("read_at", "rows", "until", "waited")

    code = SEND_RUN
    flag = 0
    body = b""

    def __init__(self, rows: "SendRows") -> None:
        self.rows = rows
        self.until = self.read_at = self.waited = 0.0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def header_bytes(self) -> int:
        """What it takes in memory, about, beside what one command takes."""
        return len(self.rows.data) + (len(self.rows) - 1) * COMMAND_BYTES

    def commands(self) -> list[Command]:
        """Return the sends as the commands that they are."""
        commands = [decode_parts(JSON, header, body) for header, body in self.rows.frames()]
        for command in commands:
            command.until, command.read_at, command.waited = self.until, self.read_at, self.waited
        return commands
