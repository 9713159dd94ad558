"""The consumer groups of this broker: config/subscriptionGroup.json in RocketMQ's own form.

Every change is an operation (broker/metadata/operations.py). In a Raft group the leader shows a change at once, while
it is on its way through the log; followers and the file see it when it is applied.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from broker.metadata.creation_rate import CreationRate
from broker.metadata.operations import LocalMeta, MetaLog, Operation, Table, Verb
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp, stamp_part, table_text
from broker.metadata.versions import next_version, packed, unpacked
from broker.settings.config import LiveConfig
from remoting import topics as names
from remoting.bodies.registry import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable
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


class GroupState:
    """The groups, what they are forbidden, and the version: changed by operations only."""

    __slots__ = ("forbidden", "table", "version")

    def __init__(self, version: DataVersion) -> None:
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = version

    def apply(self, operation: Operation, put: list[SubscriptionGroupConfig]) -> None:
        """Do what an operation says; `put` are the groups in it."""
        verb = operation[0]
        if verb == Verb.PUT:
            self.table.update((group.groupName, group) for group in put)
        elif verb == Verb.DELETE:
            for name in operation[3]:
                self.table.pop(name, None)
                self.forbidden.pop(name, None)
        elif verb == Verb.FORBID:
            for group, topic, bits in operation[3]:
                self._forbid(group, topic, bits)
        elif verb == Verb.CLEAR:
            self.table.clear()
            self.forbidden.clear()
        else:
            raise MetadataError(f"operation {verb!r} on groups is unknown: upgrade this member")
        self.version = unpacked(operation[2], self.version)

    def copy_from(self, other: "GroupState") -> None:
        """Become equal to another state; the dictionaries stay the same objects."""
        self.table.clear()
        self.table.update(other.table)
        self.forbidden.clear()
        self.forbidden.update(other.forbidden)
        self.version = other.version

    def _forbid(self, group: str, topic: str, bits: int) -> None:
        topics = {name: value for name, value in self.forbidden.get(group, {}).items() if name != topic}
        if bits:
            topics[topic] = bits
        if topics:
            self.forbidden[group] = topics
        else:
            self.forbidden.pop(group, None)


class GroupTable:
    """All consumer groups by name. A configuration that was handed out is never changed: a change replaces it."""

    routes: tuple[Table, ...] = (Table.GROUPS,)

    def __init__(
        self,
        path: Path,
        config: LiveConfig,
        clock: Clock,
        meta: MetaLog | None = None,
        quota: Callable[[object, str], None] = lambda _creator, _group: None,
    ) -> None:
        """Load the table and add the system's groups. Raises MetadataError when the file cannot be used.

        In a group of brokers the system's groups are added by the one that leads; a slave has those of its master.
        `quota`: see CreationRate.
        """
        self._config = config
        self._clock = clock
        self._meta: MetaLog = LocalMeta() if meta is None else meta
        self._applied = GroupState(DataVersion(0, 0, clock.now_ms()))
        self._rate = CreationRate("group", config, clock.monotonic, quota)
        # Groups that were made here by being used, and since when nobody is known to have used them.
        self._made: dict[str, float] = {}
        self._file = ConfigFile(path, self._snapshot)
        self._load()
        self._file.replay(lambda operation: self._applied.apply(operation, _groups_in(operation)))
        # What is shown: in a group of brokers of its own, for it may run ahead.
        self._view = self._applied
        if self._meta.shared:
            self._view = GroupState(self._applied.version)
            self._view.copy_from(self._applied)
        self._table, self._forbidden = self._view.table, self._view.forbidden
        self._meta.attach(self)
        missing = self._missing()
        if missing and self._meta.leads and not self._meta.shared:
            self._table.update((group.groupName, group) for group in missing)
            self._view.version = next_version(self._view.version, clock.now_ms(), self._meta.term)
            self._file.write_now()

    @property
    def tables(self) -> Mapping[str, SubscriptionGroupConfig]:
        """The groups by name; not to be changed by readers."""
        return self._table

    @property
    def data_version(self) -> DataVersion:
        """The version of what is shown."""
        return self._view.version

    @property
    def file(self) -> ConfigFile:
        """The file that the table is kept in."""
        return self._file

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group, or None when this broker has none of that name."""
        return self._table.get(group)

    def find(self, group: str, creator: object | None = None) -> SubscriptionGroupConfig | None:
        """Return a group, created with the defaults when the broker creates groups by itself; else None.

        One that does not lead creates nothing: it returns what the leader would create. Raises CommandError
        (SYSTEM_BUSY) when the connection that asks, `creator`, makes too many.
        """
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
        if not self._meta.leads:
            return created
        self._rate.take(creator, group)
        self._put(created)
        self._made[group] = self._clock.monotonic()
        _log.info("group %s created", group)
        return self._table[group]

    def update(self, *changed: SubscriptionGroupConfig) -> None:
        """Create or replace groups; raises CommandError when a value is out of its bounds (nothing is changed then)."""
        new = 0
        for group in changed:
            check_config(group)
            new += group.groupName not in self._table
        if new and len(self._table) + new > GROUPS_MAX:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"this broker keeps at most {GROUPS_MAX} groups")
        for group in changed:
            self._made.pop(group.groupName, None)
        self._put(*changed)

    def delete(self, group: str) -> bool:
        """Remove a group and what it is forbidden; tells whether it was there."""
        found = group in self._table
        self._made.pop(group, None)
        if found or group in self._forbidden:
            self._change(Verb.DELETE, [group])
        return found

    def collect(self, seconds: float, used: Callable[[str], bool]) -> list[str]:
        """Delete groups that were made by being used, and that nobody has used for so long; returns them.

        `used` tells whether somebody does now, or left an offset. Those that were made by request, or altered, stay, as
        do those of before a start or a change of the lead.
        """
        now = self._clock.monotonic()
        gone: list[str] = []
        for group in [name for name, since in self._made.items() if now - since >= seconds]:
            if not self._meta.leads or self._table.get(group) != SubscriptionGroupConfig(groupName=group):
                del self._made[group]
            elif group in self._forbidden or used(group):
                self._made[group] = now
            else:
                gone.append(group)
                self.delete(group)
        return gone

    def readable(self, group: str, topic: str) -> bool:
        """Tell whether a group may read a topic, as far as code 353 is concerned."""
        bits = self._forbidden.get(group)
        return bits is None or not bits.get(topic, 0) & _FORBIDDEN_READ

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Allow or forbid a group to read a topic; raises CommandError at the limit."""
        if readable == self.readable(group, topic):
            return
        topics = self._forbidden.get(group, {})
        bits = topics.get(topic, 0)
        if not readable and topic not in topics and len(topics) >= FORBIDDEN_TOPICS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"group {group} is forbidden {FORBIDDEN_TOPICS_MAX} topics, the limit"
            )
        bits = bits & ~_FORBIDDEN_READ if readable else bits | _FORBIDDEN_READ
        self._change(Verb.FORBID, [[group, topic, bits]])

    def forget_topic(self, topic: str) -> None:
        """Drop what groups are forbidden about a topic that is deleted."""
        affected = [[group, topic, 0] for group, topics in self._forbidden.items() if topic in topics]
        if affected:
            self._change(Verb.FORBID, affected)

    def take_over(self, copied: SubscriptionGroupTable) -> None:
        """Become equal to the master's table, on a slave."""
        version = unpacked(packed(copied.dataVersion), self.data_version)
        state = GroupState(version)
        state.table, state.forbidden = copied.subscriptionGroupTable, copied.forbiddenTable
        if (version, state.table, state.forbidden) != (self.data_version, self._table, self._forbidden):
            self._applied.copy_from(state)
            self._file.disown()
            self._file.mark()

    def page(self, begin: int, count: int) -> SubscriptionGroupTable:
        """Return `count` groups from the `begin`-th on, in the table's order, as code 201 answers them."""
        part = dict(islice(self._table.items(), begin, begin + count))
        forbidden = {group: bits for group, bits in self._forbidden.items() if group in part}
        return SubscriptionGroupTable(self.data_version, forbidden, part)

    def encode(self) -> bytes:
        """Return the whole table as JSON, as subscriptionGroup.json holds it."""
        return b"".join(_encoder(self._view, None)())

    async def encode_aside(self) -> bytes:
        """Return the same, encoded in a thread."""
        encode = _encoder(self._view, None)
        return await asyncio.to_thread(lambda: b"".join(encode()))

    async def save(self) -> None:
        """Return when every change made so far is safe: on disk, or applied in the group of brokers.

        Raises OSError, and CommandError when the lead was lost meanwhile.
        """
        if self._meta.shared:
            await self._meta.settled()
        else:
            await self._file.flush()

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        await self._file.close()

    def apply(self, operation: Operation, *, own: bool) -> None:
        """Do what an operation says; see MetaTable."""
        put = _groups_in(operation)
        applied, view = self._applied, self._view
        if own:
            # The same objects in both, where they are equal: the table may be large.
            put = [known if (known := view.table.get(group.groupName)) == group else group for group in put]
        elif view is not applied:
            view.apply(operation, put)
        applied.apply(operation, put)
        self._file.mark(operation)

    def drop(self) -> None:
        """Show what is applied; see MetaTable."""
        if self._view is not self._applied and self._view.version != self._applied.version:
            self._view.copy_from(self._applied)

    def lead(self, *, first: bool) -> None:
        """Propose the system's groups where they are missing, or everything; see MetaTable."""
        missing = self._missing()
        # Another one led meanwhile: what was made by request since is not known.
        self._made.clear()
        if first:
            everything = [*self._table.values(), *missing]
            forbidden = [
                [group, topic, bits] for group, topics in self._forbidden.items() for topic, bits in topics.items()
            ]
            self._change(Verb.CLEAR)
            self._put(*everything)
            self._change(Verb.FORBID, forbidden)
        elif missing:
            self._put(*missing)

    def _missing(self) -> list[SubscriptionGroupConfig]:
        return [SubscriptionGroupConfig(groupName=group) for group in _SYSTEM_GROUPS if group not in self._table]

    def _put(self, *changed: SubscriptionGroupConfig) -> None:
        self._change(Verb.PUT, [msgspec.to_builtins(group) for group in changed])

    def _change(self, verb: Verb, *what: Any) -> None:
        version = next_version(self._view.version, self._clock.now_ms(), self._meta.term)
        operation = [int(verb), int(Table.GROUPS), packed(version), *what]
        self._meta.propose(operation)
        if self._meta.shared:
            self._view.apply(operation, _groups_in(operation))

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        return _encoder(self._applied, stamp)

    def _load(self) -> None:
        loaded = self._file.load(SubscriptionGroupTable.decode)
        if loaded is None:
            return
        state = self._applied
        state.version = loaded.dataVersion
        state.forbidden.update((group, bits) for group, bits in loaded.forbiddenTable.items() if bits)
        for name, group in loaded.subscriptionGroupTable.items():
            state.table[name] = group if group.groupName == name else msgspec.structs.replace(group, groupName=name)


def _groups_in(operation: Operation) -> list[SubscriptionGroupConfig]:
    """Return the groups that an operation puts into the table."""
    if operation[0] != Verb.PUT:
        return []
    return [msgspec.convert(fields, SubscriptionGroupConfig) for fields in operation[3]]


def _encoder(state: GroupState, stamp: Stamp | None) -> Callable[[], Chunks]:
    """Return what encodes a state as it is now, in whatever thread."""
    version, table = state.version, dict(state.table)
    forbidden = msgspec.json.encode(state.forbidden)

    def lines() -> Iterator[tuple[str, bytes]]:
        for name, group in table.items():
            yield name, group.encode()

    parts: list[tuple[str, bytes | Iterable[tuple[str, bytes]]]] = [
        ("dataVersion", version.encode()),
        *stamp_part(stamp),
        ("forbiddenTable", forbidden),
        ("subscriptionGroupTable", lines()),
    ]
    return lambda: table_text(parts)


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
