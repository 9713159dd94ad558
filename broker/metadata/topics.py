"""The topics of this broker: config/topics.json in RocketMQ's own form, and how topics come into being.

Every change is an operation (broker/metadata/operations.py). In a Raft group the leader shows a change at once, while
it is on its way through the log; followers, the file and the NameServers see it when it is applied.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from broker.metadata.adopted_topics import AdoptedTopics
from broker.metadata.creation_rate import CreationRate
from broker.metadata.operations import LocalMeta, MetaLog, Operation, Table, Verb
from broker.metadata.system_topics import READ_WRITE, system_topics
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp, stamp_part, table_text
from broker.metadata.topic_changes import TopicChanges
from broker.metadata.versions import next_version, packed, unpacked
from broker.settings.config import LiveConfig
from remoting import topics as names
from remoting.bodies.registry import DataVersion, TopicConfig, TopicConfigTable
from remoting.codes import Perm, ResponseCode
from remoting.errors import CommandError
from runtime.clock import Clock

_log = logging.getLogger(__name__)

# Topics that one broker keeps; a registration of twice as many would not fit a NameServer's frame even compressed.
# Beyond it nothing is created: sends get TOPIC_NOT_EXIST, administrators SYSTEM_ERROR.
TOPICS_MAX = 200_000
# Queues of one topic, either way; each one in use costs files. BenchmarkTest has 1024.
QUEUES_MAX = 16_384


class TopicState:
    """The topics and their version: changed by operations only."""

    __slots__ = ("table", "version")

    def __init__(self, version: DataVersion) -> None:
        self.table: dict[str, TopicConfig] = {}
        self.version = version

    def apply(self, operation: Operation, put: list[TopicConfig]) -> None:
        """Do what an operation says; `put` are the topics in it."""
        verb = operation[0]
        if verb == Verb.PUT:
            self.table.update((topic.topicName, topic) for topic in put)
        elif verb == Verb.DELETE:
            for name in operation[3]:
                self.table.pop(name, None)
        elif verb == Verb.CLEAR:
            self.table.clear()
        else:
            raise MetadataError(f"operation {verb!r} on topics is unknown: upgrade this member")
        self.version = unpacked(operation[2], self.version)


DeleteQueues = Callable[[Sequence[str], int], None]
"""Has the queues of topics deleted as far as they stand in the log before the entry of that index, on every member."""


class TopicTable:
    """All topics by name. A TopicConfig that was handed out is never changed: a change replaces it."""

    routes: tuple[Table, ...] = (Table.TOPICS,)

    def __init__(
        self,
        path: Path,
        config: LiveConfig,
        clock: Clock,
        meta: MetaLog | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
        delete_queues: DeleteQueues | None = None,
        quota: Callable[[object, str], None] = lambda _creator, _topic: None,
    ) -> None:
        """Load the table and add the system's topics. Raises MetadataError when the file cannot be used.

        In a group the system's topics are added by the one that leads; a slave has those of its master. `on_change` is
        called after every change that counts, in the loop. `delete_queues`: see DeleteQueues; `quota`: CreationRate.
        """
        self._config = config
        self._clock = clock
        self._meta: MetaLog = LocalMeta() if meta is None else meta
        self._applied = TopicState(DataVersion(0, 0, clock.now_ms()))
        self._rate = CreationRate("topic", config, clock.monotonic, quota)
        self._on_change = on_change
        # Of what is shown, for whoever tells the NameServers.
        self.changes = TopicChanges()
        self._delete_queues = delete_queues
        self._file = ConfigFile(path, self._snapshot)
        new = self._applied.version
        self._load()
        self._file.replay(lambda operation: self._applied.apply(operation, _topics_in(operation)))
        self._kept_ms = 0 if self._applied.version is new else self._applied.version.timestamp
        # What is shown: in a group of its own, for it may run ahead.
        self._view = self._applied
        if self._meta.shared:
            self._view = TopicState(self._applied.version)
            self._view.table.update(self._applied.table)
        self._table = self._view.table
        self._meta.attach(self)
        self._adopted = AdoptedTopics()
        self._system = {topic.topicName: topic for topic in system_topics(config.broker)}
        if self._meta.leads and not self._meta.shared:
            self._add_now(self._missing())

    @property
    def tables(self) -> Mapping[str, TopicConfig]:
        """The topics by name; not to be changed by readers."""
        return self._table

    @property
    def data_version(self) -> DataVersion:
        """The version of what is shown."""
        return self._view.version

    @property
    def file(self) -> ConfigFile:
        """The file that the table is kept in."""
        return self._file

    @property
    def system_names(self) -> frozenset[str]:
        """The topics that the broker itself needs."""
        return frozenset(self._system)

    def get(self, topic: str) -> TopicConfig | None:
        """Return a topic, or None when this broker has none of that name."""
        return self._table.get(topic)

    def is_protected(self, topic: str) -> bool:
        """Tell whether a topic is the system's, so that nobody may alter or delete it."""
        return topic in self._system or names.is_system_topic(topic)

    def create_for_send(
        self,
        topic: str,
        default_topic: str,
        default_queue_nums: int,
        topic_sys_flag: int = 0,
        creator: object | None = None,
    ) -> TopicConfig | None:
        """Return the topic, made after the pattern of `default_topic` when that one lets others inherit.

        It gets at most `default_queue_nums` queues (what the client wants) and as many as the pattern has at most.
        None when there is no such pattern, or no room for another topic. Raises CommandError (SYSTEM_BUSY) when the
        connection that sends, `creator`, makes too many.
        """
        if (known := self._table.get(topic)) is not None:
            return known
        pattern = self._table.get(default_topic)
        if pattern is None or not pattern.perm & Perm.INHERIT or not self._meta.leads:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not self._config.broker.autoCreateTopicEnable:
            return None
        if len(self._table) >= TOPICS_MAX:
            _log.warning("topic %s is not created: this broker has %d topics, its limit", topic, TOPICS_MAX)
            return None
        self._rate.take(creator, topic)
        queues = max(0, min(default_queue_nums, pattern.writeQueueNums))
        created = TopicConfig(
            topicName=topic,
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=pattern.perm & ~Perm.INHERIT,
            topicFilterType=pattern.topicFilterType,
            topicSysFlag=topic_sys_flag,
        )
        self._put(created)
        _log.info("topic %s created for a send, with %d queues", topic, queues)
        return self._table[topic]

    def create_for_retry(
        self, topic: str, queue_nums: int, perm: int = READ_WRITE, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """Return a group's retry or dead-letter topic, made when it is missing; raises CommandError at the limit.

        One that does not lead makes nothing: it returns what the leader would make.
        """
        if (known := self._table.get(topic)) is not None:
            return known
        created = TopicConfig(topic, queue_nums, queue_nums, perm, topicSysFlag=topic_sys_flag)
        if not self._meta.leads:
            return created
        self._require_room(topic)
        self._put(created)
        return self._table[topic]

    def update(self, *changed: TopicConfig) -> None:
        """Create or replace topics; raises CommandError when a value is out of its bounds (nothing is changed then).

        Without any, the table gets a new version; one that does not lead only has itself registered again.
        """
        if not changed and not self._meta.leads:
            self.changes.everything()
            self._on_change()
            return
        new = 0
        for topic in changed:
            check_config(topic)
            new += topic.topicName not in self._table
        if new and len(self._table) + new > TOPICS_MAX:
            self._require_room(changed[0].topicName, new)
        self._put(*changed)

    def delete(self, *topics: str) -> list[str]:
        """Remove topics; returns those that were there."""
        removed = [topic for topic in topics if topic in self._table]
        if removed:
            self._change(Verb.DELETE, removed)
        return removed

    def adopt(self, queues: Mapping[str, Iterable[int]]) -> list[str]:
        """Give topics that have queues in the store, and no configuration, one, if this broker leads; return them."""
        if not self._meta.leads:
            return []
        adopted = self._adopted.make(queues, lambda topic: topic in self._table or self.is_protected(topic))
        if self._meta.shared and adopted:
            self._put(*adopted)
        elif adopted:
            self._add_now(adopted)
        return [topic.topicName for topic in adopted]

    def adopt_awaited(self, topic: str, queue_id: int, stored_ms: int) -> None:
        """Adopt a topic that a delayed message comes to; one older than the file's last change is of a deleted one."""
        if self._meta.shared or stored_ms < self._kept_ms:
            return
        known = self._table.get(topic)
        wider = self._adopted.widened(known, queue_id) if known is not None else []
        if wider:
            self._add_now(wider)
        if wider or self.adopt({topic: (queue_id,)}):
            self.changes.put([topic])
            self._on_change()

    def take_over(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> list[str]:
        """Become equal to the master's table, on a slave; returns the topics that are no more."""
        version = unpacked(packed(version), self.data_version)
        if version == self.data_version and topics == self._table:
            return []
        removed = [name for name in self._table if name not in topics]
        self._table.clear()
        self._table.update(topics)
        self._applied.version = version
        self._file.disown()
        self._file.mark()
        self.changes.everything()
        self._on_change()
        return removed

    def page(self, begin: int, count: int) -> dict[str, TopicConfig]:
        """Return `count` topics from the `begin`-th on, in the table's order."""
        return dict(islice(self._table.items(), begin, begin + count))

    def encode(self) -> bytes:
        """Return the whole table as JSON, as topics.json holds it."""
        return b"".join(_encoder(self._view, None)())

    async def encode_aside(self) -> bytes:
        """Return the same, encoded in a thread: 100,000 topics take a tenth of a second."""
        encode = _encoder(self._view, None)
        return await asyncio.to_thread(lambda: b"".join(encode()))

    async def save(self) -> None:
        """Return when every change made so far is safe: on disk, or applied in the group.

        Raises OSError, and CommandError when the lead was lost meanwhile.
        """
        if self._meta.shared:
            await self._meta.settled()
        else:
            await self._file.flush()

    async def close(self) -> None:
        """Write what is not yet written. Raises OSError."""
        await self._file.close()

    def _require_room(self, topic: str, wanted: int = 1) -> None:
        if len(self._table) + wanted > TOPICS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} is not created: this broker keeps at most {TOPICS_MAX} topics",
            )

    def apply(self, operation: Operation, *, own: bool) -> None:
        """Do what an operation says; see MetaTable."""
        put = _topics_in(operation)
        applied, view = self._applied, self._view
        if own:
            # The same objects in both, where they are equal: the table may be large.
            put = [known if (known := view.table.get(topic.topicName)) == topic else topic for topic in put]
        elif view is not applied:
            view.apply(operation, put)
        applied.apply(operation, put)
        self._file.mark(operation)
        if put:
            self.changes.put(topic.topicName for topic in put)
        elif operation[0] == Verb.DELETE:
            self.changes.deleted()
        else:
            self.changes.everything()
        if operation[0] == Verb.DELETE and self._delete_queues is not None:
            self._delete_queues(operation[3], self._meta.index)
        self._on_change()

    def drop(self) -> None:
        """Show what is applied; see MetaTable."""
        if self._view is not self._applied and self._view.version != self._applied.version:
            self._table.clear()
            self._table.update(self._applied.table)
            self._view.version = self._applied.version
            self.changes.everything()
            self._on_change()

    def lead(self, *, first: bool) -> None:
        """Propose the system's topics and, in any case, a version of this term; see MetaTable."""
        missing = self._missing()
        if first:
            missing = [*self._table.values(), *missing]
            self._change(Verb.CLEAR)
        self._put(*missing)

    def _missing(self) -> list[TopicConfig]:
        return [topic for name, topic in self._system.items() if name not in self._table]

    def _put(self, *changed: TopicConfig) -> None:
        self._change(Verb.PUT, [list(msgspec.structs.astuple(topic)) for topic in changed])

    def _change(self, verb: Verb, *what: Any) -> None:
        version = next_version(self._view.version, self._clock.now_ms(), self._meta.term)
        operation = [int(verb), int(Table.TOPICS), packed(version), *what]
        self._meta.propose(operation)
        if self._meta.shared:
            self._view.apply(operation, _topics_in(operation))

    def _add_now(self, topics: Sequence[TopicConfig]) -> None:
        """Add topics before the broker serves, on disk when this returns; and the epoch of a promotion (R15)."""
        if topics or self._view.version.stateVersion < self._meta.term:
            self._table.update((topic.topicName, topic) for topic in topics)
            self._view.version = next_version(self._view.version, self._clock.now_ms(), self._meta.term)
            self._file.write_now()

    @property
    def deletes_queues(self) -> bool:
        """Whether the queues of topics go by themselves when their deletion is applied."""
        return self._delete_queues is not None

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        return _encoder(self._applied, stamp)

    def _load(self) -> None:
        loaded = self._file.load(TopicConfigTable.decode)
        if loaded is None:
            return
        self._applied.version = loaded.dataVersion
        for name, topic in loaded.topicConfigTable.items():
            named = topic if topic.topicName == name else msgspec.structs.replace(topic, topicName=name)
            self._applied.table[name] = named


def _topics_in(operation: Operation) -> list[TopicConfig]:
    """Return the topics that an operation puts into the table."""
    return [TopicConfig(*row) for row in operation[3]] if operation[0] == Verb.PUT else []


def _encoder(state: TopicState, stamp: Stamp | None) -> Callable[[], Chunks]:
    """Return what encodes a state as it is now, in whatever thread."""
    version, table = state.version, dict(state.table)

    def lines() -> Iterator[tuple[str, bytes]]:
        for name, topic in table.items():
            yield name, msgspec.json.encode(topic)

    parts: list[tuple[str, bytes | Iterable[tuple[str, bytes]]]] = [
        ("dataVersion", version.encode()),
        *stamp_part(stamp),
        ("topicConfigTable", lines()),
    ]
    return lambda: table_text(parts)


def check_config(topic: TopicConfig) -> None:
    """Raise CommandError (INVALID_PARAMETER) when a topic's numbers make no sense."""
    for kind, queues in (("readQueueNums", topic.readQueueNums), ("writeQueueNums", topic.writeQueueNums)):
        if not 0 <= queues <= QUEUES_MAX:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"topic {topic.topicName}: {kind} {queues} is not in 0 to {QUEUES_MAX}"
            )
    if not 0 <= topic.perm < Perm.PRIORITY:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER,
            f"topic {topic.topicName}: perm {topic.perm} is not in 0 to 7 (2 W, 4 R, 6 RW)",
        )
