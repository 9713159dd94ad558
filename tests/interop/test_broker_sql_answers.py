"""What a broker answers about SQL92 filters, right and wrong ones: the real RocketMQ and ours, asked the same."""

import asyncio
import time
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from chaos.host.processes import HOST, free_ports
from remoting.bodies.registry import CheckClientConfigBody, ConsumerData, HeartbeatData, SubscriptionData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import PullMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.properties import encode_properties
from remoting.record import decode_records
from tests.interop.java_broker import JavaBroker

SQL = "SQL92"
SETTINGS = {
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
}
# Pulls that bring what cannot be read: RocketMQ delivers everything, we refuse.
DIFFERENT = {"brought bad": (0, 23), "brought of no type": (0, 23)}
Answer = tuple[int, str | None, int]


class Asking:
    """One broker, asked by hand; `answers` by what was asked: code, nextBeginOffset, how many messages."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = RemotingClient()
        self.answers: dict[str, Answer] = {}

    async def _ask(self, command: Command) -> Command:
        return await self._client.invoke(self._address, command, 20.0)

    async def send(self, number: int) -> None:
        header = SendMessageRequestHeaderV2(
            producerGroup="g", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=0,
            bornTimestamp=int(time.time() * 1000), flag=0, properties=encode_properties({"n": str(number)}).decode(),
        )  # fmt: skip
        answer = await self._ask(Command.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def pull(
        self, name: str, brings: str | None = None, *, offset: int = 0, kind: str = SQL, at: int = 0
    ) -> None:
        header = PullMessageRequestHeader(
            consumerGroup="G", topic="T", queueId=0, queueOffset=offset, maxMsgNums=32,
            sysFlag=4 if brings is not None else 0, commitOffset=0, suspendTimeoutMillis=0, subVersion=at,
            subscription=brings, expressionType=kind,
        )  # fmt: skip
        answer = await self._ask(Command.request(RequestCode.PULL_MESSAGE, header))
        found = decode_records(memoryview(bytes(answer.body))) if not answer.code else []
        self.answers[name] = answer.code, answer.ext.get("nextBeginOffset"), len(found)

    async def beat(self, expression: str, version: int, kind: str = SQL) -> None:
        wanted = SubscriptionData(topic="T", subString=expression, subVersion=version, expressionType=kind)
        data = HeartbeatData("c", [ConsumerData(groupName="G", subscriptionDataSet=[wanted])])
        answer = await self._ask(Command.request(RequestCode.HEART_BEAT, body=data.encode()))
        self.answers[f"beat {version}"] = answer.code, None, 0

    async def check(self, expression: str, kind: str = SQL) -> None:
        wanted = SubscriptionData(topic="T", subString=expression, expressionType=kind)
        body = CheckClientConfigBody(clientId="c", group="G", subscriptionData=wanted).encode()
        answer = await self._ask(Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
        self.answers[f"check {kind} {expression}"] = answer.code, None, 0

    async def all(self) -> dict[str, Answer]:
        try:
            for number in range(6):
                await self.send(number)
            # RocketMQ brings them into their queue a little later.
            async with asyncio.timeout(20):
                while self.answers.get("all there", (0, None, 0))[2] < 6:
                    await self.pull("all there", "*", kind="TAG")
            await self.pull("brought", "n > 2")
            await self.pull("brought bad", "n > > 2")
            await self.pull("brought empty", "")
            await self.pull("brought of no type", "n > 2", kind="FOO")
            await self.beat("n > > 2", 5)
            await self.pull("bad", at=5)
            await self.beat("n > 2", 6)
            await self.pull("good", at=6)
            await self.pull("at the end", offset=6, at=6)
            await self.pull("stale", at=9)
            await self.beat("n > 100", 7)
            await self.pull("nothing", at=7)
            await self.beat("n > > 1", 8)
            await self.pull("bad after good", at=8)
            await self.beat("n = 1", 9, "FOO")
            await self.pull("of no type", kind="FOO", at=9)
            for expression, kind in (("n > > 1", SQL), ("", SQL), ("n > 1", "FOO"), ("n > 1", SQL)):
                await self.check(expression, kind)
        finally:
            await self._client.close()
        return self.answers


@pytest.mark.long
@pytest.mark.timeout(200)
async def test_both_answer_the_same(jars: str, tmp_path: Path) -> None:
    port, ha_port = free_ports(2)
    settings = {**SETTINGS, "mappedFileSizeTimerLog": 1024 * 1024, "listenPort": port, "haListenPort": ha_port}
    java = JavaBroker(tmp_path / "java", tmp_path / "java-store", jars, "", settings)
    try:
        java.start()
        theirs = await Asking(f"{HOST}:{port}").all()
    finally:
        java.kill()
    values = {name: str(value) for name, value in SETTINGS.items()}
    values |= {"storePathRootDir": str(tmp_path / "ours"), "listenPort": "0", "bindAddress": HOST, "brokerName": "b"}
    broker = Broker(*load_broker_config({**values, "httpEnable": "false", "haListenPort": "-1"})[:2])
    await broker.start()
    try:
        ours = await Asking(broker.address).all()
    finally:
        await broker.close()
    assert {name: answer for name, answer in ours.items() if name not in DIFFERENT} == {
        name: answer for name, answer in theirs.items() if name not in DIFFERENT
    }
    assert {name: (theirs[name][0], ours[name][0]) for name in DIFFERENT} == DIFFERENT
    assert theirs["good"] == (0, "6", 3)
    assert {answer[0] for answer in theirs.values()} == {0, 19, 20, 23, 25, 27}
