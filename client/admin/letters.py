"""Administration of dead letters: messages that a group failed to consume too often, kept in a topic of its own."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Iterable

from client.admin.messages import LISTED_MAX, MessageAdmin, age
from client.admin.topics import TopicAdmin
from client.errors import ConsumeError, RouteError
from remoting.bodies.registry import MessageQueue, SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ResponseError
from remoting.headers.registry import GetSubscriptionGroupConfigRequestHeader
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

    async def dead_letters(self, group: str, *, most: int = LISTED_MAX, begin_ms: int = 0) -> list[MessageExt]:
        """Return a group's dead letters stored since a time, the `most` oldest; none when it never had one."""
        topic = dlq_topic(group)
        if topic not in await self._letter_topics():
            return []
        return await self.messages_by_time(topic, begin_ms, most=most)

    async def each_dead_letter(self, group: str, begin_ms: int = 0) -> AsyncGenerator[MessageExt, None]:
        """Yield all that a group has now, oldest first."""
        topic = dlq_topic(group)
        if topic in await self._letter_topics():
            async with contextlib.aclosing(self.each_message(topic, begin_ms)) as letters:
                async for letter in letters:
                    yield letter

    async def find_dead_letters(self, group: str, ids: Collection[str]) -> list[MessageExt]:
        """Return a group's dead letters that have one of these ids, of either kind, oldest first."""
        topic = dlq_topic(group)
        if topic not in await self._letter_topics():
            return []
        found: dict[tuple[str, int], MessageExt] = {}
        missing = set()
        for each in dict.fromkeys(ids):
            letters = await self.messages_by_unique_key(topic, each)
            found.update(((letter.broker_name, letter.physical_offset), letter) for letter in letters)
            if not letters:
                missing.add(each)
        if missing:
            # Offset ids, or what no index has: one way through all of them.
            async with contextlib.aclosing(self.each_message(topic)) as everything:
                async for letter in everything:
                    if named := missing & {letter.offset_msg_id, letter.msg_id}:
                        found[letter.broker_name, letter.physical_offset] = letter
                        missing -= named
                    if not missing:
                        break
        return sorted(found.values(), key=age)

    async def resend_dead_letters(
        self,
        group: str,
        letters: Iterable[MessageExt] | AsyncIterable[MessageExt],
        *,
        on_sent: Callable[[MessageExt], object] | None = None,
    ) -> None:
        """Have dead letters consumed once more by their group alone; they stay where they are until they expire.

        Each comes to the group after the first delay level, and is a dead letter again when it fails then. `on_sent`
        is called with each when it was sent: when this raises, it was called with those that were. Raises RouteError,
        and ConsumeError when the group has no retries, for then a broker would store nothing.
        """
        brokers: dict[str, str] = {}
        asked: set[str] = set()
        async for letter in _one_by_one(letters):
            brokers = brokers or await self._topic_brokers(dlq_topic(group))
            address = brokers.get(letter.broker_name)
            if address is None:
                raise RouteError(
                    f"broker {letter.broker_name}, which keeps {letter.msg_id}, is in no route now", retriable=True
                )
            if address not in asked:
                await self._check_retries(address, group)
                asked.add(address)
            await self._api.send_back(address, group, letter, _DELAY_LEVEL, _ATTEMPTS_MAX)
            if on_sent is not None:
                on_sent(letter)

    async def _check_retries(self, address: str, group: str) -> None:
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        try:
            answer = await self._call(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            # An old RocketMQ.
            return
        if SubscriptionGroupConfig.decode(answer.body).retryQueueNums <= 0:
            raise ConsumeError(
                f"the group {group} takes no retries at {address} (retryQueueNums=0), so nothing would be sent: "
                f"`raftmq group create {group} --retry-queues 1` changes that"
            )

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


async def _one_by_one(letters: Iterable[MessageExt] | AsyncIterable[MessageExt]) -> AsyncGenerator[MessageExt, None]:
    if isinstance(letters, AsyncIterable):
        async for letter in letters:
            yield letter
    else:
        for letter in letters:
            yield letter
