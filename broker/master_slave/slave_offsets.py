"""What a slave knows better than its master about consumer offsets, and gives back.

Two things: what was committed here while the master was away, and what the master had told and then lost by a crash
(it writes its offsets every flushConsumerOffsetInterval). The second is looked for once on each connection, when the
master's table is copied first. An offset counts no further than the logs were found to be the same: behind that
the master may have other messages under the same offsets than those that were read.

A master of ours takes both unless the offset was lowered on purpose since this slave's copy was made
(broker/master_slave/offset_return.py). One that cannot tell, RocketMQ's or one with a table of another origin, is told
what was committed here only, as a client would.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice

from broker.master_slave.ha_state import Followed
from broker.master_slave.offset_return import PLACES_MAX
from broker.master_slave.table_requests import CopiedOffsets, MasterTables, Place
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.offset_keys import SEPARATOR
from remoting.codes import ResponseCode
from remoting.errors import ResponseError

_log = logging.getLogger(__name__)

# Offsets that are on their way to a master that takes one at a time.
COMMITS_AT_A_TIME = 64
# What a master says of an offset that it will never take.
_UNWANTED = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
)

Offsets = dict[Place, int]


class BetterOffsets:
    """Finds them, and sends them."""

    def __init__(self, table: OffsetTable, end_before: Callable[[str, int, int], int]) -> None:
        """`end_before(topic, queue, position)`: behind the last message of the own queue that stands before it."""
        self._table = table
        self._end_before = end_before
        # On which connection everything was looked at.
        self._looked: Followed | None = None

    async def give_back(self, ask: MasterTables, copied: CopiedOffsets, own: Offsets, followed: Followed) -> bool:
        """Tell the master what is better here than what was copied; False when there was nothing."""
        first = self._looked != followed
        better = _greater(own, copied)
        if first and copied.mark is not None:
            better = self._all_greater(copied) | better
        if first:
            better = {place: self._within(place, offset, followed.position) for place, offset in better.items()}
            better = _greater(better, copied)
        if better and not await self._return(ask, copied, better):
            better = {place: offset for place, offset in better.items() if place in own}
            await self._commit(ask, better)
        self._looked = followed
        return bool(better)

    def _all_greater(self, copied: CopiedOffsets) -> Offsets:
        """Return what is greater in the whole table; only keys that differ are looked at closely."""
        theirs = copied.table.offsetTable
        return {
            (topic, group, queue_id): offset
            for topic, group in self._table.pairs()
            if (queues := self._table.offsets(group, topic)) != (known := theirs.get(f"{topic}{SEPARATOR}{group}", {}))
            for queue_id, offset in queues.items()
            if offset > known.get(queue_id, -1)
        }

    def _within(self, place: Place, offset: int, position: int) -> int:
        topic, _, queue_id = place
        return min(offset, self._end_before(topic, queue_id, position))

    async def _return(self, ask: MasterTables, copied: CopiedOffsets, better: Offsets) -> bool:
        """Give all back at once; False when this master cannot tell what may be taken."""
        if copied.mark is None or not self._table.mark:
            return False
        taken = 0
        for portion in _portions(better):
            answer = await ask.return_offsets(self._table.mark, portion)
            if not answer.known:
                return False
            taken += answer.taken
        _log.info("%d consumer offsets were greater here than at the master, which took %d back", len(better), taken)
        return True

    async def _commit(self, ask: MasterTables, own: Offsets) -> None:
        for portion in _portions(own, COMMITS_AT_A_TIME):
            await asyncio.gather(*(_commit(ask, place, offset) for place, offset in portion.items()))


async def _commit(ask: MasterTables, place: Place, offset: int) -> None:
    try:
        await ask.commit(place, offset)
    except ResponseError as error:
        if error.code not in _UNWANTED:
            raise
        # It has no such topic, group or queue any more: nothing is lost with the offset.
        _log.info("%s of group %s queue %d: offset %d is not wanted: %s", *place, offset, error)


def _greater(offsets: Offsets, copied: CopiedOffsets) -> Offsets:
    theirs = copied.table.offsetTable
    return {
        (topic, group, queue_id): offset
        for (topic, group, queue_id), offset in offsets.items()
        if offset > theirs.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id, -1)
    }


def _portions(offsets: Offsets, size: int = PLACES_MAX) -> Iterator[Offsets]:
    items = iter(offsets.items())
    while portion := dict(islice(items, size)):
        yield portion
