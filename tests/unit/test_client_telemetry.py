"""Spans and trace contexts, against an OpenTelemetry API that writes down what is asked of it."""

import contextvars
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from client.consume.caller import CallbackCaller
from client.hooks import ConsumeHooks, ConsumeOutcome
from client.message import ConsumeResult, Message
from client.produce.hooked import SendHooks
from client.telemetry import PROCESS, RECEIVE, SEND, telemetry_hooks
from remoting.message import MessageExt
from tests.unit.test_client_listeners import message, options

CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("CURRENT", default=None)


class Span:
    def __init__(self, name: str, parent: Any) -> None:
        self.name, self.parent, self.ended, self.status = name, parent, False, None
        self.links: list[str] = []

    def set_attribute(self, name: str, value: Any) -> None:
        setattr(self, name.replace(".", "_"), value)

    def record_exception(self, error: BaseException) -> None:
        self.error = error

    def set_status(self, status: Any, _text: str) -> None:
        self.status = status

    def get_span_context(self) -> Any:
        return SimpleNamespace(is_valid=self.name is not None, name=self.name)

    def end(self) -> None:
        self.ended = True


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)

    def start_span(name: str, context: Any = None, links: Any = (), **_more: Any) -> Span:
        span = Span(name, context if context is not None else CURRENT.get())
        span.links = [link.name for link in links]
        made.append(span)
        return span

    def attach(context: Any) -> Any:
        return CURRENT.set(context)

    modules: dict[str, dict[str, Any]] = {
        "opentelemetry": {},
        "opentelemetry.trace": {
            "get_tracer": lambda _scope: SimpleNamespace(start_span=start_span),
            "SpanKind": SimpleNamespace(PRODUCER=1, CONSUMER=2),
            "StatusCode": SimpleNamespace(ERROR="error"),
            "Link": lambda context: context,
            "set_span_in_context": lambda span, _context=None: span,
            "get_current_span": lambda context: Span(context, None),
        },
        "opentelemetry.propagate": {
            "inject": lambda carrier, context: carrier.__setitem__("traceparent", context.name),
            "extract": lambda carrier, context=None: carrier.get("traceparent", context),
        },
        "opentelemetry.context": {"attach": attach, "detach": CURRENT.reset, "Context": lambda: None},
    }
    for name, names in modules.items():
        module = ModuleType(name)
        module.__dict__.update(names)
        module.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment] # find_spec looks at it only
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_without_the_api_or_where_it_is_disabled_nothing_happens(
    spans: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert telemetry_hooks(SEND)
    with monkeypatch.context() as disabled:
        disabled.setenv("OTEL_SDK_DISABLED", "True")
        assert telemetry_hooks(SEND) == []
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert telemetry_hooks(SEND) == telemetry_hooks(PROCESS) == telemetry_hooks(RECEIVE) == []
    assert spans == []


def test_a_send_carries_its_spans_context(spans: list[Any]) -> None:
    hooks = SendHooks("g", telemetry_hooks(SEND))
    sent, sendings = hooks.begin(Message("T", b"x", properties={"a": "b"}))
    assert sent.properties == {"a": "b", "traceparent": "send T"}
    hooks.end(sendings)
    assert spans[0].ended
    _sent, sendings = hooks.begin([Message("T", b"x"), Message("T", b"y")])
    hooks.end(sendings, error=ValueError("x"))
    assert (spans[1].ended, spans[1].status, len(spans)) == (True, "error", 2)


@pytest.mark.parametrize("plain", [True, False])
async def test_the_callback_runs_within_a_span_below_that_of_the_send(spans: list[Any], plain: bool) -> None:
    seen: list[Any] = []

    def in_thread(_messages: list[MessageExt]) -> ConsumeResult:
        seen.append(CURRENT.get())
        return ConsumeResult.RECONSUME_LATER

    async def in_loop(_messages: list[MessageExt]) -> None:
        seen.append(CURRENT.get())

    hooks = ConsumeHooks("g", telemetry_hooks(PROCESS))
    caller = CallbackCaller(in_thread if plain else in_loop, options(), None, hooks)
    first, second = message(1), message(2)
    first.properties["traceparent"] = "send T"
    assert await caller.call([first, second]) is not plain
    caller.close()
    (span,) = spans
    assert seen == [span]
    assert (span.parent, span.ended, span.status) == ("send T", True, "error" if plain else None)
    assert CURRENT.get() is None


def test_what_is_polled_is_a_span_of_whoever_polls_linked_with_the_sends(spans: list[Any]) -> None:
    hooks = ConsumeHooks("g", telemetry_hooks(RECEIVE))
    first, second = message(1), message(2)
    second.properties["traceparent"] = "send T"
    hooks.end(hooks.begin([first, second]), ConsumeOutcome.SUCCESS)
    (span,) = spans
    assert (span.name, span.parent, span.links, span.ended) == (f"receive {first.topic}", None, ["send T"], True)
    assert CURRENT.get() is None
