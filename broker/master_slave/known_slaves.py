"""Whom a master has had as slaves, by their addresses: only one of them can have been promoted in its place.

`<store>/config/slaves.json` keeps them over restarts, {"slaves": ["host:port", …]}, the one that was heard of longest
ago first. Slaves say themselves who they are; broker/master_slave/introductions.py says who of them is believed, for
what stands here may keep a master from taking messages (broker/master_slave/fencing.py).
"""

import asyncio
import logging
from pathlib import Path

import msgspec

from runtime.durable import read_file, replace_file
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

NAME = "config/slaves.json"
# Addresses that are kept; nobody has so many slaves.
SLAVES_MAX = 64
# Characters of an address.
ADDRESS_LENGTH_MAX = 300
# Seconds between two writes of the file, however many strangers call themselves slaves.
WRITE_SECONDS = 1.0


class _Content(msgspec.Struct):
    slaves: list[str]


class KnownSlaves:
    """Read once, at the start; `heard` must be called inside a loop."""

    def __init__(self, root: Path) -> None:
        self._path = root / NAME
        # In the order of being heard.
        self._known: dict[str, None] = {}
        self._dirty = False
        self._writing = False
        self._tasks = Tasks("known slaves")

    def __contains__(self, address: object) -> bool:
        return address in self._known

    def load(self) -> None:
        """Read the file; one that cannot be used counts as none. For any thread."""
        try:
            content = read_file(self._path)
            if content is not None:
                slaves = msgspec.json.decode(content, type=_Content).slaves
                self._known = dict.fromkeys([*slaves[-SLAVES_MAX:], *self._known])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("%s cannot be used, the slaves of before are not known: %s", self._path, error)

    def heard(self, address: str) -> None:
        """Take note of a slave; a new one is written down soon."""
        if not 0 < len(address) <= ADDRESS_LENGTH_MAX:
            return
        new = address not in self._known
        self._known.pop(address, None)
        self._known[address] = None
        while len(self._known) > SLAVES_MAX:
            del self._known[next(iter(self._known))]
        if new:
            self._dirty = True
            if not self._writing:
                self._writing = True
                self._tasks.spawn(self._write(), "write")

    async def close(self) -> None:
        """Write no more."""
        await self._tasks.close()

    async def _write(self) -> None:
        try:
            while self._dirty:
                self._dirty = False
                content = msgspec.json.encode(_Content(list(self._known)))
                try:
                    await asyncio.to_thread(replace_file, self._path, content)
                except OSError as error:
                    _log.warning("which slaves there are cannot be kept: %s", error)
                await asyncio.sleep(WRITE_SECONDS)
        finally:
            self._writing = False
