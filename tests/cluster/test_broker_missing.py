"""A client that asks a running broker for what it does not have: the log and the metrics say so."""

import logging
from pathlib import Path

import aiohttp
import pytest

from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.broker_peer import ask, running

STATIC_TOPICS = 513


async def test_what_the_broker_does_not_have_is_named_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = RemotingClient()
    async with running(tmp_path, {"httpEnable": "true"}) as broker:
        beat = HeartbeatData(clientID="replier@1", producerDataSet=[ProducerData(groupName="P")])
        answer = await ask(client, broker, RequestCode.HEART_BEAT, body=beat.encode())
        assert answer.code == ResponseCode.SUCCESS
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                answer = await ask(client, broker, STATIC_TOPICS)
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        said = [record.getMessage() for record in caplog.records if record.name == "broker.admin.missing"]
        assert len(said) == 1
        assert said[0].startswith("client replier@1 at 127.0.0.1:")
        assert "asks for static topics (code 513)" in said[0]
        url = f"http://127.0.0.1:{broker.http_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            text = await response.text()
        (line,) = [line for line in text.splitlines() if line.startswith("rocketmq_unsupported_requests_total{")]
        assert 'feature="static topics"' in line
        assert line.endswith(" 3.0")
    await client.close()
