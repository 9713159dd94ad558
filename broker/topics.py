"""The topics of this broker: config/topics.json in RocketMQ's own form, and how topics come into being."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from broker.config import BrokerConfig, LiveConfig
from broker.configfile import Chunks, ConfigFile, read_table, table_text
from remoting import topics as names
from remoting.bodies import DataVersion, TopicConfig, TopicConfigTable
from remoting.codes import Perm, ResponseCode
from remoting.errors import CommandError
from runtime.clock import Clock

_log = logging.getLogger(__name__)

# Topics that one broker keeps; a registration of twice as many would not fit a NameServer's frame even compressed.
# Beyond it nothing is created: sends get TOPIC_NOT_EXIST, administrators SYSTEM_ERROR.
TOPICS_MAX = 200_000
# Queues of one topic, either way; each one in use costs files. BenchmarkTest has 1024.
QUEUES_MAX = 16_384
READ_WRITE = int(Perm.READ | Perm.WRITE)

_BENCHMARK_QUEUES = 1024
_SCHEDULE_QUEUES = 18


class TopicTable:
    """All topics by name. A TopicConfig that was handed out is never changed: a change replaces it."""

    def __init__(self, path: Path, config: LiveConfig, clock: Clock) -> None:
        """Load the table and add the system's topics. Raises MetadataError when the file cannot be used."""
        self._config = config
        self._clock = clock
        self._table: dict[str, TopicConfig] = {}
        self.data_version = DataVersion(0, 0, clock.now_ms())
        # Called after every change, in the loop; the broker registers with its NameServers then.
        self.on_change: Callable[[], None] | None = None
        self._file = ConfigFile(path, self._snapshot)
        self._load()
        self._system = {topic.topicName: topic for topic in system_topics(config.broker)}
        missing = [topic for name, topic in self._system.items() if name not in self._table]
        if missing:
            self._table.update((topic.topicName, topic) for topic in missing)
            self._bump()
            self._file.write_now()

    @property
    def tables(self) -> Mapping[str, TopicConfig]:
        """The topics by name; not to be changed by readers."""
        return self._table

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
        self, topic: str, default_topic: str, default_queue_nums: int, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """Return the topic, made after the pattern of `default_topic` when that one lets others inherit.

        It gets at most `default_queue_nums` queues (what the client wants) and as many as the pattern has at most.
        None when there is no such pattern, or no room for another topic.
        """
        if (known := self._table.get(topic)) is not None:
            return known
        pattern = self._table.get(default_topic)
        if pattern is None or not pattern.perm & Perm.INHERIT:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not self._config.broker.autoCreateTopicEnable:
            return None
        if len(self._table) >= TOPICS_MAX:
            _log.warning("topic %s is not created: this broker has %d topics, its limit", topic, TOPICS_MAX)
            return None
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
        return created

    def create_for_retry(
        self, topic: str, queue_nums: int, perm: int = READ_WRITE, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """Return a group's retry or dead-letter topic, made when it is missing; raises CommandError at the limit."""
        if (known := self._table.get(topic)) is not None:
            return known
        self._require_room(topic)
        created = TopicConfig(topic, queue_nums, queue_nums, perm, topicSysFlag=topic_sys_flag)
        self._put(created)
        return created

    def update(self, *changed: TopicConfig) -> None:
        """Create or replace topics; raises CommandError when a value is out of its bounds (nothing is changed then)."""
        new = 0
        for topic in changed:
            check_config(topic)
            new += topic.topicName not in self._table
        if new and len(self._table) + new > TOPICS_MAX:
            self._require_room(changed[0].topicName, new)
        self._put(*changed)

    def delete(self, *topics: str) -> list[str]:
        """Remove topics; returns those that were there."""
        removed = [topic for topic in topics if self._table.pop(topic, None) is not None]
        if removed:
            self._changed()
        return removed

    def adopt(self, queues: Mapping[str, Iterable[int]]) -> list[str]:
        """Give topics that have queues in the store, but no configuration, one; returns their names.

        An auto-created topic is written a moment after its first message: a crash in between must not hide messages
        that were acknowledged.
        """
        adopted = []
        for topic, ids in queues.items():
            count = max(ids, default=-1) + 1
            if not count or topic in self._table or names.check_topic(topic) is not None or self.is_protected(topic):
                continue
            adopted.append(TopicConfig(topic, count, count, READ_WRITE))
        if adopted:
            self._table.update((topic.topicName, topic) for topic in adopted)
            self._bump()
            self._file.write_now()
        return [topic.topicName for topic in adopted]

    def page(self, begin: int, count: int) -> dict[str, TopicConfig]:
        """Return `count` topics from the `begin`-th on, in the table's order."""
        return dict(islice(self._table.items(), begin, begin + count))

    def encode(self) -> bytes:
        """Return the whole table as JSON, as topics.json holds it."""
        return b"".join(self._snapshot()())

    async def encode_aside(self) -> bytes:
        """Return the same, encoded in a thread: 100,000 topics take a tenth of a second."""
        encode = self._snapshot()
        return await asyncio.to_thread(lambda: b"".join(encode()))

    async def save(self) -> None:
        """Return when every change made so far is on disk. Raises OSError."""
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

    def _put(self, *changed: TopicConfig) -> None:
        self._table.update((topic.topicName, topic) for topic in changed)
        self._changed()

    def _bump(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())

    def _changed(self) -> None:
        self._bump()
        self._file.mark()
        if self.on_change is not None:
            self.on_change()

    def _snapshot(self) -> Callable[[], Chunks]:
        version, table = self.data_version, dict(self._table)

        def lines() -> Iterator[tuple[str, bytes]]:
            for name, topic in table.items():
                yield name, msgspec.json.encode(topic)

        return lambda: table_text((("dataVersion", version.encode()), ("topicConfigTable", lines())))

    def _load(self) -> None:
        loaded = read_table(self._file.path, TopicConfigTable.decode)
        if loaded is None:
            return
        self.data_version = loaded.dataVersion
        for name, topic in loaded.topicConfigTable.items():
            self._table[name] = topic if topic.topicName == name else msgspec.structs.replace(topic, topicName=name)


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


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics that a broker of this configuration has from the start, as RocketMQ makes them."""

    def topic(name: str, queues: int = 1, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, perm)

    cluster, broker = config.brokerClusterName, config.name()
    inheriting = int(Perm.INHERIT)
    found = [
        topic(names.SELF_TEST_TOPIC),
        topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        topic(cluster, 16, READ_WRITE | inheriting if config.clusterTopicEnable else inheriting),
        topic(broker, 1, READ_WRITE | inheriting if config.brokerTopicEnable else inheriting),
        topic(names.OFFSET_MOVED_EVENT),
        topic(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
        topic(cluster + names.REPLY_TOPIC_SUFFIX),
        topic(names.REVIVE_LOG_PREFIX + cluster, config.reviveQueueNum),
        topic(names.SYNC_BROKER_MEMBER_PREFIX + broker, 1, inheriting),
        topic(names.TRANS_HALF_TOPIC),
        topic(names.TRANS_OP_HALF_TOPIC),
        topic(names.TIMER_TOPIC),
    ]
    if config.autoCreateTopicEnable:
        queues = config.defaultTopicQueueNums
        found.append(topic(names.AUTO_CREATE_TOPIC, queues, READ_WRITE | inheriting))
    if config.traceTopicEnable:
        found.append(topic(config.msgTraceTopicName))
    return found
