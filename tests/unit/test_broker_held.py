"""broker/messages/held.py: a header that no record holds counts as long as its request waits for the log."""

from functools import partial

import pytest

from broker.messages.held import HELD_BYTES_MAX, HeldRequests
from remoting.codec import decode, encode
from remoting.codes import RequestCode, ResponseCode
from remoting.command import HEADER_BYTES_FREE, JSON, ROCKETMQ, Command
from remoting.errors import CommandError
from remoting.headers.registry import SendMessageRequestHeaderV2
from tests.parts.send_parts import Setting


def request(kind: int = JSON, code: int = RequestCode.SEND_MESSAGE_V2, **more: str) -> Command:
    """A send as it arrives, with fields that nobody asked for."""
    header = SendMessageRequestHeaderV2(
        producerGroup="P",
        topic="T",
        defaultTopic="Pattern",
        defaultTopicQueueNums=4,
        queueId=1,
        sysFlag=0,
        bornTimestamp=99,
        flag=7,
        properties="TAGS\x01A\x02",
        reconsumeTimes=0,
    )
    made = Command.request(code, header, b"body", ext=more)
    made.serialize_type = kind
    return decode(encode(made)[4:])


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_what_clients_send_is_free(kind: int) -> None:
    setting = Setting()
    for _ in range(1000):
        setting.send.send_v2(setting.peer, request(kind))  # type: ignore[arg-type] # a connection as far as it goes
    assert len(setting.log.records) == 1000
    assert setting.send._held.bytes == 0


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@pytest.mark.parametrize(
    "more", [{"x": "y" * 60_000}, {f"x{number}": "y" * 400 for number in range(100)}], ids=["long", "many"]
)
def test_a_large_header_counts_until_it_is_answered(kind: int, more: dict[str, str]) -> None:
    setting = Setting()
    taken = HELD_BYTES_MAX // 80_000
    for _ in range(taken):
        setting.send.send_v2(setting.peer, request(kind, **more))  # type: ignore[arg-type] # as above
    refused = None
    while refused is None and taken < HELD_BYTES_MAX // 40_000:
        try:
            setting.send.send_v2(setting.peer, request(kind, **more))  # type: ignore[arg-type] # as above
            taken += 1
        except CommandError as error:
            refused = error
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "send smaller headers" in refused.remark
    # Others are served as ever, and with the answers there is room again.
    setting.send.send_v2(setting.peer, request(kind))  # type: ignore[arg-type] # as above
    assert len(setting.log.records) == taken + 1
    for answer in setting.log.answers:
        answer(0)
    assert setting.send._held.bytes == 0
    setting.send.send_v2(setting.peer, request(kind, **more))  # type: ignore[arg-type] # as above


def test_each_is_counted_out_once_with_its_answer() -> None:
    requests = HeldRequests(10_000)
    heard: list[tuple[object, ...]] = []
    done = partial(lambda *answer: heard.append(answer))
    first = requests.hold(6000, done)
    with pytest.raises(CommandError):
        requests.hold(6000, first)
    first("result", 0)
    assert (heard, requests.bytes) == ([("result", 0)], 0)
    assert requests.hold(HEADER_BYTES_FREE, done) is done
