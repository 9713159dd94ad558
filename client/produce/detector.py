"""Probing brokers in the background: those that did not answer are left alone until a question reaches them.

As RocketMQ's detector: every two seconds, 200 ms each. Any answer will do, a refusal too: somebody is there.
"""

import asyncio

from client.instance import ClientInstance
from client.produce.latency import LatencyTable
from client.routes import MASTER_ID
from remoting.codes import RequestCode
from remoting.errors import InvokeError, ResponseError
from remoting.headers.registry import GetMaxOffsetRequestHeader

DETECT_S = 2.0
PROBE_S = 0.2
# So many are asked at a time.
PROBES_AT_A_TIME = 16


class Detector:
    """Asks the brokers of a LatencyTable that did not answer last."""

    def __init__(self, table: LatencyTable, instance: ClientInstance) -> None:
        self._table = table
        self._instance = instance

    async def round(self) -> None:
        """Ask each of them once; one that stands in no route any more is forgotten."""
        brokers = self._table.unreachable()
        for start in range(0, len(brokers), PROBES_AT_A_TIME):
            await asyncio.gather(*(self._probe(broker) for broker in brokers[start : start + PROBES_AT_A_TIME]))

    async def _probe(self, broker: str) -> None:
        place = self._place(broker)
        if place is None:
            self._table.reached(broker)
            return
        topic, address = place
        header = GetMaxOffsetRequestHeader(topic=topic, queueId=0)
        try:
            await self._instance.remoting.call(address, RequestCode.GET_MAX_OFFSET, header, timeout=PROBE_S)
        except ResponseError:
            pass
        except InvokeError:
            return
        self._table.reached(broker)

    def _place(self, broker: str) -> tuple[str, str] | None:
        """Return a topic of the broker, and the address to ask."""
        for route in self._instance.routes.all():
            if replicas := route.brokers.get(broker):
                return route.topic, replicas.get(MASTER_ID) or replicas[min(replicas)]
        return None
