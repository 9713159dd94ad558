"""`raftmq bench peers`: the load in C against a broker of ours, and against scripted peers that answer with errors."""

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from chaos.host.processes import broker_process
from raftmq.bench.frames import BadAnswer
from raftmq.bench.peers.rawclient import RawLoad, build, compiler, run_raw
from raftmq.bench.suite import max_offsets
from tests.cluster.test_raftmq_cli_errors import raftmq

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(compiler() is None, reason="no C compiler"),
]

TOPIC = "bench_peers"
ACK, NACK, RETURN = 80, 120, 50


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("rawload"))


async def test_the_load_counts_what_a_broker_has_stored_and_what_it_refuses(program: Path, tmp_path: Path) -> None:
    broker = broker_process(tmp_path)
    broker.start()
    try:
        port = int(broker.address.rpartition(":")[2])
        marks: list[int] = []
        good = await run_raw(program, RawLoad("rocketmq", port, TOPIC, 16, 100, 0.1, 0.3), lambda: marks.append(1))
        assert good.acknowledged > 16
        assert (good.errors, good.first_error, len(marks)) == (0, "", 2)
        assert 0 < good.p50_ms <= good.p99_ms <= good.max_ms
        stored = await max_offsets(broker.address, TOPIC)
        assert sum(stored) >= good.acknowledged
        assert all(stored[:4]), "four queues in turn"
        bad = await run_raw(program, RawLoad("rocketmq", port, "a topic", 16, 100, 0.0, 0.2))
        assert (bad.acknowledged, bad.errors > 16) == (0, True)
        assert "topic" in bad.first_error
    finally:
        broker.kill()
    with pytest.raises(BadAnswer, match="nobody can be reached"):
        await run_raw(program, RawLoad("rocketmq", port, TOPIC, 16, 100, 0.0, 0.2))


def test_the_command_over_a_real_broker(tmp_path: Path) -> None:
    done = raftmq(
        "bench", "peers", "--systems", "raftmq-single", "-w", "8", "--rounds", "1", "--seconds", "0.3",
        "--warm-up", "0", "--together", "--json", "--dir", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["system"], one["again"]) for one in told] == [("raftmq-single", False), ("raftmq-single", True)]
    assert all(one["acknowledged"] > 8 and one["failed"] is None and one["errors"] == 0 for one in told)
    assert list(tmp_path.iterdir()) == []


def test_the_command_pulls_from_a_real_broker(tmp_path: Path) -> None:
    done = raftmq(
        "bench", "peers", "--systems", "raftmq-single", "--pulls", "-w", "8", "-s", "50", "--rounds", "1",
        "--seconds", "0.3", "--warm-up", "0", "--together", "--json", "--dir", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for one in map(json.loads, done.stdout.splitlines()):
        assert (one["failed"], one["errors"], one["acknowledged"] % 32) == (None, 0, 0)
        assert one["acknowledged"] > 8 * 32


async def test_pulls_that_bring_less_than_they_should_are_errors(program: Path, tmp_path: Path) -> None:
    broker = broker_process(tmp_path)
    broker.start()
    try:
        port = int(broker.address.rpartition(":")[2])
        await run_raw(program, RawLoad("rocketmq", port, TOPIC, 1, 100, 0.0, 0.05))
        found = await run_raw(program, RawLoad("rocketmq-pulls", port, TOPIC, 4, 100, 0.0, 0.2))
        assert found.errors > 0
        assert found.first_error
    finally:
        broker.kill()


async def test_an_error_among_the_answers_of_jetstream_is_counted(program: Path) -> None:
    def serve(stream: BinaryIO) -> None:
        stream.write(b'INFO {"headers":true}\r\n')
        stream.flush()
        for number, reply in enumerate(_published(stream)):
            said = b'{"error":{"code":503}}' if number == 3 else b'{"stream":"t","seq":%d}' % number
            pinged = b"PING\r\n" if number == 5 else b""
            stream.write(pinged + b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(said), said))
            stream.flush()

    with scripted(serve) as port:
        found = await run_raw(program, RawLoad("nats", port, "t", 4, 10, 0.0, 0.2))
    assert found.acknowledged > 10
    assert (found.errors, found.first_error) == (1, "{'error':{'code':503}}")


def _published(stream: BinaryIO) -> Iterator[bytes]:
    """Give the reply subject of each message that is published."""
    while line := stream.readline():
        if line.startswith(b"PUB "):
            _, subject, reply, size = line.split()
            assert subject == b"t"
            assert stream.read(int(size) + 2) == b"0123456789\r\n"
            yield reply


async def test_confirms_of_many_nacks_and_returned_messages_are_counted(program: Path) -> None:
    def serve(stream: BinaryIO) -> None:
        assert stream.read(8) == b"AMQP\0\0\x09\x01"
        _say(stream, 0, 10, 10, b"\0\x09")
        for expected, answer in [
            ((10, 11), (0, 10, 30, struct.pack(">HIH", 2047, 131_072, 60))),
            ((10, 31), None),
            ((10, 40), (0, 10, 41, b"\0")),
            ((20, 10), (1, 20, 11, b"\0\0\0\0")),
            ((50, 10), (1, 50, 11, b"\x01t" + bytes(8))),
            ((50, 30), (1, 50, 31, bytes(4))),
            ((85, 10), (1, 85, 11, b"")),
        ]:
            assert _method(stream)[:2] == expected
            if answer is not None:
                _say(stream, *answer)
        for tag in _confirmable(stream):
            # Two by two, but for the third, which is refused, and the fourth, which has no queue.
            if tag == 3:
                _say(stream, 1, 60, NACK, struct.pack(">QB", tag, 0))
            elif tag == 4:
                _say(stream, 1, 60, RETURN, b"\x01\x38\x08NO_ROUTE\0\x01t")
                _say(stream, 1, 60, ACK, struct.pack(">QB", tag, 0))
            elif tag % 2 == 0:
                _say(stream, 1, 60, ACK, struct.pack(">QB", tag, 1))

    with scripted(serve) as port:
        found = await run_raw(program, RawLoad("amqp", port, "t", 4, 10, 0.0, 0.2))
    assert found.acknowledged > 10
    assert (found.errors, found.first_error) == (2, "nack")


def _method(stream: BinaryIO) -> tuple[int, int, bytes]:
    kind, _channel, length = struct.unpack(">BHI", stream.read(7))
    payload = stream.read(length)
    assert (kind, stream.read(1)) == (1, b"\xce")
    class_id, method_id = struct.unpack(">HH", payload[:4])
    return class_id, method_id, payload[4:]


def _say(stream: BinaryIO, channel: int, class_id: int, method_id: int, arguments: bytes) -> None:
    payload = struct.pack(">HH", class_id, method_id) + arguments
    stream.write(struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce")
    stream.flush()


def _confirmable(stream: BinaryIO) -> Iterator[int]:
    """Give the tag of each message that is published, persistent and mandatory, to the queue."""
    published = rb"\x01\0\x01\0\0\0\x0a\0\x3c\0\x28\0\0\0\x01t\x01\xce"
    header = rb"\x02\0\x01\0\0\0\x0f\0\x3c\0\0" + re.escape(struct.pack(">Q", 10)) + rb"\x10\0\x02\xce"
    pattern = re.compile(published + header + rb"\x03\0\x01\0\0\0\x0a0123456789\xce")
    tag = 0
    while message := stream.read(18 + 23 + 18):
        assert pattern.fullmatch(message), message
        yield (tag := tag + 1)


@contextmanager
def scripted(serve: Callable[[BinaryIO], None]) -> Iterator[int]:
    """Serve one connection by a script; give the port. What the script asserts is asserted in the end."""
    failed: list[BaseException] = []

    def run() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            try:
                serve(cast("BinaryIO", stream))
            except (ConnectionError, struct.error):
                return
            except BaseException as error:
                failed.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)
    assert failed == []
    assert not thread.is_alive()
