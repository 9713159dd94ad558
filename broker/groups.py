"""The consumer groups of this broker: config/subscriptionGroup.json in RocketMQ's own form."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from broker.config import LiveConfig
from broker.configfile import Chunks, ConfigFile, read_table, table_text
from remoting import topics as names
from remoting.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.clock import Clock

_log = logging.getLogger(__name__)

# Groups that one broker keeps. Beyond it nothing is created: clients of a new group get SUBSCRIPTION_GROUP_NOT_EXIST,
# administrators SYSTEM_ERROR.
GROUPS_MAX = 100_000
# Retry queues of one group: they become queues of its retry topic.
RETRY_QUEUES_MAX = 1024
# Topics that one group may be kept from reading (code 353); beyond it SYSTEM_ERROR.
FORBIDDEN_TOPICS_MAX = 10_000

# Bit of a group's forbidden table that says: may not read.
_FORBIDDEN_READ = 1 << 2
# Groups that every broker has from the start.
_SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


class GroupTable:
    """All consumer groups by name. A configuration that was handed out is never changed: a change replaces it."""

    def __init__(self, path: Path, config: LiveConfig, clock: Clock) -> None:
        """Load the table and add the system's groups. Raises MetadataError when the file cannot be used."""
        self._config = config
        self._clock = clock
        self._table: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.data_version = DataVersion(0, 0, clock.now_ms())
        self._file = ConfigFile(path, self._snapshot)
        self._load()
        missing = [group for group in _SYSTEM_GROUPS if group not in self._table]
        if missing:
            self._table.update((group, SubscriptionGroupConfig(groupName=group)) for group in missing)
            self._bump()
            self._file.write_now()

    @property
    def tables(self) -> Mapping[str, SubscriptionGroupConfig]:
        """The groups by name; not to be changed by readers."""
        return self._table

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group, or None when this broker has none of that name."""
        return self._table.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group, created with the defaults when the broker creates groups by itself; else None."""
        known = self._table.get(group)
        if known is not None:
            return known
        config = self._config.broker
        if not config.autoCreateSubscriptionGroup and not (
            config.enableCreateSysGroup and names.is_system_group(group)
        ):
            return None
        if names.check_group(group) is not None:
            return None
        if len(self._table) >= GROUPS_MAX:
            _log.warning("group %s is not created: this broker has %d groups, its limit", group, GROUPS_MAX)
            return None
        created = SubscriptionGroupConfig(groupName=group)
        self._table[group] = created
        self._changed()
        _log.info("group %s created", group)
        return created

    def update(self, *changed: SubscriptionGroupConfig) -> None:
        """Create or replace groups; raises CommandError when a value is out of its bounds (nothing is changed then)."""
        new = 0
        for group in changed:
            check_config(group)
            new += group.groupName not in self._table
        if new and len(self._table) + new > GROUPS_MAX:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"this broker keeps at most {GROUPS_MAX} groups")
        self._table.update((group.groupName, group) for group in changed)
        self._changed()

    def delete(self, group: str) -> bool:
        """Remove a group and what it is forbidden; tells whether it was there."""
        found = self._table.pop(group, None) is not None
        if self._forbidden.pop(group, None) is not None or found:
            self._changed()
        return found

    def readable(self, group: str, topic: str) -> bool:
        """Tell whether a group may read a topic, as far as code 353 is concerned."""
        bits = self._forbidden.get(group)
        return bits is None or not bits.get(topic, 0) & _FORBIDDEN_READ

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Allow or forbid a group to read a topic; raises CommandError at the limit."""
        if readable == self.readable(group, topic):
            return
        bits = dict(self._forbidden.get(group, {}))
        if readable:
            bits[topic] &= ~_FORBIDDEN_READ
            if not bits[topic]:
                del bits[topic]
        else:
            if topic not in bits and len(bits) >= FORBIDDEN_TOPICS_MAX:
                raise CommandError(
                    ResponseCode.SYSTEM_ERROR, f"group {group} is forbidden {FORBIDDEN_TOPICS_MAX} topics, the limit"
                )
            bits[topic] = bits.get(topic, 0) | _FORBIDDEN_READ
        if bits:
            self._forbidden[group] = bits
        else:
            self._forbidden.pop(group, None)
        self._changed()

    def forget_topic(self, topic: str) -> None:
        """Drop what groups are forbidden about a topic that is deleted."""
        affected = {group: bits for group, bits in self._forbidden.items() if topic in bits}
        for group, bits in affected.items():
            left = {name: value for name, value in bits.items() if name != topic}
            if left:
                self._forbidden[group] = left
            else:
                del self._forbidden[group]
        if affected:
            self._changed()

    def page(self, begin: int, count: int) -> SubscriptionGroupTable:
        """Return `count` groups from the `begin`-th on, in the table's order, as code 201 answers them."""
        part = dict(islice(self._table.items(), begin, begin + count))
        forbidden = {group: bits for group, bits in self._forbidden.items() if group in part}
        return SubscriptionGroupTable(self.data_version, forbidden, part)

    def encode(self) -> bytes:
        """Return the whole table as JSON, as subscriptionGroup.json holds it."""
        return b"".join(self._snapshot()())

    async def encode_aside(self) -> bytes:
        """Return the same, encoded in a thread."""
        encode = self._snapshot()
        return await asyncio.to_thread(lambda: b"".join(encode()))

    async def save(self) -> None:
        """Return when every change made so far is on disk. Raises OSError."""
        await self._file.flush()

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        await self._file.close()

    def _bump(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())

    def _changed(self) -> None:
        self._bump()
        self._file.mark()

    def _snapshot(self) -> Callable[[], Chunks]:
        version, table = self.data_version, dict(self._table)
        forbidden = msgspec.json.encode(self._forbidden)

        def lines() -> Iterator[tuple[str, bytes]]:
            for name, group in table.items():
                yield name, group.encode()

        return lambda: table_text(
            (
                ("dataVersion", version.encode()),
                ("forbiddenTable", forbidden),
                ("subscriptionGroupTable", lines()),
            )
        )

    def _load(self) -> None:
        loaded = read_table(self._file.path, SubscriptionGroupTable.decode)
        if loaded is None:
            return
        self.data_version = loaded.dataVersion
        self._forbidden = {group: bits for group, bits in loaded.forbiddenTable.items() if bits}
        for name, group in loaded.subscriptionGroupTable.items():
            self._table[name] = group if group.groupName == name else msgspec.structs.replace(group, groupName=name)


def check_config(group: SubscriptionGroupConfig) -> None:
    """Raise CommandError (INVALID_PARAMETER) when a group's name or numbers make no sense."""
    if (wrong := names.check_group(group.groupName)) is not None:
        raise CommandError(ResponseCode.INVALID_PARAMETER, wrong)
    if not 0 <= group.retryQueueNums <= RETRY_QUEUES_MAX:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER,
            f"group {group.groupName}: retryQueueNums {group.retryQueueNums} is not in 0 to {RETRY_QUEUES_MAX}",
        )
    if group.retryMaxTimes < -1:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER, f"group {group.groupName}: retryMaxTimes {group.retryMaxTimes} is below -1"
        )
