"""Groups that read what nobody else reads any more are shut out: disableConsumeIfConsumerReadSlowly, off by default.

A consumer far behind reads from the disk what the others have in memory. Where the key is set, every three minutes (as
RocketMQ does) each group is looked at of which some queue was, at its last pull, more than consumerFallbehindThreshold
bytes of the log behind: it may not consume any more (consumeEnable=false, agreed upon like any change of a group) until
an administrator lets it. Who does not lead shuts nobody out.
"""

import logging

import msgspec

from broker.context import BrokerContext, Tables
from remoting.errors import CommandError
from remoting.topics import is_system_group

_log = logging.getLogger(__name__)

SLOW_SCAN_SECONDS = 180.0


class SlowReaders:
    """Looks at how far groups are behind, and shuts out who is too far."""

    def __init__(self, context: BrokerContext, tables: Tables) -> None:
        self._live, self._role = context.live, context.role
        self._groups, self._stats = tables.groups, tables.stats

    async def check(self) -> None:
        """Shut out the groups that are too far behind; called every SLOW_SCAN_SECONDS."""
        config = self._live.broker
        if not config.disableConsumeIfConsumerReadSlowly or not self._role.leads:
            return
        for (group, topic, queue), behind in self._stats.furthest_behind().items():
            known = self._groups.get(group)
            if behind <= config.consumerFallbehindThreshold or known is None or is_system_group(group):
                continue
            # What was measured so far counts no more: an administrator may let it read on.
            self._stats.forget_behind(group)
            if not known.consumeEnable:
                continue
            try:
                self._groups.update(msgspec.structs.replace(known, consumeEnable=False))
                await self._groups.save()
            except CommandError as error:
                _log.warning("group %s is too far behind, and cannot be shut out now: %s", group, error)
                continue
            _log.warning(
                "group %s may not consume any more: it is %d bytes behind in topic %s, queue %d "
                "(disableConsumeIfConsumerReadSlowly, consumerFallbehindThreshold=%d); updateSubGroup with "
                "consumeEnable=true lets it go on",
                group,
                behind,
                topic,
                queue,
                config.consumerFallbehindThreshold,
            )
