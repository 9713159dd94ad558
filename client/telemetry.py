"""OpenTelemetry's door: spans "send", "process" and "receive", joined by the message property `traceparent`.

Where the API (the extra `telemetry`) is not installed, or OTEL_SDK_DISABLED is true, nothing of this happens; without
an SDK that the application sets up, its spans record nothing, but a trace context that is current is passed on all
the same.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from client.hooks import ConsumeCall, ConsumeOutcome, SendCall
from remoting.message import MessageExt

SEND = "send"
PROCESS = "process"
RECEIVE = "receive"
# OpenTelemetry's own variable: "true" for no spans.
DISABLED = "OTEL_SDK_DISABLED"
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
        # With the sender's baggage, if it has any.
        sent = propagate.extract(first.properties)
        span = self._tracer.start_span(
            f"{PROCESS} {first.topic}",
            context=sent,
            kind=trace.SpanKind.CONSUMER,
            attributes=_attributes(PROCESS, consuming),
            links=_links(self._api, consuming.messages[1:]),
        )
        consuming.notes[self] = (span, self._api.context.attach(trace.set_span_in_context(span, sent)))

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


class ReceiveSpans:
    """A span for each time that an application gets messages which it has polled, linked with those that sent them."""

    def __init__(self, api: _Api) -> None:
        self._api = api
        self._tracer = api.trace.get_tracer(SCOPE)

    def before_consume(self, consuming: ConsumeCall) -> None:
        """Begin the span, in the context of whoever polls."""
        consuming.notes[self] = self._tracer.start_span(
            f"{RECEIVE} {consuming.messages[0].topic}",
            kind=self._api.trace.SpanKind.CONSUMER,
            attributes=_attributes(RECEIVE, consuming),
            links=_links(self._api, consuming.messages),
        )

    def after_consume(self, consuming: ConsumeCall) -> None:
        """End it: what the application does with them is its own."""
        span = consuming.notes.pop(self, None)
        if span is not None:
            span.end()


def _links(api: _Api, messages: Sequence[MessageExt]) -> list[Any]:
    """Return links to the spans that sent the messages; the context that is current here is none of theirs."""
    trace, nothing = api.trace, api.context.Context()
    contexts = (
        trace.get_current_span(api.propagate.extract(message.properties, context=nothing)).get_span_context()
        for message in messages
    )
    return [trace.Link(context) for context in contexts if context.is_valid]


def _attributes(operation: str, consuming: ConsumeCall) -> dict[str, Any]:
    first = consuming.messages[0]
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.destination.name": first.topic,
        "messaging.message.id": first.msg_id,
        "messaging.consumer.group.name": consuming.group,
        "messaging.batch.message_count": len(consuming.messages),
    }


_SPANS = {SEND: SendSpans, PROCESS: ProcessSpans, RECEIVE: ReceiveSpans}


def telemetry_hooks(kind: str) -> list[Any]:
    """Return the hooks that make spans of one kind; none where the API is not installed, or its variable says no."""
    if os.environ.get(DISABLED, "").strip().lower() == "true" or find_spec("opentelemetry") is None:
        return []
    try:
        api = _Api()
    except ImportError:
        return []
    return [_SPANS[kind](api)]
