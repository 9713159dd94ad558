"""Idempotent sends at one broker in this process: by raw frames, over restarts, with and without the mark."""

import asyncio
import http.client
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from chaos.host.processes import free_ports
from remoting.client import RemotingClient
from remoting.codes import MessageSysFlag, RequestCode, ResponseCode
from remoting.command import ROCKETMQ, Command
from remoting.headers.registry import EndTransactionRequestHeader, GetMaxOffsetRequestHeader
from remoting.topics import TRANS_HALF_TOPIC
from runtime.config import ConfigError
from tests.cluster.broker_peer import ask, messages, pull_header, running
from tests.parts.idempotent_sends import Told, batch_once, once, sent, told


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def stored(client: RemotingClient, broker: Broker, topic: str = "T") -> list[str]:
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(topic=topic))
    return [message.properties["UNIQ_KEY"] for message in messages(answer)] if answer.code == 0 else []


async def test_a_repeated_send_has_the_first_ones_answer_and_one_record(tmp_path: Path, client: RemotingClient) -> None:
    # The same port, for the address is part of an id; not one of those that the system gives away.
    port = str(free_ports(1)[0])
    answers: list[list[Told]] = []
    for _ in range(3):
        async with running(tmp_path, {"listenPort": port, "vipPortEnable": "false", "httpEnable": "false"}) as broker:
            at = broker.address
            for queue_id in (0, 3):
                one = await sent(client, at, once("K1", queue_id=queue_id))
                two = await sent(client, at, once("K2", queue_id=queue_id))
                answers.append([one, two, await sent(client, at, batch_once(["B1", "B2"], queue_id=queue_id))])
            binary = once("K1", queue_id=1)
            binary.serialize_type = ROCKETMQ
            assert await sent(client, broker.address, binary) == answers[0][0]
            assert await stored(client, broker) == ["K1", "K2", "B1", "B2"]
    assert all(each == answers[0] for each in answers)
    assert [answer.code for answer in answers[0]] == [0, 0, 0]
    assert [answer.queue_offset for answer in answers[0]] == [0, 1, 2]
    assert [answer.transaction_id for answer in answers[0][:2]] == ["K1", "K2"]


async def test_sends_of_one_moment_become_one_record(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as broker:
        await sent(client, broker.address, once("first"))
        answers = await asyncio.gather(*[
            sent(client, broker.address, once("K", queue_id=number % 4)) for number in range(20)
        ])  # fmt: skip
        assert len(set(answers)) == 1
        assert sum([await _max_offset(client, broker, queue_id) for queue_id in range(4)]) == 2


async def test_a_repeated_half_message_is_one_transaction(tmp_path: Path, client: RemotingClient) -> None:
    """Nobody would end the second one: its producer would be asked, and commit what it committed already."""

    def half() -> Command:
        return once("H", queue_id=2, properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02")

    async with running(tmp_path, {"listenPort": "0"}) as broker:
        at = broker.address
        answers = await asyncio.gather(*[sent(client, at, half()) for _ in range(5)])
        answers.append(await sent(client, at, half()))
        assert set(answers) == {answers[0]}
        assert (answers[0].code, answers[0].queue_id, answers[0].transaction_id) == (0, 2, "H")
        header = EndTransactionRequestHeader(
            topic="T",
            producerGroup="P",
            tranStateTableOffset=answers[0].queue_offset,
            commitLogOffset=int(answers[0].msg_id[-16:], 16),
            commitOrRollback=int(MessageSysFlag.TRANSACTION_COMMIT),
            msgId="H",
            transactionId="H",
        )
        assert (await ask(client, broker, RequestCode.END_TRANSACTION, header)).code == 0
        assert await sent(client, at, half()) == answers[0]
        assert await stored(client, broker, TRANS_HALF_TOPIC) == ["H"]
        assert await _max_offset(client, broker, 2) == 1


async def _max_offset(client: RemotingClient, broker: Broker, queue_id: int) -> int:
    header = GetMaxOffsetRequestHeader(topic="T", queueId=queue_id)
    return int((await ask(client, broker, RequestCode.GET_MAX_OFFSET, header)).ext["offset"])


@pytest.mark.parametrize(
    ("settings", "asks", "records"),
    [
        ({}, True, 1),
        ({}, False, 2),
        ({"idempotentForAllProducers": "true"}, False, 1),
        ({"enableIdempotentProducer": "false"}, True, 2),
    ],
)
async def test_who_is_recognized_is_a_matter_of_mark_and_settings(
    tmp_path: Path, client: RemotingClient, settings: dict[str, str], asks: bool, records: int
) -> None:
    for start in range(2):
        async with running(tmp_path, settings) as broker:
            for _ in range(2 - start):
                await sent(client, broker.address, once("K", asks=asks))
            assert await stored(client, broker) == ["K"] * (records + (start and records > 1))


async def test_it_is_switched_while_the_broker_runs(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        first = await sent(client, broker.address, once("K"))
        broker.live.update({"enableIdempotentProducer": "false"})
        assert (await sent(client, broker.address, once("K"))).queue_offset == 1
        broker.live.update({"enableIdempotentProducer": "true"})
        assert await sent(client, broker.address, once("K")) == first


async def test_another_topic_has_keys_of_its_own(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        one = await sent(client, broker.address, once("K"))
        other = await sent(client, broker.address, once("K", topic="U"))
        assert one.msg_id != other.msg_id
        assert await sent(client, broker.address, once("K", topic="U")) == other
        assert await sent(client, broker.address, once("K")) == one


async def test_a_delayed_message_waits_once_and_comes_once(tmp_path: Path, client: RemotingClient) -> None:
    def delayed() -> Command:
        return once("K", properties="DELAY\x011\x02", queue_id=2)

    async with running(tmp_path, {"messageDelayLevel": "1s"}) as broker:
        first = await sent(client, broker.address, delayed())
        assert first.queue_id == 2
        assert await sent(client, broker.address, once("K", properties="DELAY\x011\x02")) == first
        async with asyncio.timeout(60):
            while not await _max_offset(client, broker, 2):
                await asyncio.sleep(0.02)
        # It is delivered, with the same key, and it is still the first one that is told.
        assert await sent(client, broker.address, delayed()) == first
        assert [await _max_offset(client, broker, queue_id) for queue_id in range(4)] == [0, 0, 1, 0]


async def test_a_batch_that_is_partly_stored_is_refused(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        first = await sent(client, broker.address, batch_once(["A", "B"]))
        assert first.msg_id.count(",") == 1
        for keys in (["A", "C"], ["C", "B"]):
            answer = await client.invoke(broker.address, batch_once(keys), 5.0)
            assert (answer.code, "was" in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, False)
            assert "some messages of this batch were stored before" in (answer.remark or "")
        assert await stored(client, broker) == ["A", "B"]


async def test_a_batch_that_was_torn_is_completed_by_its_repetition(tmp_path: Path, client: RemotingClient) -> None:
    keys = ["B1", "B2", "B3", "B4"]
    # Nothing is synced, as far as the checkpoint knows; the same port, for the address is part of an id.
    settings = {"flushIntervalCommitLog": "600000", "vipPortEnable": "false", "httpEnable": "false"}
    settings["listenPort"] = str(free_ports(1)[0])
    async with running(tmp_path / "one", settings) as broker:
        first = await sent(client, broker.address, batch_once(keys))
        shutil.copytree(tmp_path / "one", tmp_path / "killed", ignore=shutil.ignore_patterns("*.tmp"))
    log = next((tmp_path / "killed").rglob("commitlog/*"))
    third = int(first.msg_id.split(",")[2][-16:], 16)
    with log.open("r+b") as file:
        file.seek(third + 40)
        file.write(bytes(4096))
    async with running(tmp_path / "killed", settings) as broker:
        refused = await client.invoke(broker.address, batch_once(["other", *keys[1:]]))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert await sent(client, broker.address, batch_once(keys)) == first
        assert await stored(client, broker) == keys


async def test_what_is_refused_is_not_remembered(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        long = await client.invoke(broker.address, once("K", body=b"b" * (5 << 20)), 5.0)
        assert long.code == ResponseCode.MESSAGE_ILLEGAL
        wrong = once("K", queue_id=99)
        assert (await client.invoke(broker.address, wrong, 5.0)).code == ResponseCode.INVALID_PARAMETER
        assert (await sent(client, broker.address, once("K"))).queue_offset == 0


async def test_strange_keys_harm_nobody(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        for key in ("", " ", "ü" * 40, "k" * 5000, '"', "a\x01b"):
            first = told(await client.invoke(broker.address, once(key), 5.0))
            again = told(await client.invoke(broker.address, once(key), 5.0))
            assert first.code == again.code == 0
            # Nothing is no key, and what holds a separator is not read back as it came.
            assert (first == again) == (key not in {"", "a\x01b"})


async def test_a_one_way_send_is_stored_once_and_never_answered(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        first = await sent(client, broker.address, once("K"))
        for _ in range(3):
            request: Command = once("K")
            request.flag |= 2
            await client.oneway(broker.address, request)
        assert await sent(client, broker.address, once("K")) == first
        assert await stored(client, broker) == ["K"]


async def test_metrics_and_figures_tell_of_it(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path, {"idempotentKeysMax": "8"}) as broker:
        for key in ("A", "B", "A", "A"):
            await sent(client, broker.address, once(key))
        text = await asyncio.to_thread(_scrape, broker.http_port)
        found = Counter(
            {name: float(value) for name, value in re.findall(r"^(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE)}
        )
        assert found["raftmq_sends_repeated_total"] == 2
        assert found["raftmq_idempotent_keys"] == 2
        assert found["raftmq_idempotent_keys_limit"] == 8
        figures = (await ask(client, broker, RequestCode.GET_BROKER_RUNTIME_INFO)).body
        for words in (b'"idempotentKeys":"2"', b'"idempotentKeysMax":"8"', b'"idempotentSendsRepeated":"2"'):
            assert words in bytes(figures)
        # At the bound the oldest are forgotten, and stored again.
        for number in range(12):
            await sent(client, broker.address, once(f"N{number}"))
        assert (await sent(client, broker.address, once("A"))).queue_offset == 14
        assert (await sent(client, broker.address, once("N11"))).queue_offset == 13


def _scrape(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"idempotentWindowSeconds": "0"}, "idempotentWindowSeconds=0: it takes seconds, 1 to 604800"),
        ({"idempotentWindowSeconds": "999999999"}, "it takes seconds"),
        ({"idempotentKeysMax": "-1"}, "idempotentKeysMax=-1: it takes a number, 1 to 100000000"),
        ({"idempotentKeysMax": "many"}, "idempotentKeysMax"),
        ({"enableIdempotentProducer": "maybe"}, "enableIdempotentProducer"),
        (
            {"idempotentForAllProducers": "true", "enableIdempotentProducer": "false"},
            "idempotentForAllProducers=true needs enableIdempotentProducer=true",
        ),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_broker_config(values)
