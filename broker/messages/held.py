"""What requests that wait for the log make the broker keep beside their records: fields that no record holds.

A send with a field of 60 KiB that nobody asked for becomes a record of some hundred bytes, and only those count towards
`pendingBytesMax`; the request stays as it came, for it may have to go to another leader.
"""

from functools import partial

from remoting.codes import ResponseCode
from remoting.command import HEADER_BYTES_FREE
from remoting.errors import CommandError

# Bytes kept so by all requests that wait. Beyond it: SYSTEM_BUSY.
HELD_BYTES_MAX = 16 * 1024 * 1024


class HeldRequests:
    """The sum of what is kept; one for the broker's sends, one for what consumers send back."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0

    def hold(self, size: int, done: partial[None]) -> partial[None]:
        """Return what to call in the place of `done`, once, when the request is kept no more.

        Raises CommandError (SYSTEM_BUSY) when too much is kept already.
        """
        if size <= HEADER_BYTES_FREE:
            return done
        if self.bytes + size > self._bytes_max:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{self.bytes} bytes of requests wait beside their messages: send smaller headers",
            )
        self.bytes += size
        return partial(self._ended, size, done)

    def _ended(self, size: int, done: partial[None], *answer: object) -> None:
        self.bytes -= size
        done(*answer)
