"""The KV configuration: texts by namespace and key, the one thing that a NameServer keeps on disk.

RocketMQ's file, `{"configTable":{"namespace":{"key":"value"}}}`, replaced atomically before a change is answered. That
happens in a thread, so that routes are answered meanwhile; changes that come while it is being written go into the next
writing together, in the order they came in. Readers see a change when it is durable.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from remoting.bodies.registry import Body
from remoting.codes import ResponseCode
from remoting.errors import CommandError, HeaderError
from runtime.config import ConfigError
from runtime.durable import read_file, replace_file

# The namespace that holds the order configuration of topics: topic → "broker-a:4;broker-b:4".
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
# Characters of a namespace, key and value together: what an administrator types, not a blob store.
ENTRY_LENGTH_MAX = 64 * 1024
# Characters of all namespaces, keys and values: each change writes the file, and none is known that is larger.
CHARACTERS_MAX = 64 * 1024 * 1024
# Changes that wait for the writing after this one; beyond it SYSTEM_BUSY, for the disk does not keep up.
WAITING_MAX = 10_000

_Table = dict[str, dict[str, str]]


class KVFile(Body, msgspec.Struct):
    """What kvConfig.json holds."""

    # A file of ours: whatever namespaces there were put, it is read again.
    container_bytes_min = 1

    configTable: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class _Change(NamedTuple):
    """What somebody waits for."""

    namespace: str
    key: str
    value: str | None
    done: "asyncio.Future[None]"


class KVConfig:
    """Texts by namespace and key. A change is durable when the method returns; OSError leaves all as it was."""

    def __init__(self, path: Path, *, entries_max: int, characters_max: int = CHARACTERS_MAX) -> None:
        """Load the file; raises ConfigError when it cannot be read."""
        self._path = path
        self._entries_max = entries_max
        self._characters_max = characters_max
        try:
            content = read_file(path)
            self._table: _Table = {} if content is None else KVFile.decode(content).configTable
        except (OSError, HeaderError) as error:
            raise ConfigError(f"kvConfigPath={path}: {error}; put a good copy there or move it away") from error
        self._waiting: list[_Change] = []
        self._writer: asyncio.Task[None] | None = None
        # What changes under way make of their keys, and of the number of entries and characters, if all succeed.
        self._ahead: dict[tuple[str, str], str | None] = {}
        self._coming = len(self)
        self._coming_characters = self._characters = _characters(self._table)

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._table.values())

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, None when there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty when there are none."""
        return dict(self._table.get(namespace, {}))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; raises CommandError at a limit, OSError."""
        if len(namespace) + len(key) + len(value) > ENTRY_LENGTH_MAX:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"a KV entry is longer than {ENTRY_LENGTH_MAX} characters"
            )
        if self._will_be(namespace, key) is None and self._coming >= self._entries_max:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"the KV configuration holds {self._coming} entries already (kvEntriesMax)"
            )
        more = _length(namespace, key, value) - _length(namespace, key, self._will_be(namespace, key))
        if more > 0 and self._coming_characters + more > self._characters_max:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"the KV configuration holds {self._coming_characters} characters already (kvCharactersMax)",
            )
        await self._change(namespace, key, value)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a value; nothing happens when there is none. Raises CommandError at a limit, OSError."""
        await self._change(namespace, key, None)

    async def close(self) -> None:
        """Return when nothing is being written any more."""
        if self._writer is not None:
            await asyncio.wait([self._writer])

    def _will_be(self, namespace: str, key: str) -> str | None:
        return self._ahead[namespace, key] if (namespace, key) in self._ahead else self.get(namespace, key)

    async def _change(self, namespace: str, key: str, value: str | None) -> None:
        if (namespace, key) not in self._ahead and self.get(namespace, key) == value:
            return
        if len(self._waiting) >= WAITING_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} changes of the KV configuration wait for the disk, the limit"
            )
        loop = asyncio.get_running_loop()
        change = _Change(namespace, key, value, loop.create_future())
        self._expect(change)
        self._waiting.append(change)
        if self._writer is None:
            self._writer = loop.create_task(self._write(), name="write KV configuration")
        await change.done

    def _expect(self, change: _Change) -> None:
        before = self._will_be(change.namespace, change.key)
        self._coming += (change.value is not None) - (before is not None)
        self._ahead[change.namespace, change.key] = change.value
        place = (change.namespace, change.key)
        self._coming_characters += _length(*place, change.value) - _length(*place, before)

    async def _write(self) -> None:
        try:
            while self._waiting:
                changes, self._waiting = self._waiting, []
                table = _changed(self._table, changes)
                failure: OSError | None = None
                try:
                    self._characters = await asyncio.to_thread(self._replace, table)
                    self._table = table
                except OSError as error:
                    failure = error
                self._ahead.clear()
                self._coming, self._coming_characters = len(self), self._characters
                for change in self._waiting:
                    self._expect(change)
                _answer(changes, failure)
        finally:
            self._writer = None

    def _replace(self, table: _Table) -> int:
        """Write the file, in a thread; returns the characters in it."""
        replace_file(self._path, KVFile(table).encode())
        return _characters(table)


def _length(namespace: str, key: str, value: str | None) -> int:
    return 0 if value is None else len(namespace) + len(key) + len(value)


def _characters(table: _Table) -> int:
    return sum(_length(name, key, value) for name, entries in table.items() for key, value in entries.items())


def _changed(table: _Table, changes: Iterable[_Change]) -> _Table:
    """Return what changes make of a table; it and its namespaces stay as they are."""
    result = dict(table)
    copied: set[str] = set()
    for namespace, key, value, _ in changes:
        if namespace not in copied:
            copied.add(namespace)
            result[namespace] = dict(result.get(namespace, {}))
        if value is None:
            result[namespace].pop(key, None)
        else:
            result[namespace][key] = value
    for namespace in copied:
        if not result[namespace]:
            del result[namespace]
    return result


def _answer(changes: Iterable[_Change], failure: OSError | None) -> None:
    for change in changes:
        if change.done.done():
            continue
        if failure is None:
            change.done.set_result(None)
        else:
            # One for each: whoever raises it adds to it where it was raised.
            change.done.set_exception(OSError(*failure.args))
