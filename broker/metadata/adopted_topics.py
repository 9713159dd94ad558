"""Topics that have messages in the log, or such that wait for them, and no configuration: they are given one.

An auto-created topic is written while its first message is stored, and a slave hears of it a moment later: a crash in
between must not hide messages that are in the log.
"""

from collections.abc import Callable, Iterable, Mapping

from broker.metadata.system_topics import READ_WRITE
from remoting.bodies.registry import TopicConfig
from remoting.topics import check_topic


class AdoptedTopics:
    """The configurations that were made so since the start."""

    def __init__(self) -> None:
        self._made: dict[str, TopicConfig] = {}

    def make(self, queues: Mapping[str, Iterable[int]], taken: Callable[[str], bool]) -> list[TopicConfig]:
        """Return configurations with so many queues that all of these exist, for topics that are not `taken`."""
        counts = {
            topic: max(ids, default=-1) + 1
            for topic, ids in queues.items()
            if not taken(topic) and check_topic(topic) is None
        }
        made = [TopicConfig(topic, count, count, READ_WRITE) for topic, count in counts.items() if count]
        self._made.update((one.topicName, one) for one in made)
        return made

    def widened(self, known: TopicConfig, queue_id: int) -> list[TopicConfig]:
        """Return what a topic is to be so that it has a queue: nothing when it has, or somebody said what it is."""
        if known is not self._made.get(known.topicName) or queue_id < known.readQueueNums:
            return []
        return self.make({known.topicName: (queue_id,)}, lambda _topic: False)
