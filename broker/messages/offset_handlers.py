"""Consumer offsets on the wire: codes 14 and 15.

In a Raft group a commit that asks for an answer gets it when the commit is applied, and a query waits for what is
proposed and not yet applied: what either is told holds, whoever leads next.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from broker.clients import Channel, ClientTable
from broker.leader_only import refusal
from broker.messages.commit_origins import Origins
from broker.metadata.committers import ADMINISTRATOR, ANYBODY, Committer
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.feed import SLAVE
from broker.metadata.operations import LOST
from broker.metadata.topics import TopicTable
from broker.settings.config import LiveConfig
from remoting.audit import BoundedAudit
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Reply
from remoting.errors import CommandError
from remoting.headers.registry import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.server import Connection, Handler
from store.types import QueueEntry

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
RESET = "Offset has been previously reset"


class QueueStore(Protocol):
    """What is needed of the store."""

    @property
    def written(self) -> int:
        """The position behind the last record written."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset kept."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message."""
        ...

    def queue_entries(self, topic: str, queue_id: int, index: int, count: int) -> list[QueueEntry]:
        """Return entries of a queue."""
        ...


class _Unknown:
    """A consumer of which another member does not know who it is: the same as nobody else."""

    closed = True


class OffsetHandlers:
    """Handlers of querying and committing offsets."""

    def __init__(
        self,
        live: LiveConfig,
        offsets: OffsetTable,
        topics: TopicTable,
        groups: GroupTable,
        store: QueueStore,
        clients: ClientTable,
        origins: Origins | None = None,
        lease: Callable[[], bool] = lambda: True,
    ) -> None:
        """`lease` tells whether nobody else can lead at this very moment."""
        self._lease = lease
        self._origins = Origins(clients) if origins is None else origins
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._store = store
        self._clients = clients
        self._lowered = BoundedAudit("commits took offsets back")
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._memory_bytes = ram * live.store.accessMessageInMemoryMaxRatio // 100

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
        }

    def query(self, connection: Connection, request: Command) -> Reply:
        """Return a group's offset (14); 22 lets the client choose where to begin."""
        header = request.header(QueryConsumerOffsetRequestHeader)
        group, topic, queue_id = header.consumerGroup, header.topic, header.queueId
        if self._offsets.pending(group, topic, queue_id):
            answer = partial(self._found_late, header)
            self._offsets.wait(group, topic, queue_id, partial(_answer, connection, request, answer))
            return None
        return self._found(header)

    def _found_late(self, header: QueryConsumerOffsetRequestHeader) -> Command:
        """Answer what had to wait: in the meantime another may have come to lead (R7)."""
        return self._found(header) if self._lease() else refusal("this broker may lead no more")

    def _found(self, header: QueryConsumerOffsetRequestHeader) -> Command:
        offset = self._offsets.query(header.consumerGroup, header.topic, header.queueId)
        if offset < 0:
            if header.setZeroIfNotFound is False or not self._is_young(header.topic, header.queueId):
                return Command.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)
            offset = 0
        return Command.response(ResponseCode.SUCCESS, header=QueryConsumerOffsetResponseHeader(offset=offset))

    def update(self, connection: Connection, request: Command) -> Reply:
        """Take a group's offset (15)."""
        header = request.header(UpdateConsumerOffsetRequestHeader)
        topic, group, queue_id = header.topic, header.consumerGroup, header.queueId
        if self._groups.find(group, connection) is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!: create it first")
        config = self._topics.get(topic)
        if config is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= queue_id < max(config.readQueueNums, config.writeQueueNums):
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"queue id {queue_id} of topic {topic} does not exist")
        end = self._store.max_offset(topic, queue_id)
        # A slave passes on what others committed: it does not own the queue, and never seeks.
        client = None if SLAVE in connection.attachments else self._committer(connection, request, header)
        before = self._offsets.query(group, topic, queue_id) if client is ADMINISTRATOR or client is ANYBODY else -1
        if not self._offsets.commit(
            group, topic, queue_id, header.commitOffset, end, client, self._origins.came(request)
        ):
            return Command.response(ResponseCode.SUCCESS, RESET)
        # No member's word, and messages come again: that is told as what administrators change is.
        lowers = 0 <= header.commitOffset < before and not request.is_oneway
        if not request.is_oneway and self._offsets.pending(group, topic, queue_id):
            answer = partial(Command.response, ResponseCode.SUCCESS)

            def done(code: int) -> None:
                _answer(connection, request, answer, code)
                if lowers:
                    self._tell_lowered(connection, request, header, before, code)

            self._offsets.wait(group, topic, queue_id, done)
            return None
        if lowers:
            self._tell_lowered(connection, request, header, before, ResponseCode.SUCCESS)
        return Command.response(ResponseCode.SUCCESS)

    def _tell_lowered(
        self,
        connection: Connection,
        request: Command,
        header: UpdateConsumerOffsetRequestHeader,
        before: int,
        code: int,
    ) -> None:
        answer = Command.response(code, f"it was {before}")
        self._lowered.tell(connection, request, answer, of=(header.consumerGroup, header.topic))

    def _committer(
        self, connection: Connection, request: Command, header: UpdateConsumerOffsetRequestHeader
    ) -> Committer:
        """Return whom a commit comes from.

        Who waits for the answer and is no member of the group is an administrator's tool. Members tell without asking
        (official clients) or say what they are (ours), so one that has come back and was not heard of yet is not taken
        for a tool.
        """
        group = header.consumerGroup
        known = self._origins.client(connection, request, group)
        if header.fromConsumer:
            return _Unknown() if known is ANYBODY else known
        if known is ANYBODY or request.is_oneway or self._clients.consumes(cast(Channel, known), group):
            return known
        return ADMINISTRATOR

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Tell whether a queue still has its first message, in memory, or gets it yet: a new group begins with it.

        RocketMQ answers 22 of an empty queue; the client then asks for its end, and what was sent in between is lost
        to the group.
        """
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        if self._store.max_offset(topic, queue_id) == 0:
            config = self._topics.get(topic)
            return config is not None and 0 <= queue_id < max(config.readQueueNums, config.writeQueueNums)
        entries = self._store.queue_entries(topic, queue_id, 0, 1)
        return bool(entries) and self._store.written - entries[0].physical_offset <= self._memory_bytes


def _answer(connection: Connection, request: Command, answer: Callable[[], Command], code: int) -> None:
    """Answer a request that waited for an offset to be applied."""
    if code == ResponseCode.SUCCESS:
        connection.reply(request, answer())
    else:
        connection.reply(request, Command.response(code, LOST))
