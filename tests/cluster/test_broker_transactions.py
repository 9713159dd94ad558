"""Transactions of a real broker, spoken to as official clients speak: prepared, ended, asked about."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ROCKETMQ, Command
from remoting.errors import InvokeTimeout
from remoting.message import MessageExt
from tests.cluster.broker_peer import ask, messages, pull_header, running
from tests.parts.transaction_parts import COMMIT, GROUP, ROLLBACK, UNKNOWN, ends, prepared

END = RequestCode.END_TRANSACTION


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def prepare(client: RemotingClient, broker: Broker, key: str, more: str = "", kind: int = 0) -> dict[str, str]:
    answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, prepared(key, more=more), key.encode(), kind)
    assert answer.code == ResponseCode.SUCCESS, answer
    return dict(answer.ext)


async def pulled(client: RemotingClient, broker: Broker, topic: str = "T") -> list[MessageExt]:
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(topic=topic))
    return messages(answer) if answer.code == ResponseCode.SUCCESS else []


async def bodies(client: RemotingClient, broker: Broker, topic: str = "T") -> list[bytes]:
    return [bytes(message.body) for message in await pulled(client, broker, topic)]


@pytest.mark.parametrize("kind", [0, ROCKETMQ])
async def test_a_half_is_hidden_until_its_commit(tmp_path: Path, client: RemotingClient, kind: int) -> None:
    async with running(tmp_path) as broker:
        one = await prepare(client, broker, "one", kind=kind)
        two = await prepare(client, broker, "two", kind=kind)
        assert (one["queueOffset"], one["queueId"], one["transactionId"]) == ("0", "0", "one")
        assert two["queueOffset"] == "1"
        assert await pulled(client, broker) == []
        assert (await ask(client, broker, END, ends(two, ROLLBACK), kind=kind)).code == ResponseCode.SUCCESS
        assert (await ask(client, broker, END, ends(one, COMMIT), kind=kind)).code == ResponseCode.SUCCESS
        [message] = await pulled(client, broker)
        assert message.body == b"one"
        assert message.sys_flag & 0xC == COMMIT
        assert message.prepared_transaction_offset == int(one["msgId"][16:], 16)
        assert message.properties["TRAN_MSG"] == "true"
        assert message.properties["__transactionId__"] == "one"
        assert "REAL_TOPIC" not in message.properties


async def test_an_end_that_comes_again_stores_nothing_again(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        one, two = await prepare(client, broker, "one"), await prepare(client, broker, "two")
        for _ in range(3):
            assert (await ask(client, broker, END, ends(one, COMMIT))).code == ResponseCode.SUCCESS
            assert (await ask(client, broker, END, ends(two, ROLLBACK))).code == ResponseCode.SUCCESS
        refused = await ask(client, broker, END, ends(two, COMMIT))
        assert (refused.code, "over" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    async with running(tmp_path) as broker:
        assert (await ask(client, broker, END, ends(one, COMMIT))).code == ResponseCode.SUCCESS
        assert (await ask(client, broker, END, ends(one, ROLLBACK))).code == ResponseCode.SYSTEM_ERROR
        assert (await ask(client, broker, END, ends(two, COMMIT))).code == ResponseCode.SYSTEM_ERROR
        assert await bodies(client, broker) == [b"one"]


async def test_an_end_by_somebody_else_or_of_nothing(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        one = await prepare(client, broker, "one")
        for header, words in (
            (ends(one, COMMIT, group="Other"), "The producer group wrong"),
            (ends({**one, "queueOffset": "5"}, COMMIT), "The transaction state table offset wrong"),
            (ends({**one, "msgId": one["msgId"][:16] + "00000000000000FF"}, COMMIT), "Find prepared transaction"),
            (ends({**one, "msgId": one["msgId"][:16] + "0FFFFFFFFFFFFFFF"}, COMMIT), "Find prepared transaction"),
        ):
            answer = await ask(client, broker, END, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert words in (answer.remark or "")
        # What decides nothing gets no answer.
        with pytest.raises(InvokeTimeout):
            await client.invoke(broker.address, Command.request(END, ends(one, UNKNOWN)), 0.3)
        assert await pulled(client, broker) == []


async def test_a_delay_begins_with_the_commit(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path, {"messageDelayLevel": "1s 2h"}) as broker:
        one = await prepare(client, broker, "one", "DELAY\x012\x02")
        assert (await ask(client, broker, END, ends(one, COMMIT))).code == ResponseCode.SUCCESS
        assert await pulled(client, broker) == []
        assert broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1


async def test_prepared_messages_are_refused_where_it_says_so(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path, {"rejectTransactionMessage": "true"}) as broker:
        answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, prepared("one"), b"x")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in (answer.remark or "")


async def test_a_broker_started_again_knows_what_is_undecided(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        one, two = await prepare(client, broker, "one"), await prepare(client, broker, "two")
        assert (await ask(client, broker, END, ends(one, ROLLBACK))).code == ResponseCode.SUCCESS
    async with running(tmp_path) as broker:
        assert (await ask(client, broker, END, ends(two, COMMIT))).code == ResponseCode.SUCCESS
        assert await bodies(client, broker) == [b"two"]
        assert GROUP
