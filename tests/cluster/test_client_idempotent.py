"""Our producer and a frozen broker that finds several attempts of one send in its socket."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from client.errors import SendFailed
from client.message import Message, SendStatus
from client.produce.producer import Producer
from tests.cluster.modes import SMALL
from tests.cluster.test_client_producer import everything

# Its last part is all that a broker has to answer in that was frozen for the rest.
SEND_TIMEOUT_S = 16.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path, broker_settings=SMALL)
    await asyncio.to_thread(made.start)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.kill)


@pytest.mark.parametrize(("idempotent", "records"), [(True, 1), (False, 2)])
async def test_of_several_attempts_in_the_socket_of_a_frozen_broker_one_is_stored(
    cluster: LocalCluster, idempotent: bool, records: int
) -> None:
    broker = cluster.broker
    async with Producer("p", cluster.address, send_timeout=SEND_TIMEOUT_S, idempotent=idempotent) as producer:
        before = await producer.send(Message("T", b"before"))
        broker.signal(signal.SIGSTOP)
        try:
            sends = [producer.send_async(Message("T", b"frozen")), producer.send_async([Message("T", b"batch")] * 3)]
            # Half of the time, for the first attempts; the second ones are in the socket, too, then.
            await asyncio.sleep(SEND_TIMEOUT_S / 2 + 1.0)
        finally:
            broker.signal(signal.SIGCONT)
        one, batch = await asyncio.gather(*sends)
        assert one.status is batch.status is before.status is SendStatus.SEND_OK
        after = await producer.send(Message("T", b"after"))
    found = await everything(cluster.address, "T", 2 + 4 * records)
    bodies = Counter(message.body for message in found)
    assert bodies == {b"before": 1, b"frozen": records, b"batch": 3 * records, b"after": 1}
    if idempotent:
        stands = {message.offset_msg_id: message for message in found}
        assert one.offset_msg_id is not None
        place = stands[one.offset_msg_id]
        assert (place.queue_id, place.queue_offset, place.msg_id) == (one.queue.queueId, one.queue_offset, one.msg_id)
        assert [stands[text].body for text in batch.offset_msg_id.split(",")] == [b"batch"] * 3
        assert after.offset_msg_id in stands


async def test_a_send_that_nobody_answers_ends_by_its_deadline(cluster: LocalCluster) -> None:
    async with Producer("p", cluster.address, send_timeout=1.5) as producer:
        await producer.send(Message("T", b"before"), timeout=30)
        cluster.broker.signal(signal.SIGSTOP)
        try:
            # The broker answers to nobody: without a deadline there is no end.
            async with asyncio.timeout(60):
                with pytest.raises(SendFailed, match="may have been stored") as failed:
                    await producer.send(Message("T", b"frozen"))
        finally:
            cluster.broker.signal(signal.SIGCONT)
        assert failed.value.sent
