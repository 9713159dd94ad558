"""What a producer does beside sending, where it was asked to: hooks, traces, telemetry, batches, probes of brokers."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from client.errors import ClientError
from client.flight import Flight
from client.hooks import SendHook
from client.instance import ClientInstance
from client.produce.batching import Batcher, Batching, SendBatch
from client.produce.detector import DETECT_S, Detector
from client.produce.hooked import SendHooks
from client.produce.latency import LatencyTable
from client.telemetry import SEND, telemetry_hooks
from client.trace.dispatcher import TraceDispatcher, trace_topic
from client.trace.hooks import SendTracer
from runtime.tasks import Tasks


class SendExtras:
    """The extras of one producer. `batcher` and `trace` are None where nobody asked for them."""

    def __init__(self, group: str, batching: Batching | None, trace: bool | str, hooks: Sequence[SendHook]) -> None:
        """Take the options as the producer was given them; raises ClientError for what is none."""
        if batching is not None and not isinstance(batching, Batching):
            raise ClientError(f"the option batching is {batching!r}: it takes a Batching, or None")
        self._group = group
        self._batching = batching
        self._given = tuple(hooks)
        self._topic = trace_topic(trace)
        self.batcher: Batcher | None = None
        self.trace: TraceDispatcher | None = None
        self.hooks = SendHooks(group)

    def start(
        self,
        instance: ClientInstance,
        flight: Flight,
        send: SendBatch,
        body_bytes_max: int,
        tasks: Tasks,
        undo: AsyncExitStack,
    ) -> None:
        """Begin, now that the instance is entered; `send` sends a batch, whose messages count in `flight`."""
        hooks = [*telemetry_hooks(SEND), *self._given]
        if self._topic is not None:
            self.trace = TraceDispatcher(instance, f"{self._group}-PRODUCE", self._topic)
            self.trace.start()
            undo.push_async_callback(self.trace.close)
            hooks.append(SendTracer(self.trace))
        self.hooks = SendHooks(self._group, hooks)
        if self._batching is not None:
            self.batcher = Batcher(self._batching, self.hooks, flight, send, body_bytes_max, tasks)

    async def close(self) -> None:
        """Send what waits in batches; the traces follow when all sends have ended."""
        if self.batcher is not None:
            await self.batcher.close()


def detect(table: LatencyTable | None, instance: ClientInstance, tasks: Tasks) -> None:
    """Probe unreachable brokers in the background, where the table asks for it."""
    if table is not None and table.detected:
        tasks.every(DETECT_S, Detector(table, instance).round, "detector")
