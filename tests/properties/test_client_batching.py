"""Automatic batching: whatever is taken to wait for others, may travel with them; one message never costs another."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from client.compression import Codec
from client.errors import ClientError, MessageRefused
from client.flight import Flight
from client.hooks import SendCall
from client.message import Message, SendResult, SendStatus
from client.produce.batching import Batcher, Batching
from client.produce.hooked import Gathered, SendHooks
from client.produce.outgoing import Packer
from remoting.bodies.registry import MessageQueue
from remoting.msgid import UniqKeys
from runtime.tasks import Tasks

BODY_BYTES_MAX = 4000
REPLY = "reply"

texts = st.text(max_size=6)
odd: st.SearchStrategy[Any] = st.sampled_from([None, 7, b"x", [], [[]], {}, "text", True, -1, 2**40])
NAMES = ["MSG_TYPE", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEMO", "KEYS", "colour", "DELAY"]
properties = st.dictionaries(st.sampled_from(NAMES) | texts, st.sampled_from([REPLY, "1", ""]) | texts, max_size=3)
fields: dict[str, st.SearchStrategy[Any]] = {
    "tags": texts | odd,
    "keys": texts | st.lists(texts, max_size=3) | odd,
    "flag": st.integers(-(2**31), 2**31) | odd,
    "delay_level": st.integers(0, 18) | odd,
    "wait": st.booleans() | odd,
    "deliver_at": st.integers(0, 2**62) | odd,
    "delay": st.floats(0, 10) | odd,
    "priority": st.integers(0, 9) | odd,
    "properties": properties | odd,
}
bodies = st.binary(max_size=20) | st.integers(0, BODY_BYTES_MAX + 10).map(bytes) | odd
topics = st.sampled_from(["A", "A", "A", "B", "%RETRY%g", "no blanks"]) | odd
untyped: Callable[..., Message] = Message
# Most fields of most messages are left as they are, so that many can wait for each other.
messages: st.SearchStrategy[Message] = st.fixed_dictionaries({"topic": topics, "body": bodies}, optional=fields).map(
    lambda given: untyped(**given)
)
plain = st.builds(Message, st.just("A"), st.binary(min_size=1, max_size=20))


class Adds:
    """A hook that adds properties of its own."""

    def __init__(self, add: dict[str, str]) -> None:
        self._add = add

    def before_send(self, sending: SendCall) -> None:
        """Add them."""
        sending.properties.update(self._add)

    def after_send(self, sending: SendCall) -> None:
        """Do nothing."""


async def carried(some: list[Message], hooks: SendHooks) -> list[Gathered]:
    """Let a batcher have the messages; returns what it has sent, each packed as a producer packs it."""
    packer = Packer(UniqKeys(), compress_over=1000, body_bytes_max=BODY_BYTES_MAX, codec=Codec.ZLIB)
    gathered: list[Gathered] = []

    async def send(batch: Gathered, *, queue: MessageQueue | None, timeout: float) -> SendResult:
        out = packer.pack(batch, hooks)
        gathered.append(batch)
        return SendResult(SendStatus.SEND_OK, out.msg_id, "", queue or MessageQueue("A", "b", 0), 0)

    tasks, flight = Tasks("test"), Flight(1000, 1 << 20)
    batcher = Batcher(Batching(linger_ms=30_000, batch_bytes=2000), hooks, flight, send, BODY_BYTES_MAX, tasks)
    waiting: list[asyncio.Future[SendResult]] = []
    for message in some:
        if batcher.takes(message, None):
            try:
                waiting.append(batcher.add(message, None, 30.0))
            except MessageRefused:
                continue
    await batcher.close()
    assert all(future.done() for future in waiting)
    # What was let wait was sent, and nobody's message was refused for another's.
    assert [error for future in waiting if (error := future.exception()) is not None] == []
    assert sum(len(batch) for batch in gathered) == len(waiting)
    assert (flight.count, flight.bytes) == (0, 0)
    await tasks.close()
    return gathered


@settings(deadline=None)
@given(st.lists(messages | plain, max_size=12), properties)
def test_whatever_is_taken_may_travel_together(some: list[Message], added: dict[str, str]) -> None:
    for hooks in (SendHooks("p"), SendHooks("p", [Adds(added)])):
        for batch in asyncio.run(carried(some, hooks)):
            assert len({message.topic for message in batch}) == 1


@given(messages)
def test_what_does_not_wait_is_told_apart_without_an_error(message: Message) -> None:
    send: Callable[..., Any] = carried
    batcher = Batcher(Batching(), SendHooks("p"), Flight(1, 1), send, BODY_BYTES_MAX, Tasks("test"))
    packer = Packer(UniqKeys(), compress_over=1000, body_bytes_max=BODY_BYTES_MAX, codec=Codec.ZLIB)
    if batcher.takes(message, None):
        return
    # It goes alone, and is sent or refused in words.
    with contextlib.suppress(ClientError):
        packer.pack(message)
