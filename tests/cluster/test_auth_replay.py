"""A recorded send that somebody sends again, in a group that knows users: answered as the first one was, or refused."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoting.client import RemotingClient
from remoting.codec import encode
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.framing import FrameReader
from remoting.headers.registry import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, SendMessageRequestHeaderV2
from remoting.signing import sign
from tests.cluster.test_auth import ALICE, Guarded, guarded, with_alice
from tests.parts.idempotent_sends import Told, once, told

# Longer than a failover takes on a busy machine: what is played again must not be too old by then.
LIFETIME_SECONDS = 30


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Guarded]:
    keys = {"idempotentForAllProducers": "true", "authenticationSendLifetimeSeconds": str(LIFETIME_SECONDS)}
    async for made in guarded(tmp_path, 3, keys):
        yield made


def recorded(key: str, born: float) -> bytes:
    """The frame of a send by alice, as any client makes it: it asks for nothing."""
    request = once(key, topic="orders", asks=False)
    header = request.header(SendMessageRequestHeaderV2)
    header.bornTimestamp = round(born * 1000)
    sign(request, ALICE)
    return encode(request)


async def played(address: str, frame: bytes) -> Command:
    """Send a frame as it is over a connection of its own; return the answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frames = FrameReader()
    try:
        writer.write(frame)
        async with asyncio.timeout(10):
            while not (answers := frames.feed(await reader.read(65_536))):
                pass
    finally:
        writer.close()
    return answers[0]


async def end_of_queue(address: str) -> int:
    client = RemotingClient(credentials=ALICE)
    try:
        header = GetMaxOffsetRequestHeader(topic="orders", queueId=0)
        answer = await client.call(address, RequestCode.GET_MAX_OFFSET, header)
        return answer.header(GetMaxOffsetResponseHeader).offset
    finally:
        await client.close()


async def test_a_replayed_send_is_stored_once_at_every_member_and_over_a_failover(group: Guarded) -> None:
    await with_alice(group)
    leader = await group.leader()
    frame = recorded("K1", time.time())
    first = told(await played(group.brokers[leader].address, frame))
    assert (first.code, first.queue_offset) == (0, 0)
    for broker in group.brokers.values():
        assert told(await played(broker.address, frame)) == first
    await group.stop_broker(leader)
    leader = await group.leader()
    again: list[Told] = [told(await played(broker.address, frame)) for broker in group.brokers.values()]
    assert again == [first, first]
    assert await end_of_queue(group.brokers[leader].address) == 1


async def test_a_send_that_is_older_than_what_is_remembered_is_refused_in_words(group: Guarded) -> None:
    await with_alice(group)
    await group.leader()
    for born in (-LIFETIME_SECONDS - 1, LIFETIME_SECONDS + 50):
        for broker in group.brokers.values():
            answer = await played(broker.address, recorded("K2", time.time() + born))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark is not None
            assert re.fullmatch(
                r"the send was made ([3-9][0-9] s ago|[78][0-9] s from now) by this broker's clock, "
                rf"authenticationSendLifetimeSeconds={LIFETIME_SECONDS}: it may be a replay",
                answer.remark,
            )
    assert await end_of_queue(group.any().address) == 0
