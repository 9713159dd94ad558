"""A store that the real RocketMQ leaves with timer messages, a half message and POP's check points: said at start."""

import asyncio
import shutil
import struct
import time
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from chaos.host.processes import HOST, free_ports
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.javahash import tags_code
from remoting.properties import encode_properties
from store.timerwheel import read_check
from tests.interop.java_broker import JavaBroker

POP_MESSAGE = 200_050
PREPARED = 4
SETTINGS = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeTimerLog": 1024 * 1024,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
    "enableConsumeQueueExt": True,
}
TAG = "red"
WAIT_S = 60
POLL_S = 0.1


async def send(client: RemotingClient, address: str, properties: dict[str, str], sys_flag: int = 0) -> None:
    header = SendMessageRequestHeaderV2(
        producerGroup="g", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=sys_flag,
        bornTimestamp=int(time.time() * 1000), flag=0, properties=encode_properties(properties).decode(),
    )  # fmt: skip
    answer = await client.invoke(address, Command.request(RequestCode.SEND_MESSAGE_V2, header, b"x"), 10.0)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pop(client: RemotingClient, address: str) -> None:
    fields = {
        "consumerGroup": "poppers", "topic": "T", "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "600000",
        "pollTime": "15000", "bornTime": str(int(time.time() * 1000)), "initMode": "0", "expType": "TAG", "exp": "*",
        "order": "false",
    }  # fmt: skip
    answer = await client.invoke(address, Command.request(POP_MESSAGE, ext=fields), 20.0)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def left_by_rocketmq(java: JavaBroker, address: str, store: Path) -> None:
    client = RemotingClient()
    try:
        await send(client, address, {"TAGS": TAG})
        await send(client, address, {"TIMER_DELAY_SEC": "36000"})
        await send(
            client,
            address,
            {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A01"},
            PREPARED,
        )
        await pop(client, address)
        async with asyncio.timeout(WAIT_S):
            while (check := read_check(store)) is None or not check.taken:
                await asyncio.sleep(POLL_S)
    finally:
        await client.close()
    java.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_what_RocketMQ_left_and_nobody_serves_is_said(
    jars: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    store = tmp_path / "store"
    java = JavaBroker(
        tmp_path / "java", store, jars, "", {**SETTINGS, "listenPort": port, "haListenPort": free_ports(1)[0]}
    )
    try:
        java.start()
        await left_by_rocketmq(java, f"{HOST}:{port}", store)
    finally:
        java.kill()
    (file,) = (store / "consumequeue" / "T" / "0").iterdir()
    (code,) = struct.unpack_from(">q", file.read_bytes(), 12)
    assert code != tags_code(TAG), "a place in consumequeue_ext, which no consumer by tag asks for"
    said, _ = await opened(store, caplog)
    assert "half message" not in said, "it is served"
    assert "enableConsumeQueueExt" in said
    # What the warning tells to do.
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "consumequeue_ext")
    said, code = await opened(store, caplog)
    assert said == ""
    assert code == tags_code(TAG)


async def opened(store: Path, caplog: pytest.LogCaptureFixture) -> tuple[str, int]:
    """Start our broker on a store; returns its warning ("": none), and the tag code of the first message of topic T."""
    caplog.clear()
    ours = {k: str(v) for k, v in SETTINGS.items() if k not in {"mappedFileSizeTimerLog", "enableConsumeQueueExt"}}
    ours |= {"storePathRootDir": str(store), "brokerName": "broker-a", "listenPort": "0", "bindAddress": HOST}
    broker = Broker(*load_broker_config({**ours, "httpEnable": "false", "haListenPort": "-1"})[:2])
    await broker.start()
    (entry,) = broker.store.queue_entries("T", 0, 0, 1)
    await broker.close()
    said = [each.getMessage() for each in caplog.records if "DOES NOT SERVE" in each.getMessage()]
    assert len(said) < 2
    return "".join(said), entry.tags_code
