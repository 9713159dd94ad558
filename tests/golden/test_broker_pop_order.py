"""POP in order as RocketMQ 5.5.0 answered its Java client: a queue that is held, the same attempt, old handles."""

import json
from pathlib import Path

from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.client import RemotingClient
from remoting.codec import decode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.record import decode_records
from runtime.clock import ManualClock

DATA = Path(__file__).parent / "data"
SETTINGS = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "1000"}
SETTINGS |= {"maxIndexNum": "4000", "listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "broker-a"}
SETTINGS |= {"haListenPort": "-1", "httpEnable": "false", "brokerIP1": "127.0.0.1"}
POPPED_MS = 1_795_380_100_096


def exchanges() -> list[tuple[Command, Command]]:
    lines = [json.loads(line) for line in (DATA / "pop-order-frames.jsonl").read_text().splitlines()]
    frames = [(line, decode(bytes.fromhex(line["frame"])[4:])) for line in lines]
    answers = {(line["client"], line["opaque"]): frame for line, frame in frames if line["isResponse"]}
    return [(frame, answers[line["client"], line["opaque"]]) for line, frame in frames if not line["isResponse"]]


def bodies(answer: Command) -> list[bytes]:
    return [bytes(message.body) for message in decode_records(answer.body)]


async def started(folder: Path, clock: ManualClock, client: RemotingClient) -> Broker:
    config, store_config, unknown = load_broker_config({**SETTINGS, "storePathRootDir": str(folder)})
    assert unknown == []
    broker = Broker(config, store_config, clock)
    await broker.start()
    broker._parts.topics.create_for_retry("FeatPopOrder", 2)
    for number in range(3):
        header = SendMessageRequestHeaderV2(
            producerGroup="P", topic="FeatPopOrder", defaultTopic="TBW102", defaultTopicQueueNums=2, queueId=0,
            sysFlag=0, bornTimestamp=1, flag=0, properties="TAGS\x01T\x02", reconsumeTimes=0,
        )  # fmt: skip
        sent = await client.invoke(broker.address, Command.request(310, header, b"pop order %d" % number), 5.0)
        assert sent.code == 0
    return broker


async def test_the_java_clients_pops_in_order_are_answered_as_recorded(tmp_path: Path) -> None:
    clock, client = ManualClock(), RemotingClient()
    clock.advance((POPPED_MS - clock.now_ms()) / 1000)
    broker = await started(tmp_path, clock, client)
    try:
        (first, held), (other, nothing), (put_off, changed), (ack, acked) = exchanges()

        async def asked(request: Command, expected: Command, **varying: str) -> Command:
            answer = await client.invoke(broker.address, request, 10.0)
            assert (answer.code, answer.remark) == (expected.code, expected.remark)
            assert answer.ext == {**expected.ext, **varying}
            assert bodies(answer) == bodies(expected)
            return answer

        taken = await asked(first, held)
        assert (taken.ext["reviveQid"], taken.ext["orderCountInfo"]) == ("999", "0 0 0")
        clock.advance(0.010)
        await asked(other, nothing)
        clock.advance(0.003)
        # The same attempt: the same messages, with handles of a later time; what was told of it is in the manifest.
        again = await client.invoke(broker.address, first, 10.0)
        assert bodies(again) == [b"pop order 0", b"pop order 1"]
        assert again.ext == {**held.ext, "popTime": "1795380100109"}
        clock.advance(0.005)
        # The handles are the first ones, and of nothing any more.
        await asked(put_off, changed)
        await asked(ack, acked)
        clock.advance(0.708)
        last = (await client.invoke(broker.address, first, 10.0)).ext
        assert (last["popTime"], last["msgOffsetInfo"], last["restNum"]) == ("1795380100822", "0 0 0,1", "1")
    finally:
        await client.close()
        await broker.close()
