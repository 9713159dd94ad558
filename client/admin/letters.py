"""Administration of dead letters: messages that a group failed to consume too often, kept in a topic of its own."""

from collections.abc import Collection

from client.admin.messages import LISTED_MAX, MessageAdmin
from client.admin.topics import TopicAdmin
from client.errors import RouteError
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from remoting.topics import DLQ_PREFIX, dlq_topic

# The shortest delay: a letter that is sent again is tried as soon as its group reads it.
_DELAY_LEVEL = 1
# More than any letter was tried: once more, and no sooner a dead letter again.
_ATTEMPTS_MAX = 2**31 - 1


class LetterAdmin(TopicAdmin, MessageAdmin):
    """Dead letters of consumer groups."""

    async def dead_letter_groups(self) -> dict[str, int]:
        """Return the groups that have a topic of dead letters, with how many are kept."""
        found = {}
        for topic in await self._letter_topics():
            found[topic.removeprefix(DLQ_PREFIX)] = await self._kept(topic)
        return found

    async def dead_letters(self, group: str, *, most: int = LISTED_MAX) -> list[MessageExt]:
        """Return a group's dead letters, the `most` oldest; none when it never had one."""
        topic = dlq_topic(group)
        if topic not in await self._letter_topics():
            return []
        return await self.messages_by_time(topic, most=most)

    async def resend_dead_letters(self, group: str, letters: Collection[MessageExt]) -> None:
        """Have dead letters consumed once more by their group alone; they stay where they are until they expire.

        Each comes to the group after the first delay level, and is a dead letter again when it fails then.
        """
        brokers = await self._topic_brokers(dlq_topic(group)) if letters else {}
        for letter in letters:
            address = brokers.get(letter.broker_name)
            if address is None:
                raise RouteError(
                    f"broker {letter.broker_name}, which keeps {letter.msg_id}, is in no route now", retriable=True
                )
            await self._api.send_back(address, group, letter, _DELAY_LEVEL, _ATTEMPTS_MAX)

    async def _letter_topics(self) -> list[str]:
        return [topic for topic in await self.topics() if topic.startswith(DLQ_PREFIX)]

    async def _kept(self, topic: str) -> int:
        brokers = await self._topic_brokers(topic)
        route = await self.route(topic)
        kept = 0
        for data in route.queueDatas if route is not None else ():
            for number in range(data.readQueueNums if data.brokerName in brokers else 0):
                queue = MessageQueue(topic, data.brokerName, number)
                address = brokers[data.brokerName]
                kept += await self._api.max_offset(address, queue) - await self._api.min_offset(address, queue)
        return kept
