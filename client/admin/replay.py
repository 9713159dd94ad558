"""Administration of where groups go on: what a reset or a clone of offsets would do, told before it is done."""

from collections.abc import Collection
from dataclasses import dataclass

from client.admin.cluster import ClusterAdmin
from client.admin.groups import TO_THE_END, GroupAdmin
from client.errors import RouteError
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from remoting.errors import ResponseError


@dataclass(frozen=True, slots=True, order=True)
class OffsetMove:
    """What becomes of a group's offset in one queue; `before` is None where it has none."""

    queue: MessageQueue
    before: int | None
    offset: int


class ReplayAdmin(GroupAdmin, ClusterAdmin):
    """Plans of resets and clones; `apply_moves` does what a plan says."""

    async def plan_reset(
        self,
        group: str,
        topic: str,
        *,
        timestamp_ms: int = TO_THE_END,
        offset: int | None = None,
        force: bool = True,
        queues: Collection[MessageQueue] = (),
    ) -> list[OffsetMove]:
        """Return what a reset to a time (-1: to the end) would do in all queues of a topic, or in some; do nothing.

        `offset` takes the place of a time. Without `force` an offset is only moved back. What the reset would refuse is
        refused: a group that a broker does not have, an offset out of a queue's range. Raises RouteError for a queue
        that the topic does not have.
        """
        places = await self._read_queues(topic)
        if strange := sorted(set(queues) - places.keys()):
            names = ", ".join(f"{queue.brokerName}:{queue.queueId}" for queue in strange)
            raise RouteError(f"topic {topic} has no queue {names}", retriable=False)
        for address in sorted({places[queue] for queue in queues or places}):
            if not await self._has_group(address, group):
                # As the broker says it to the reset.
                refused = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
                raise ResponseError(refused, f"Group {group} does not exist", address)
        moves = []
        for queue in sorted(queues or places):
            address = places[queue]
            before = await self._api.committed(address, group, queue, strict=True)
            if offset is not None:
                target = offset
            elif timestamp_ms < 0:
                target = await self._api.max_offset(address, queue)
            else:
                target = await self._api.offset_by_time(address, queue, timestamp_ms)
            if not force and before is not None and before <= target:
                target = before
            elif offset is not None:
                await self._check_range(address, queue, offset)
            moves.append(OffsetMove(queue, before, target))
        return moves

    async def plan_clone(self, source: str, target: str, topic: str) -> list[OffsetMove]:
        """Return what clone_offsets would do in a topic, where the source has offsets; do nothing.

        Raises RequestRefused when a broker would not make the target group.
        """
        for address in await self.masters():
            if not await self._has_group(address, target):
                made = (await self.broker_config(address)).get("autoCreateSubscriptionGroup")
                if made == "false":
                    refused = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
                    raise ResponseError(refused, f"subscription group[{target}] not exist on this broker", address)
        moves = []
        for queue, address in sorted((await self._read_queues(topic)).items()):
            offset = await self._api.committed(address, source, queue, strict=True)
            if offset is not None:
                before = await self._api.committed(address, target, queue, strict=True)
                moves.append(OffsetMove(queue, before, offset))
        return moves

    async def apply_moves(self, group: str, moves: Collection[OffsetMove]) -> None:
        """Set a group's offsets as planned, a request per queue; members that are online go on there."""
        for move in moves:
            await self.reset_queue_offset(group, move.queue, move.offset)

    async def _has_group(self, address: str, group: str) -> bool:
        try:
            return group in await self.groups(address=address)
        except ResponseError:
            # More groups than one answer holds, or not for this user to see: what is asked for says it itself.
            return True

    async def _check_range(self, address: str, queue: MessageQueue, offset: int) -> None:
        low, high = await self._api.min_offset(address, queue), await self._api.max_offset(address, queue)
        if not low <= offset <= high:
            text = f"offset {offset} is not in the queue's range {low} to {high}"
            raise ResponseError(ResponseCode.INVALID_PARAMETER, text, address)

    async def _read_queues(self, topic: str) -> dict[MessageQueue, str]:
        """Return the queues that consumers read, with the address of who answers for each."""
        addresses = await self._topic_brokers(topic)
        route = await self.route(topic)
        assert route is not None, "a topic with brokers has a route"
        return {
            MessageQueue(topic, data.brokerName, number): addresses[data.brokerName]
            for data in route.queueDatas
            if data.brokerName in addresses
            for number in range(data.readQueueNums)
        }
