"""The KV configuration: texts by namespace and key, the one thing that a NameServer keeps on disk.

RocketMQ's file, `{"configTable":{"namespace":{"key":"value"}}}`, replaced atomically before a change is answered.
"""

from pathlib import Path

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


class KVFile(Body, msgspec.Struct):
    """What kvConfig.json holds."""

    configTable: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class KVConfig:
    """Texts by namespace and key. A change is durable when the method returns; OSError leaves all as it was."""

    def __init__(self, path: Path, *, entries_max: int) -> None:
        """Load the file; raises ConfigError when it cannot be read."""
        self._path = path
        self._entries_max = entries_max
        try:
            content = read_file(path)
            self._table = {} if content is None else KVFile.decode(content).configTable
        except (OSError, HeaderError) as error:
            raise ConfigError(f"kvConfigPath={path}: {error}; put a good copy there or move it away") from error

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._table.values())

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, None when there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty when there are none."""
        return dict(self._table.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; raises CommandError at a limit."""
        if len(namespace) + len(key) + len(value) > ENTRY_LENGTH_MAX:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"a KV entry is longer than {ENTRY_LENGTH_MAX} characters"
            )
        entries = self._table.get(namespace, {})
        if key not in entries and len(self) >= self._entries_max:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"the KV configuration holds {len(self)} entries already (kvEntriesMax)"
            )
        if entries.get(key) != value:
            self._replace({**self._table, namespace: {**entries, key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value; nothing happens when there is none."""
        entries = dict(self._table.get(namespace, {}))
        if entries.pop(key, None) is None:
            return
        table = {**self._table, namespace: entries}
        if not entries:
            del table[namespace]
        self._replace(table)

    def _replace(self, table: dict[str, dict[str, str]]) -> None:
        replace_file(self._path, KVFile(table).encode())
        self._table = table
