"""Idempotent sends at one broker in this process: by raw frames, over restarts, with and without the mark."""

from pathlib import Path

from broker.server import Broker
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from tests.cluster.broker_peer import ask, messages, pull_header, running
from tests.parts.idempotent_sends import once, sent


async def stored(client: RemotingClient, broker: Broker, topic: str = "T") -> list[str]:
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(topic=topic))
    return [message.properties["UNIQ_KEY"] for message in messages(answer)] if answer.code == 0 else []


async def test_a_repeated_send_has_the_first_ones_answer_and_one_record(tmp_path: Path) -> None:
    client = RemotingClient()
    async with running(tmp_path) as broker:
        first = await sent(client, broker.address, once("K1"))
        other = await sent(client, broker.address, once("K2"))
        assert first.code == other.code == 0
        assert first != other
        assert await sent(client, broker.address, once("K1", queue_id=3)) == first
        assert await sent(client, broker.address, once("K2", queue_id=2)) == other
        assert await stored(client, broker) == ["K1", "K2"]
    async with running(tmp_path) as broker:
        assert (await sent(client, broker.address, once("K1")))[2:] == first[2:]
        assert await stored(client, broker) == ["K1", "K2"]
    await client.close()
