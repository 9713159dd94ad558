"""What a master that lost its last commits takes back from its slaves (code 9120, RETURN_OFFSETS).

    request  {"mark": "name:number", "offsets": {"topic@group": {"queue": offset}}}     the mark of the slave's copy
    answer   {"known": true, "taken": n}                                known: false when the mark says nothing here

Taken is what is greater than what is known, and was not lowered since the copy was made
(broker/metadata/offset_lowered.py).
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from broker.metadata.consumer_groups import GroupTable
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.offset_keys import SEPARATOR, parts_of
from broker.metadata.topics import TopicTable
from broker.reply import ok
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.fastjson import read_strictly
from remoting.server import Connection, Handler

# Offsets that one request brings: some milliseconds of the loop.
PLACES_MAX = 2000


class ReturnRequest(msgspec.Struct):
    """See the module."""

    mark: str
    offsets: dict[str, dict[int, int]]


class ReturnAnswer(msgspec.Struct):
    """See the module."""

    known: bool
    taken: int = 0


class QueueEnds(Protocol):
    """What is needed of the store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message."""
        ...


class OffsetReturn:
    """The handler."""

    def __init__(
        self,
        offsets: OffsetTable,
        topics: TopicTable,
        groups: GroupTable,
        store: QueueEnds,
        leads: Callable[[], bool],
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._store = store
        self._leads = leads

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {ClassicCode.RETURN_OFFSETS: self.take}

    def take(self, _connection: Connection, request: Command) -> Command:
        """9120: take offsets that were lost here."""
        lowerings = self._offsets.lowerings
        if not self._leads() or lowerings is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "this broker is no master: it takes no offsets back")
        try:
            brought = read_strictly(request.body, ReturnRequest)
        except msgspec.DecodeError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body is not what is due: {error}") from None
        if sum(map(len, brought.offsets.values())) > PLACES_MAX:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"at most {PLACES_MAX} offsets are taken at a time")
        lowered = lowerings.since(brought.mark)
        if lowered is None:
            return ok(body=msgspec.json.encode(ReturnAnswer(known=False)))
        taken = 0
        for key, queues in brought.offsets.items():
            if SEPARATOR in key and not lowered(key):
                taken += sum(self._take(*parts_of(key), queue_id, offset) for queue_id, offset in queues.items())
        return ok(body=msgspec.json.encode(ReturnAnswer(known=True, taken=taken)))

    def _take(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        config = self._topics.get(topic)
        if config is None or self._groups.get(group) is None:
            return False
        if not 0 <= queue_id < max(config.readQueueNums, config.writeQueueNums):
            return False
        offset = min(offset, self._store.max_offset(topic, queue_id))
        if offset <= self._offsets.query(group, topic, queue_id):
            return False
        return self._offsets.commit(group, topic, queue_id, offset, offset, None)
