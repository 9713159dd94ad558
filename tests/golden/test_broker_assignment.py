"""Assignment by the broker (400, 401) as RocketMQ 5.5.0 answered its Java client, with both kinds of headers."""

import json
from pathlib import Path

import pytest

from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.bodies.registry import ConsumerData, HeartbeatData, SubscriptionData
from remoting.client import RemotingClient
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.command import Command

DATA = Path(__file__).parent / "data"
SETTINGS = {"listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "broker-a", "haListenPort": "-1"}
SETTINGS |= {"httpEnable": "false", "brokerIP1": "127.0.0.1", "mappedFileSizeCommitLog": "65536"}
GROUP, TOPIC = "FeatPopPushGroup", "FeatPopPush"


def exchanges(kind: str) -> list[tuple[Command, Command]]:
    lines = [json.loads(line) for line in (DATA / "assignment-frames.jsonl").read_text().splitlines()]
    frames = [(line, decode(bytes.fromhex(line["frame"])[4:])) for line in lines if line["kind"] == kind]
    answers = {(line["client"], line["opaque"]): frame for line, frame in frames if line["isResponse"]}
    return [(frame, answers[line["client"], line["opaque"]]) for line, frame in frames if not line["isResponse"]]


async def started(folder: Path) -> Broker:
    config, store_config, unknown = load_broker_config({**SETTINGS, "storePathRootDir": str(folder)})
    assert unknown == []
    broker = Broker(config, store_config)
    await broker.start()
    return broker


async def joined(address: str, client_id: str) -> RemotingClient:
    """Return a client that is a member of the group."""
    client = RemotingClient()
    consumer = ConsumerData(groupName=GROUP, subscriptionDataSet=[SubscriptionData(topic=TOPIC, subString="*")])
    beat = HeartbeatData(clientID=client_id, consumerDataSet=[consumer])
    assert (await client.invoke(address, Command.request(RequestCode.HEART_BEAT, None, beat.encode()), 5.0)).code == 0
    return client


@pytest.mark.parametrize("kind", ["JSON", "ROCKETMQ"])
async def test_the_java_clients_requests_are_answered_as_recorded(tmp_path: Path, kind: str) -> None:
    broker = await started(tmp_path)
    members = [await joined(broker.address, name) for name in ("127.0.0.1@c4", "127.0.0.1@c5")]
    try:
        broker._parts.topics.create_for_retry(TOPIC, 4)
        compared = 0
        for request, expected in exchanges(kind):
            answer = await members[0].invoke(broker.address, request, 5.0)
            assert (answer.code, answer.remark) == (expected.code, expected.remark)
            # RocketMQ answers in the kind of the broker, ours in that of the request: here they are the same.
            assert answer.serialize_type == expected.serialize_type == request.serialize_type
            assert (json.loads(bytes(answer.body) or b"0")) == json.loads(bytes(expected.body) or b"0")
            compared += 1
        assert compared == 4
        file = tmp_path / "config" / "messageRequestMode.json"
        mode = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, "topic": TOPIC}
        assert json.loads(file.read_bytes()) == {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}
    finally:
        for client in members:
            await client.close()
        await broker.close()
