"""Options of clients: what is no number, no time, no group is told where the client is made, by the option's name."""

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from client.admin.client import AdminClient
from client.consume.caller import CONCURRENCY_MAX
from client.consume.litepull import LitePullConsumer
from client.consume.poll_queue import FetchLimits
from client.consume.push import PushConsumer
from client.consume.push_queue import PullLimits
from client.consume.simple import SimpleConsumer
from client.errors import ArgumentRefused, ClientError, ConsumeError
from client.instance import ClientInstance
from client.message import ConsumeFrom, MessageModel
from client.produce.producer import Producer

NOBODY = "127.0.0.1:1"
NO_NUMBER: tuple[Any, ...] = ("1", None, b"", [], True, math.nan, 1.5)
NO_TIME: tuple[Any, ...] = ("1", None, b"", [], True, math.nan, -1, -math.inf, 10**400)
COUNTS = [
    (PushConsumer, "concurrency", 0),
    (PushConsumer, "concurrency", CONCURRENCY_MAX + 1),
    (PushConsumer, "batch", 0),
    (PushConsumer, "attempts_max", -2),
    (PushConsumer, "attempts_max", 2**31),
    (Producer, "retries", -1),
    (Producer, "default_topic_queues", 0),
    (Producer, "compress_over", -1),
    (Producer, "max_message_bytes", 0),
    (Producer, "in_flight_max", 0),
    (Producer, "in_flight_bytes_max", 0),
]
TIMES = [
    (PushConsumer, "consume_timeout"),
    (PushConsumer, "local_retry"),
    (PushConsumer, "grace"),
    (Producer, "send_timeout"),
]
LIMITS = [
    (kind, each.name) for kind, of in ((PullLimits, PullLimits()), (FetchLimits, FetchLimits())) for each in fields(of)
]


@pytest.mark.parametrize(("kind", "name", "out"), COUNTS)
def test_what_is_no_number_or_out_of_bounds_is_refused_by_name(kind: Callable[..., Any], name: str, out: int) -> None:
    for value in (*NO_NUMBER, out):
        with pytest.raises(ArgumentRefused, match=f"the {name} is .*: it takes a number from"):
            kind("g", NOBODY, **{name: value})


@pytest.mark.parametrize(("kind", "name"), TIMES)
def test_what_is_no_time_is_refused_by_name(kind: Callable[..., Any], name: str) -> None:
    for value in NO_TIME:
        with pytest.raises(ArgumentRefused, match=f"the {name} is .*: it takes a number of seconds"):
            kind("g", NOBODY, **{name: value})
    kind("g", NOBODY, **{name: 0})
    kind("g", NOBODY, **{name: math.inf})


@pytest.mark.parametrize("value", NO_TIME, ids=lambda value: repr(value)[:10])
def test_an_administrators_timeout_is_a_time(value: Any) -> None:
    with pytest.raises(ArgumentRefused, match="the timeout is"):
        AdminClient(NOBODY, timeout=value)


@pytest.mark.parametrize("name", ["in_flight_max", "in_flight_bytes_max"])
def test_an_instances_bounds_are_numbers(name: str) -> None:
    make: Callable[..., Any] = ClientInstance
    for value in (*NO_NUMBER, 0):
        with pytest.raises(ArgumentRefused, match=f"the {name} is"):
            make(NOBODY, **{name: value})


@pytest.mark.parametrize(("kind", "name"), LIMITS)
def test_limits_are_numbers_or_none_where_none_means_no_bound(kind: Callable[..., Any], name: str) -> None:
    for value in (*NO_NUMBER, 0):
        if value is None and getattr(kind(), name) is None:
            continue
        with pytest.raises(ArgumentRefused, match=f"the {name} is"):
            kind(**{name: value})
    assert getattr(kind(**{name: 1}), name) == 1


@pytest.mark.parametrize(("kind", "limits"), [(PushConsumer, FetchLimits()), (LitePullConsumer, PullLimits())])
def test_limits_of_another_kind_are_refused(kind: Callable[..., Any], limits: Any) -> None:
    for value in (limits, 0, "32"):
        with pytest.raises(ConsumeError, match=r"the limits are .*: it takes (Pull|Fetch)Limits"):
            kind("g", NOBODY, limits=value)
    kind("g", NOBODY, limits=None)


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])
def test_where_a_consumer_begins_and_whom_it_shares_with_are_named(kind: Callable[..., Any], tmp_path: Path) -> None:
    for value in ("CONSUME_FROM_LAST_OFFSET", 3, None):
        with pytest.raises(ConsumeError, match="it takes a ConsumeFrom"):
            kind("g", NOBODY, from_where=value)
    for value in ("BROADCASTING", 3, None):
        with pytest.raises(ConsumeError, match="it takes a MessageModel"):
            kind("g", NOBODY, model=value)
    for value in (*NO_NUMBER, -1):
        if value is not None:
            with pytest.raises(ArgumentRefused, match="the timestamp_ms is"):
                kind("g", NOBODY, from_where=ConsumeFrom.TIMESTAMP, timestamp_ms=value)
    kind("g", NOBODY, model=MessageModel.BROADCASTING, offset_dir=str(tmp_path))


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer, SimpleConsumer, Producer])
@pytest.mark.parametrize("group", [3, None, b"g", [], "", " ", "a b"])
def test_a_group_is_a_name(kind: Callable[..., Any], group: Any) -> None:
    with pytest.raises(ClientError, match="group"):
        kind(group, NOBODY)


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer, SimpleConsumer])
def test_what_is_subscribed_to_are_names(kind: Callable[..., Any]) -> None:
    consumer = kind("g", NOBODY)
    wrong: tuple[Any, ...]
    for wrong in ((3,), (None,), (b"T",), ([],), ("T", 3), ("T", b"A")):
        with pytest.raises(ConsumeError, match="they take a str each"):
            consumer.subscribe(*wrong)


def test_a_callback_can_be_called() -> None:
    on_message: Callable[..., Any] = PushConsumer("g", NOBODY).on_message
    for wrong in (None, 3, "print"):
        with pytest.raises(ConsumeError, match="it takes a function of a list of messages"):
            on_message(wrong)


def test_a_codec_is_one() -> None:
    make: Callable[..., Any] = Producer
    with pytest.raises(ArgumentRefused, match="it takes a Codec"):
        make("g", NOBODY, codec="zlib")
