"""Spans as an application sees them, with OpenTelemetry's own API and SDK."""

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from client.consume.caller import CallbackCaller
from client.hooks import ConsumeHooks, ConsumeOutcome, SendCall
from client.message import Message
from client.produce.hooked import SendHooks
from client.produce.producer import Producer
from client.telemetry import PROCESS, RECEIVE, SEND, telemetry_hooks
from remoting.message import MessageExt
from tests.parts.pair_of_masters import Pair
from tests.unit.test_client_listeners import message, options


@pytest.fixture(autouse=True)
def _enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Give what the spans are exported to; the provider is this test's only, as a process can set one only once."""
    exported = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    yield exported
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def parent_id(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


class Keeps:
    """A hook that keeps the properties that went out."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}

    def before_send(self, sending: SendCall) -> None:
        """Look when the others have added theirs."""
        self.properties = sending.properties

    def after_send(self, sending: SendCall) -> None:
        """Do nothing."""


async def test_one_trace_goes_from_who_sends_through_the_callback(exporter: InMemorySpanExporter) -> None:
    pair, kept = Pair(), Keeps()
    await pair.start()
    tracer = trace.get_tracer("application")
    async with Producer("p", pair.namesrv, hooks=[kept]) as producer, asyncio.timeout(20):
        with tracer.start_as_current_span("order"):
            token = context.attach(baggage.set_baggage("customer", "7"))
            sent = await producer.send(Message("T", b"x"))
            context.detach(token)
    await pair.close()
    assert kept.properties["baggage"] == "customer=7"

    consumed = message(1)
    consumed.properties.update(kept.properties)

    async def callback(_messages: list[MessageExt]) -> None:
        assert baggage.get_baggage("customer") == "7"
        with tracer.start_as_current_span("booking"):
            raise ValueError("it fails")

    caller = CallbackCaller(callback, options(), None, ConsumeHooks("g", telemetry_hooks(PROCESS)))
    await caller.call([consumed])
    caller.close()
    assert not trace.get_current_span().get_span_context().is_valid

    spans = by_name(exporter)
    order, send, process, booking = (
        spans[name] for name in ("order", "send T", f"process {consumed.topic}", "booking")
    )
    assert len({span.context.trace_id for span in spans.values() if span.context is not None}) == 1
    assert [parent_id(span) for span in (send, process, booking)] == [span_id(span) for span in (order, send, process)]
    assert (send.kind, process.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert send.attributes is not None
    assert send.attributes["messaging.system"] == "rocketmq"
    assert send.attributes["messaging.message.id"] == sent.msg_id
    assert (send.status.status_code, process.status.status_code) == (trace.StatusCode.UNSET, trace.StatusCode.ERROR)


def test_polled_messages_are_linked_with_their_sends_and_with_nothing_else(exporter: InMemorySpanExporter) -> None:
    kept = Keeps()
    hooks = SendHooks("p", [*telemetry_hooks(SEND), kept])
    _message, sendings = hooks.begin(Message("T", b"x"))
    hooks.end(sendings, error=ValueError("x"))
    traced, untraced = message(1), message(2)
    traced.properties.update(kept.properties)
    polled = ConsumeHooks("g", telemetry_hooks(RECEIVE))
    with trace.get_tracer("application").start_as_current_span("loop"):
        polled.end(polled.begin([untraced, traced]), ConsumeOutcome.SUCCESS)
    spans = by_name(exporter)
    send, receive, loop = spans["send T"], spans[f"receive {traced.topic}"], spans["loop"]
    assert send.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in send.events] == ["exception"]
    # Not with the loop's own span, which is current while they are handed out: that is the parent.
    assert [link.context.span_id for link in receive.links] == [span_id(send)]
    assert parent_id(receive) == span_id(loop)


def test_without_an_sdk_a_context_that_is_current_is_passed_on() -> None:
    remote = trace.SpanContext(7, 9, is_remote=True, trace_flags=trace.TraceFlags(1))
    hooks = SendHooks("p", telemetry_hooks(SEND))
    with trace.use_span(trace.NonRecordingSpan(remote)):
        sent, _sendings = hooks.begin(Message("T", b"x"))
    assert sent.properties == {"traceparent": f"00-{7:032x}-{9:016x}-01"}
    plain, _sendings = hooks.begin(Message("T", b"x"))
    assert plain.properties == {}
