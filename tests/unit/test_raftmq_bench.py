"""The load generator: its frames are frames, its arithmetic adds up, its window stays full."""

import asyncio
from collections.abc import Callable

import pytest

from raftmq.bench.frames import (
    OPAQUE_MIN,
    QUEUES,
    AnswerReader,
    BadAnswer,
    next_offset,
    pull_template,
    send_templates,
)
from raftmq.bench.load import LoadedBroker, Pulls, Sends, percentile, run_load
from raftmq.bench.orderly import OrderBook
from remoting.codec import decode, encode
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.framing import FrameReader
from remoting.headers.registry import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from remoting.signing import Credentials, is_signed_by


def answer_to(request: Command, code: int = ResponseCode.SUCCESS) -> bytes:
    response = Command.response(code, header=SendMessageResponseHeader(msgId="A", queueId=0, queueOffset=1))
    response.opaque = request.opaque
    return encode(response)


def test_send_templates_decode_to_what_they_mean() -> None:
    templates = send_templates("bench", 100)
    assert len(templates) == QUEUES
    for queue_id, template in enumerate(templates):
        command = decode(template.fill(OPAQUE_MIN + queue_id)[4:])
        header = command.header(SendMessageRequestHeaderV2)
        assert (command.code, command.opaque) == (RequestCode.SEND_MESSAGE_V2, OPAQUE_MIN + queue_id)
        assert (header.topic, header.queueId, len(command.body)) == ("bench", queue_id, 100)


def test_signed_templates_are_signed_for_every_opaque() -> None:
    by = Credentials("bench", "a-secret")
    for queue_id, template in enumerate(send_templates("bench", 100, by)):
        for opaque in (OPAQUE_MIN, 8_999_999):
            command = decode(template.fill(opaque)[4:])
            assert is_signed_by(command, by.secret_key)
            assert not is_signed_by(command, "another")
            assert command.ext["AccessKey"] == "bench"
            assert command.header(SendMessageRequestHeaderV2).queueId == queue_id
    assert b"Signature" not in send_templates("bench", 100)[0].pattern


def test_frames_of_one_template_have_one_length_and_their_own_opaque() -> None:
    template = pull_template("bench", 3, 64, 32)
    first, last = template.fill(OPAQUE_MIN), template.fill(8_999_999)
    assert len(first) == len(last)
    commands = FrameReader().feed(first + last)
    assert [command.opaque for command in commands] == [OPAQUE_MIN, 8_999_999]
    header = commands[1].header(PullMessageRequestHeader)
    assert (header.queueId, header.queueOffset, header.maxMsgNums) == (3, 64, 32)


def test_answers_are_cut_from_the_stream_wherever_it_is_split() -> None:
    request = decode(send_templates("bench", 10)[0].fill(OPAQUE_MIN + 7)[4:])
    stream = answer_to(request) + answer_to(request, ResponseCode.SYSTEM_BUSY)
    for cut in range(len(stream) + 1):
        reader = AnswerReader()
        answers = reader.feed(stream[:cut]) + reader.feed(stream[cut:])
        assert [(opaque, code) for opaque, code, _ in answers] == [(OPAQUE_MIN + 7, 0), (OPAQUE_MIN + 7, 2)]


def test_what_is_no_answer_ends_the_run() -> None:
    with pytest.raises(BadAnswer):
        AnswerReader().feed(b"\x00\x00\x00\x08\x00\x00\x00\x04HTTP")
    with pytest.raises(BadAnswer):
        next_offset((1, 0, b'{"code":0}'))


def test_pulls_walk_every_queue_and_start_again_at_the_end() -> None:
    pulls = Pulls("bench", [64, 0, 40], 32)
    asked = []
    for frame in pulls.frames(range(OPAQUE_MIN, OPAQUE_MIN + 8)):
        header = decode(frame[4:]).header(PullMessageRequestHeader)
        asked.append((header.queueId, header.queueOffset))
    # Queue 1 is empty; queue 2 has one whole portion, queue 0 two.
    assert sorted(set(asked)) == [(0, 0), (0, 32), (2, 0)]
    assert asked[:2] == [(0, 0), (2, 0)] or asked[:2] == [(2, 0), (0, 0)]
    answered = PullMessageResponseHeader(suggestWhichBrokerId=0, nextBeginOffset=32, minOffset=0, maxOffset=64)
    response = Command.response(ResponseCode.SUCCESS, header=answered, body=b"records")
    response.opaque = OPAQUE_MIN
    assert pulls.messages(AnswerReader().feed(encode(response))) == 32


def test_percentiles() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile(list(range(1000, 101_000, 1000)), 0.50) == 51.0
    assert percentile(list(range(1000, 101_000, 1000)), 0.99) == 100.0
    assert percentile([5], 1.0) == 0.005


class _Broker(asyncio.Protocol):
    """Answers every whole frame at once and keeps count of what was outstanding in each read."""

    def __init__(self, reads: list[int], code: Callable[[int], int]) -> None:
        self._reader = FrameReader()
        self._reads = reads
        self._code = code

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        commands = self._reader.feed(data)
        self._reads.append(len(commands))
        self._transport.write(b"".join(answer_to(c, self._code(c.opaque)) for c in commands))


async def test_a_run_counts_answers_and_keeps_the_window() -> None:
    reads: list[int] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Broker(reads, lambda opaque: 2 if opaque % 2 else 0), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        result = await run_load(
            "send",
            LoadedBroker(address, iter((1.0, 3.0)).__next__),
            lambda: Sends("bench", 10),
            in_flight=16,
            seconds=0.2,
            body_bytes=10,
        )
    assert max(reads) <= 16
    assert result.requests == result.messages + result.errors[2]
    assert result.messages > 16
    assert result.server_cpu_us_per_message == round(2.0 / result.messages * 1e6, 2)
    assert 0 < result.client_busy <= 1.1
    assert 0 < result.p50_ms <= result.p99_ms <= result.max_ms
    assert result.as_dict()["errors"] == {"2": result.errors[2]}


async def test_a_window_without_an_answer_lasts_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftmq.bench.load.WARM_UP_S", 0.0)
    loop = asyncio.get_running_loop()

    class Late(_Broker):
        def data_received(self, data: bytes) -> None:
            loop.call_later(0.1, super().data_received, data)

    server = await loop.create_server(lambda: Late([], lambda _: 0), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        result = await run_load("send", LoadedBroker(address), lambda: Sends("bench", 10), in_flight=1, seconds=0.01)
    assert result.messages >= 1
    assert result.seconds >= 0.1


async def test_a_broker_that_goes_away_ends_the_run() -> None:
    class Closing(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    server = await asyncio.get_running_loop().create_server(Closing, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(ConnectionError):
            await run_load("send", LoadedBroker(address), lambda: Sends("bench", 10), in_flight=1, seconds=5)


def test_the_book_of_ordered_messages_tells_inversions_from_repetitions() -> None:
    book = OrderBook()
    for number in range(5):
        book.acknowledged(0, number)
        book.acknowledged(1, number)
    for number in (0, 1, 2, 1, 2, 3, 4):
        book.consumed(0, b"%d" % number)
    assert (book.repeated, book.inversions, book.missing) == (2, 0, 5)
    for number in (0, 2, 1, 3):
        book.consumed(1, b"%d" % number)
    row = book.row("kill", 3)
    assert (row.inversions, row.lost, row.queues, row.messages) == (1, 1, 2, 10)
    book.consumed(1, b"3")
    row = book.row("kill", 3)
    assert (row.repeated, row.repeated_most) == (3, 2)


@pytest.mark.parametrize(
    ("numbers", "out_of_turn"),
    [
        ("0 1 2 3 4", 0),
        # A new holder begins with what was not committed; so may the one after it.
        ("0 1 2 1 2 1 2 3 4", 0),
        # The old one goes on meanwhile, with what is new, or with what came before.
        ("0 1 2 1 3 2 3 4", 1),
        ("0 1 2 0 1 2 0 2 1 3 2 4", 3),
    ],
)
def test_a_former_holder_that_goes_on_is_out_of_turn(numbers: str, out_of_turn: int) -> None:
    """Repetitions alone would not tell: each of both is in order, and so is the queue by what comes first."""
    book = OrderBook()
    for at, number in enumerate(numbers.split()):
        book.consumed(0, number.encode(), float(at))
    assert (book.inversions, book.out_of_turn) == (0, out_of_turn)


def test_what_another_process_tells_late_is_where_it_happened() -> None:
    book = OrderBook()
    for at, number in ((0.0, 0), (3.0, 1), (4.0, 2), (1.0, 1), (2.0, 2)):
        book.consumed(0, b"%d" % number, at)
    assert book.out_of_turn == 0
