"""An open loop sends when messages are due, and what the broker holds up has waited from then on."""

import asyncio
import time

import pytest
from typer.testing import CliRunner

from raftmq.bench.arrivals import ArrivalBook
from raftmq.bench.openloop import SECOND_NS, STAMP_BYTES, DueTimes, SendWindow, StampedSender
from raftmq.cli.main import app
from remoting.codec import encode
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.framing import FrameReader
from remoting.headers.registry import SendMessageResponseHeader

HELD_S = 0.3


@pytest.mark.parametrize("per_s", [1, 7, 3_000, 999_983])
def test_each_message_is_due_at_its_time_and_not_before(per_s: int) -> None:
    began = 5 * SECOND_NS + 3
    schedule = DueTimes(began, per_s, 2.0)
    assert schedule.total == 2 * per_s
    assert schedule.due(began - 1, 0, 0) == 0
    for number in {0, 1, per_s // 2, per_s, schedule.total - 1}:
        due_ns = schedule.due_ns(number)
        assert schedule.due(due_ns, 0, 0) == number + 1
        assert schedule.due(due_ns - 1, 0, 0) == number
        # Whatever is unanswered.
        assert schedule.due(due_ns, number, number) == schedule.due(due_ns, number, 0) == 1
    assert schedule.due_ns(per_s) - began == SECOND_NS
    assert schedule.due(began + 100 * SECOND_NS, 0, 0) == schedule.total
    assert schedule.ended(began, schedule.total)
    assert not schedule.ended(began + 100 * SECOND_NS, schedule.total - 1)


def test_an_open_loop_waits_for_the_next_message_a_closed_one_for_an_answer() -> None:
    assert DueTimes(0, 1000, 1.0).wait_s(1_200_000, 2) == pytest.approx(0.0008)
    assert DueTimes(0, 1000, 1.0).wait_s(SECOND_NS, 2) == 0
    window = SendWindow(0, 4, 1.0)
    assert (window.due(1, 0, 0), window.due(1, 4, 0), window.due(1, 4, 3), window.due(SECOND_NS, 4, 4)) == (4, 0, 3, 0)
    assert window.ended(SECOND_NS, 4)


class HeldBroker(asyncio.Protocol):
    """Reads sends at once, answers none of them until some time has passed, and keeps their bodies."""

    def __init__(self, bodies: list[bytes]) -> None:
        self._reader = FrameReader()
        self._bodies = bodies
        self._held: list[bytes] | None = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        asyncio.get_running_loop().call_later(HELD_S, self._release)

    def data_received(self, data: bytes) -> None:
        for command in self._reader.feed(data):
            self._bodies.append(bytes(command.body))
            answer = Command.response(
                ResponseCode.SUCCESS, header=SendMessageResponseHeader(msgId="A", queueId=0, queueOffset=1)
            )
            answer.opaque = command.opaque
            if self._held is None:
                self._transport.write(encode(answer))
            else:
                self._held.append(encode(answer))

    def _release(self) -> None:
        assert self._held is not None
        self._transport.write(b"".join(self._held))
        self._held = None


async def test_who_was_due_while_the_broker_stood_still_has_waited() -> None:
    bodies: list[bytes] = []
    server = await asyncio.get_running_loop().create_server(lambda: HeldBroker(bodies), "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        sender = await asyncio.to_thread(StampedSender, address, "bench", 100)
        try:
            began_ns = time.monotonic_ns()
            found = await asyncio.to_thread(sender.run, DueTimes(began_ns, 1000, 2 * HELD_S), 3)
        finally:
            sender.close()
    assert (found.sent, found.acknowledged, found.errors) == (600, 600, {})
    # A closed loop would have sent one and waited; here half of all were due in that time.
    waited = sum(1 for latency_us in found.latencies_us if latency_us > 50_000)
    assert waited >= 200
    assert max(found.latencies_us) >= 0.8 * HELD_S * 1e6
    stamps = sorted(int(body[:20]) for body in bodies)
    schedule = DueTimes(began_ns, 1000, 2 * HELD_S)
    assert stamps == [schedule.due_ns(number) for number in range(600)]
    assert {(body[20:STAMP_BYTES], len(body)) for body in bodies} == {(b"03", 100)}


def test_arrivals_are_counted_by_phase_from_when_they_were_due() -> None:
    book = ArrivalBook()
    phase = book.phase(2)
    for due_ns, now_ns in ((0, 1_000_000), (1_000_000, 4_000_000), (SECOND_NS, SECOND_NS + 1_000_000)):
        phase.take(due_ns, now_ns)
    assert phase.figures() == {"arrived": 3, "arrived_per_s": 3, "p50_ms": 1.0, "p99_ms": 3.0, "max_ms": 3.0}
    assert book.phase(1).figures()["arrived"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "pair"], "--mode pair: it takes single or raft"),
        (["--share", "2"], "--share 2: it takes more than 0 and at most 1.5"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["bench", "latency", *arguments])
    assert (done.exit_code, done.stderr.strip()) == (2, f"raftmq: {words}")
