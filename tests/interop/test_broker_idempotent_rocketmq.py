"""Our mark at the real RocketMQ's broker: it is stored, and nothing else, and the folder is served by ours."""

import asyncio
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from chaos.host.processes import HOST, free_ports
from remoting.client import RemotingClient
from remoting.codes import MessageSysFlag, RequestCode
from remoting.record import decode_records
from tests.cluster.broker_peer import ask, pull_header
from tests.interop.java_broker import JavaBroker
from tests.parts.idempotent_sends import batch_once, once, sent

SETTINGS = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
}


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_RocketMQ_stores_the_mark_and_what_it_stored_is_recognized_here(jars: str, tmp_path: Path) -> None:
    (port, ha_port), store, client = free_ports(2), tmp_path / "store", RemotingClient()
    ports = {"listenPort": port, "haListenPort": ha_port}
    java = JavaBroker(tmp_path / "java", store, jars, "", {**SETTINGS, **ports})
    try:
        await asyncio.to_thread(java.start)
        address = f"{HOST}:{port}"
        first = await sent(client, address, once("A"), 20.0)
        again = await sent(client, address, once("A"), 20.0)
        assert (first.code, again.code, again.queue_offset) == (0, 0, first.queue_offset + 1)
        batch = await sent(client, address, batch_once(["B", "C"]), 20.0)
        assert batch.code == 0
        await asyncio.to_thread(java.stop)
    finally:
        java.kill()
    ours = {"storePathRootDir": store, "brokerName": "broker-a", "listenPort": port, "bindAddress": HOST}
    values = {**SETTINGS, **ours, "httpEnable": "false", "haListenPort": "-1", "vipPortEnable": "false"}
    broker = Broker(*load_broker_config({key: str(value) for key, value in values.items()})[:2])
    await broker.start()
    try:
        answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header())
        stored = decode_records(memoryview(answer.body))
        assert [message.properties["UNIQ_KEY"] for message in stored] == ["A", "A", "B", "C"]
        assert all(message.sys_flag & MessageSysFlag.IDEMPOTENT for message in stored)
        # It kept the bit, so its folder tells what was asked, and the first of its two counts.
        assert await sent(client, broker.address, once("A")) == first
        assert (await sent(client, broker.address, batch_once(["B", "C"])))[1:4] == batch[1:4]
    finally:
        await broker.close()
        await client.close()
