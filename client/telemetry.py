"""OpenTelemetry's door: spans "send" and "process", joined across processes by the message property `traceparent`.

Where the API (the extra `telemetry`) is not installed, nothing of this happens; without an SDK that the application
sets up, its spans record nothing, but a trace context that is current is passed on all the same.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from client.hooks import ConsumeCall, ConsumeOutcome, SendCall

SEND = "send"
PROCESS = "process"
# Who the spans come from.
SCOPE = "raftmq"


class _Api:
    """The parts of the OpenTelemetry API that are used."""

    def __init__(self) -> None:
        self.context: Any = import_module("opentelemetry.context")
        self.propagate: Any = import_module("opentelemetry.propagate")
        self.trace: Any = import_module("opentelemetry.trace")


class SendSpans:
    """A span around each send; its context goes out with the message."""

    def __init__(self, api: _Api) -> None:
        self._api = api
        self._tracer = api.trace.get_tracer(SCOPE)

    def before_send(self, sending: SendCall) -> None:
        """Begin the span, in the context of whoever sends."""
        topic = sending.messages[0].topic
        trace = self._api.trace
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": SEND,
            "messaging.destination.name": topic,
            "messaging.batch.message_count": len(sending.messages),
        }
        span = self._tracer.start_span(f"{SEND} {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes)
        sending.notes[self] = span
        self._api.propagate.inject(sending.properties, context=trace.set_span_in_context(span))

    def after_send(self, sending: SendCall) -> None:
        """End the span."""
        span = sending.notes.pop(self, None)
        if span is None:
            return
        if sending.error is not None:
            span.record_exception(sending.error)
            span.set_status(self._api.trace.StatusCode.ERROR, str(sending.error))
        elif sending.results:
            span.set_attribute("messaging.message.id", sending.results[0].msg_id)
        span.end()


class ProcessSpans:
    """A span around each call of a consumer's callback, below the span that sent the (first) message."""

    def __init__(self, api: _Api) -> None:
        self._api = api
        self._tracer = api.trace.get_tracer(SCOPE)

    def before_consume(self, consuming: ConsumeCall) -> None:
        """Begin the span and make it the current one, so that what the callback does belongs to it."""
        trace, propagate = self._api.trace, self._api.propagate
        first = consuming.messages[0]
        links = [
            trace.Link(context)
            for message in consuming.messages[1:]
            if (context := trace.get_current_span(propagate.extract(message.properties)).get_span_context()).is_valid
        ]
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": PROCESS,
            "messaging.destination.name": first.topic,
            "messaging.message.id": first.msg_id,
            "messaging.consumer.group.name": consuming.group,
            "messaging.batch.message_count": len(consuming.messages),
        }
        span = self._tracer.start_span(
            f"{PROCESS} {first.topic}",
            context=propagate.extract(first.properties),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        consuming.notes[self] = (span, self._api.context.attach(trace.set_span_in_context(span)))

    def after_consume(self, consuming: ConsumeCall) -> None:
        """End the span."""
        noted = consuming.notes.pop(self, None)
        if noted is None:
            return
        span, token = noted
        self._api.context.detach(token)
        if consuming.outcome is not ConsumeOutcome.SUCCESS:
            span.set_status(self._api.trace.StatusCode.ERROR, getattr(consuming.outcome, "name", ""))
        span.end()


def telemetry_hooks(kind: str) -> list[Any]:
    """Return the hooks that make spans, of sends or of processing; none where the API is not installed."""
    if find_spec("opentelemetry") is None:
        return []
    try:
        api = _Api()
    except ImportError:
        return []
    return [SendSpans(api) if kind == SEND else ProcessSpans(api)]
