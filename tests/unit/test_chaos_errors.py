"""Which errors prove that nothing happened."""

import asyncio

import pytest

from chaos.load.errors import REFUSALS, outcome, words
from pipeline.history.rows import Kind
from remoting.codes import ResponseCode
from remoting.errors import (
    BacklogFull,
    ConnectError,
    ConnectionLost,
    FrameError,
    HeaderError,
    InvokeTimeout,
    ResponseError,
)


@pytest.mark.parametrize("error", [ConnectError("refused"), BacklogFull("full"), FrameError("too long")])
def test_what_was_not_sent_did_not_happen(error: Exception) -> None:
    assert outcome(error) is Kind.FAIL


@pytest.mark.parametrize(
    "error",
    [ConnectionLost("reset"), InvokeTimeout("late"), HeaderError("?"), asyncio.CancelledError(), TimeoutError()],
)
def test_what_was_sent_and_not_answered_may_have_happened(error: BaseException) -> None:
    assert outcome(error) is Kind.INFO


@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_refusals_are_definite(code: int) -> None:
    assert outcome(ResponseError(code, "no")) is Kind.FAIL


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        4711,
    ],
)
def test_what_may_stand_in_a_log_is_not(code: int) -> None:
    assert outcome(ResponseError(code, "somewhere")) is Kind.INFO


def test_words_are_the_same_for_all_errors_of_a_kind() -> None:
    assert words(ResponseError(14, "n0 at 10:01")) == words(ResponseError(14, "n1")) == "14 SERVICE_NOT_AVAILABLE"
    assert words(ResponseError(4711, "x")) == "code 4711"
    assert words(ConnectError("127.0.0.1:1")) == "ConnectError"
