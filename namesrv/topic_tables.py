"""Topics by broker name, and what they cost: queues, mappings of static topics, the bytes that a broker makes one keep.

Bytes are what Python takes for them, near enough: what counts is that nobody gets a hundred times what he pays for.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from remoting.bodies.registry import QueueData
from remoting.codes import ResponseCode
from remoting.errors import CommandError

# Of one broker name: a million topics with names of ninety characters.
BROKER_BYTES_MAX = 256 * 1024 * 1024
# Of all: some five million topics, and what a NameServer's process is usually given.
BYTES_MAX = 1024 * 1024 * 1024
# Beside its name a topic has an entry in a dictionary; its QueueData is shared with others.
_TOPIC_BYTES = 100
# Distinct QueueData kept for sharing; beyond it the pool starts anew.
_SHARED_MAX = 65_536


class TopicTables:
    """topicQueueTable and topicQueueMappingInfoTable, both by broker name."""

    def __init__(self, topics_max: int, broker_bytes_max: int = BROKER_BYTES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """`topics_max` and `broker_bytes_max` are of one broker name, `bytes_max` of all together."""
        self.queues: dict[str, dict[str, QueueData]] = {}
        self.mappings: dict[str, dict[str, Any]] = {}
        self.total_bytes = 0
        self._topics_max = topics_max
        self._broker_bytes_max = broker_bytes_max
        self._bytes_max = bytes_max
        self._bytes: dict[str, int] = {}
        self._shared: dict[QueueData, QueueData] = {}

    def bytes_of(self, broker_name: str) -> int:
        """Return what is kept of a broker name."""
        return self._bytes.get(broker_name, 0)

    def check(
        self, broker_name: str, topics: Iterable[str], mappings: Mapping[str, Any], *, delete_missing: bool = False
    ) -> None:
        """Raise CommandError when a broker name may not have these in addition, or in the place of what it has."""
        table = self.queues.get(broker_name, {})
        wanted = set(topics)
        new = [topic for topic in wanted if topic not in table]
        kept = len(wanted) - len(new) if delete_missing else len(table)
        if kept + len(new) > self._topics_max:
            raise _refused(f"{kept + len(new)} topics on {broker_name} are more than topicsPerBrokerMax")
        before = self.bytes_of(broker_name)
        more = sum(map(topic_bytes, new))
        if delete_missing:
            more -= sum(map(topic_bytes, table.keys() - wanted))
        if mappings:
            old = self.mappings.get(broker_name, {})
            more -= sum(size_of(old[topic], self._broker_bytes_max) for topic in mappings if topic in old)
            more += size_of(dict(mappings), self._broker_bytes_max)
        if more <= 0:
            return
        if before + more > self._broker_bytes_max:
            raise _refused(f"{before + more} bytes for the topics of {broker_name} are more than brokerBytesMax")
        if self.total_bytes + more > self._bytes_max:
            raise _refused(f"{self.total_bytes + more} bytes for the topics of all brokers are more than routeBytesMax")

    def put(self, broker_name: str, topic: str, queue: QueueData) -> None:
        """Set a topic's queues on a broker."""
        table = self.queues.setdefault(broker_name, {})
        if topic not in table:
            self._count(broker_name, topic_bytes(topic))
        table[topic] = self._share(queue)

    def put_mappings(self, broker_name: str, mappings: Mapping[str, Any]) -> None:
        """Set the mappings of static topics."""
        table = self.mappings.setdefault(broker_name, {})
        for topic, mapping in mappings.items():
            self._drop_mapping(broker_name, topic)
            table[topic] = mapping
            self._count(broker_name, topic_bytes(topic) + size_of(mapping, self._broker_bytes_max))

    def drop(self, broker_name: str, topic: str) -> None:
        """Forget a topic on a broker."""
        if self.queues.get(broker_name, {}).pop(topic, None) is not None:
            self._count(broker_name, -topic_bytes(topic))
        self._drop_mapping(broker_name, topic)

    def drop_queues(self, broker_name: str, keep: Iterable[str]) -> None:
        """Forget all topics of a broker but these."""
        table = self.queues.get(broker_name, {})
        for topic in table.keys() - set(keep):
            del table[topic]
            self._count(broker_name, -topic_bytes(topic))

    def forget(self, broker_name: str) -> None:
        """Forget all topics of a broker name."""
        self.queues.pop(broker_name, None)
        self.mappings.pop(broker_name, None)
        self.total_bytes -= self._bytes.pop(broker_name, 0)

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permission of all topics of a broker name; returns how many there are."""
        table = self.queues.get(broker_name, {})
        for topic, queue in table.items():
            table[topic] = self._share(
                QueueData(
                    queue.brokerName,
                    int(change(queue.perm)),
                    queue.readQueueNums,
                    queue.topicSysFlag,
                    queue.writeQueueNums,
                )
            )
        return len(table)

    def _drop_mapping(self, broker_name: str, topic: str) -> None:
        mapping = self.mappings.get(broker_name, {}).pop(topic, None)
        if mapping is not None:
            self._count(broker_name, -topic_bytes(topic) - size_of(mapping, self._broker_bytes_max))

    def _count(self, broker_name: str, more: int) -> None:
        self._bytes[broker_name] = self._bytes.get(broker_name, 0) + more
        self.total_bytes += more

    def _share(self, queue: QueueData) -> QueueData:
        """Return an equal QueueData that is in use already: 100,000 topics of a broker differ in a few ways only."""
        if len(self._shared) >= _SHARED_MAX:
            self._shared.clear()
        return self._shared.setdefault(queue, queue)


def topic_bytes(topic: str) -> int:
    """Return what a topic costs on one broker."""
    return sys.getsizeof(topic) + _TOPIC_BYTES


def size_of(value: object, enough: int) -> int:
    """Return the bytes of a value made of JSON's kinds; counting ends when it has found more than `enough`."""
    total = 0
    waiting = [value]
    while waiting and total <= enough:
        one = waiting.pop()
        total += sys.getsizeof(one)
        if isinstance(one, dict):
            waiting.extend(chain(one.keys(), one.values()))
        elif isinstance(one, list | tuple):
            waiting.extend(one)
    return total


def _refused(why: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, f"register broker failed: {why}")
