"""How groups are to read topics (pull or pop): config/messageRequestMode.json in RocketMQ's own form.

This broker serves pulls, and nobody sets a mode here: the table is what a RocketMQ broker left in the store's folder,
or what a slave copied from its master, kept for whoever comes next.
"""

from collections.abc import Callable
from pathlib import Path

from broker.metadata.table_file import Chunks, ConfigFile, Stamp, stamped
from broker.reply import ok, whole_table
from remoting.bodies.registry import MessageRequestModeTable
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.server import Connection, Handler


class RequestModes:
    """Topic → group → mode; its size is bounded by the frame or file that it came with."""

    def __init__(self, path: Path) -> None:
        """Read the file, when there is one. Raises MetadataError when it cannot be used."""
        self._file = ConfigFile(path, self._snapshot)
        self._modes = self._file.load(MessageRequestModeTable.decode) or MessageRequestModeTable()

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all}

    async def get_all(self, _connection: Connection, _request: Command) -> Command:
        """402: the whole table."""
        return ok(None, whole_table(self._modes.encode(), "copy config/messageRequestMode.json instead"))

    def take_over(self, copied: MessageRequestModeTable) -> None:
        """Become equal to the master's table, on a slave."""
        if copied != self._modes:
            self._modes = copied
            self._file.mark()

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        await self._file.close()

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        modes = self._modes
        return lambda: (stamped(modes.encode(), stamp),)
