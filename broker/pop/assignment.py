"""Codes 400 and 401: which queues of a topic a member of a group reads, and whether by pulls or by POP."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from broker.clients import ClientTable
from broker.metadata.request_modes import POP, PULL, RequestMode, RequestModes
from broker.reply import ok
from broker.settings.config import LiveConfig
from remoting.bodies.registry import (
    MessageQueue,
    QueryAssignmentBody,
    QueryAssignmentResponseBody,
    QueueAssignment,
    SetMessageRequestModeBody,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler
from remoting.topics import check_group, check_topic, is_retry_topic

_log = logging.getLogger(__name__)

BROADCASTING = "BROADCASTING"
# Where every queue of a broker may be read from by POP.
ANY_QUEUE = -1
# Members whose queues a member shares, at most: more than a group has.
SHARE_MAX = (1 << 31) - 1

Share = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Returns the queues of one of the members, given all queues and all members, both sorted."""


def average(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Give each member a run of neighbouring queues, the first members one more where that does not come out even."""
    place = members.index(me)
    each, left = divmod(len(queues), len(members))
    first = each * place + min(place, left)
    return list(queues[first : first + each + (place < left)])


def average_by_circle(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Give the queues to the members in turn."""
    return list(queues[members.index(me) :: len(members)])


STRATEGIES: Mapping[str, Share] = {"AVG": average, "AVG_BY_CIRCLE": average_by_circle}
"""Those that RocketMQ's broker knows; others need what only clients are told."""


class AssignmentHandlers:
    """Handlers of what clients ask that have the broker divide the queues."""

    def __init__(
        self,
        live: LiveConfig,
        modes: RequestModes,
        clients: ClientTable,
        queues: Callable[[str], Awaitable[list[MessageQueue]]],
    ) -> None:
        """`queues` returns the queues of a topic that can be read, wherever they are, sorted."""
        self._live, self._modes, self._clients, self._queues = live, modes, clients, queues

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.QUERY_ASSIGNMENT: self.query, RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode}

    async def query(self, _connection: Connection, request: Command) -> Command:
        """400: the queues of one member; a body without a list says that nothing can be said, so nothing changes."""
        body = QueryAssignmentBody.decode(request.body)
        wrong = check_topic(body.topic) or check_group(body.consumerGroup)
        if wrong is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, wrong)
        mode = self._mode(body.topic, body.consumerGroup)
        mine = await self._shared_out(body, mode)
        found = None if mine is None else [QueueAssignment(queue, mode.mode) for queue in mine]
        return ok(body=QueryAssignmentResponseBody(found).encode())

    async def set_mode(self, _connection: Connection, request: Command) -> Command:
        """401: how a group is to read a topic."""
        body = SetMessageRequestModeBody.decode(request.body)
        wrong = check_topic(body.topic) or check_group(body.consumerGroup)
        if wrong is None and body.mode not in {PULL, POP}:
            wrong = f"the mode is {body.mode[:20]!r}: it takes {PULL} or {POP}"
        if wrong is None and not -SHARE_MAX <= body.popShareQueueNum <= SHARE_MAX:
            wrong = f"popShareQueueNum is out of range: it takes up to {SHARE_MAX}"
        if is_retry_topic(body.topic):
            raise CommandError(ResponseCode.NO_PERMISSION, "a retry topic is always pulled from, its mode is not set")
        if wrong is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, wrong)
        self._modes.put(body)
        await self._modes.save()
        return ok()

    def _mode(self, topic: str, group: str) -> RequestMode:
        known = self._modes.get(topic, group)
        if known is not None:
            return known
        config = self._live.broker
        mode = PULL if is_retry_topic(topic) else config.defaultMessageRequestMode.upper()
        return RequestMode(mode, config.defaultPopShareQueueNum)

    async def _shared_out(self, asked: QueryAssignmentBody, mode: RequestMode) -> list[MessageQueue] | None:
        queues = await self._queues(asked.topic)
        if not queues:
            return None
        if asked.messageModel == BROADCASTING or not self._live.broker.serverLoadBalancerEnable:
            return queues
        members = sorted(set(self._clients.consumer_ids(asked.consumerGroup)))
        share = STRATEGIES.get(asked.strategyName)
        if not members or share is None:
            why = "nobody is in it" if share is not None else f"there is no strategy {asked.strategyName[:64]!r}"
            _log.info("group %s has no queues of %s: %s", asked.consumerGroup[:255], asked.topic[:255], why)
            return None
        if mode.mode == POP:
            return popped_by(asked.clientId, share, queues, members, mode.share)
        return share(asked.clientId, queues, members) if asked.clientId in members else []


def popped_by(
    me: str, share: Share, queues: Sequence[MessageQueue], members: Sequence[str], others: int
) -> list[MessageQueue]:
    """Return what a member pops from: its own share and those of so many `others` that follow it among the members.

    All queues of all brokers when that is everybody, or 0; of more members than queues each has one.
    """
    if others <= 0 or others >= len(members) - 1:
        return sorted({MessageQueue(queue.topic, queue.brokerName, ANY_QUEUE) for queue in queues})
    if me not in members:
        return []
    place = members.index(me)
    if len(members) > len(queues):
        return [queues[place % len(queues)]]
    near = [members[(place + step) % len(members)] for step in range(others + 1)]
    return sorted({queue for member in near for queue in share(member, queues, members)})
