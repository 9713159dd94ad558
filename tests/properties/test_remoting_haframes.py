"""Whatever arrives at the HA port, at any byte: no offset moves that nobody has proved, and slaves are still served."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.master_slave.ha_link import HaLink
from broker.master_slave.ha_server import HaServer
from broker.settings.pair_keys import ClassicKeys
from remoting.errors import FrameError
from remoting.haframes import HEAD_BYTES, REPORT_BYTES, HaFrameReader, ReportReader, head, report
from tests.parts.ha_master import MemoryLog, content

BODY_MAX = 64
LEAST, END = 1024, 5000
THREADS = ThreadPoolExecutor(1)

near = st.sampled_from([0, 1, LEAST - 1, LEAST, LEAST + 1, END - 1, END, END + 1])
offsets = st.one_of(near, st.integers(-(2**63), 2**63 - 1), st.integers(LEAST, END))
# Bytes at the port: reports that might be true, and anything else between them.
streams = st.lists(st.one_of(offsets.map(report), st.binary(max_size=20)), max_size=12).map(b"".join)
cuts = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def pieces(stream: bytes, lengths: list[int]) -> Iterable[bytes]:
    """Cut a stream into pieces of these lengths, over and over."""
    at = turn = 0
    while at < len(stream):
        yield stream[at : at + lengths[turn % len(lengths)]]
        at += lengths[turn % len(lengths)]
        turn += 1


def frames_of(stream: bytes, parts: Iterable[bytes]) -> tuple[list[tuple[int, bytes]], bool]:
    """Return the frames read, and whether the stream was refused; each call's memory is bounded."""
    reader, frames = HaFrameReader(BODY_MAX), []
    for part in parts:
        try:
            frames += reader.feed(part)
        except FrameError:
            return frames, True
        assert reader.buffered < HEAD_BYTES + BODY_MAX
    return frames, False


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=BODY_MAX)), max_size=8), st.binary(), cuts)
def test_frames_are_the_same_however_they_are_cut(
    frames: list[tuple[int, bytes]], garbage: bytes, lengths: list[int]
) -> None:
    stream = b"".join([head(position, len(data)) + data for position, data in frames]) + garbage
    got, refused = frames_of(stream, pieces(stream, lengths))
    assert got[: len(frames)] == frames
    # What a head refuses, it refuses whichever piece brings its last byte; frames before it in that piece are lost.
    bytewise, refused_bytewise = frames_of(stream, [stream[at : at + 1] for at in range(len(stream))])
    assert refused == refused_bytewise
    assert bytewise[: len(got)] == got


@given(streams, cuts)
def test_reports_are_the_same_however_they_are_cut(stream: bytes, lengths: list[int]) -> None:
    reader = ReportReader()
    got = [offset for part in pieces(stream, lengths) for offset in reader.feed(part)]
    whole = len(stream) // REPORT_BYTES
    assert b"".join(map(report, got)) == stream[: whole * REPORT_BYTES]


class Wire(asyncio.Transport):
    """A transport that takes everything at once."""

    def __init__(self, link: HaLink, host: str) -> None:
        super().__init__({"peername": (host, 1)})
        self._link = link
        self.sent = b""
        self.ended = False
        link.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.sent += b"".join(list_of_data)

    def abort(self) -> None:
        if not self.ended:
            self.ended = True
            asyncio.get_running_loop().call_soon(self._link.connection_lost, None)


def expected(stream: bytes) -> tuple[int | None, bool]:
    """The dumb twin: what a slave's bytes amount to, (acked or None when it never counted, whether it is ended)."""
    acked: int | None = None
    begin = 0
    for at in range(0, len(stream) - len(stream) % REPORT_BYTES, REPORT_BYTES):
        offset = int.from_bytes(stream[at : at + REPORT_BYTES], "big", signed=True)
        if acked is None:
            if offset != 0 and not LEAST <= offset <= END:
                return None, True
            acked, begin = offset, offset or LEAST
        elif offset != acked:
            if not max(acked, begin) <= offset <= END:
                return None, True
            acked = offset
    return acked, False


async def garbage_moves_nothing(stream: bytes, lengths: list[int]) -> None:
    log = MemoryLog(content(END), least=LEAST)
    server = HaServer(log, ClassicKeys, asyncio.get_running_loop(), THREADS)
    good, bad = HaLink(server), HaLink(server)
    good_wire = Wire(good, "10.0.0.1")
    good.data_received(report(LEAST))
    bad_wire = Wire(bad, "10.0.0.2")
    before = 0
    for part in pieces(stream, lengths):
        bad.data_received(part)
        assert before <= bad.acked <= bad.sent <= END
        before = bad.acked
        assert server.acked_by(2) <= LEAST
    acked, ended = expected(stream)
    await asyncio.sleep(0)
    assert bad_wire.ended is ended
    assert [link["acked"] for link in server.status()] == [LEAST, *([] if acked is None else [acked])]
    assert server.acked_by(1) == max(LEAST, acked or 0)
    # The other slave is served as ever.
    log.data += b"more"
    server.advanced()
    assert good_wire.sent.endswith(head(END, 4) + b"more")
    good.data_received(report(END + 4))
    assert server.acked_by(1) == END + 4


def run(check: Callable[[bytes, list[int]], Any], stream: bytes, lengths: list[int]) -> None:
    asyncio.run(check(stream, lengths))


@given(streams, cuts)
def test_garbage_at_the_port_moves_nothing(stream: bytes, lengths: list[int]) -> None:
    run(garbage_moves_nothing, stream, lengths)


@given(st.binary(min_size=1, max_size=64), st.integers(0, 40), cuts)
def test_garbage_behind_a_good_beginning_moves_nothing(garbage: bytes, at: int, lengths: list[int]) -> None:
    good = report(LEAST) + report(LEAST + 100) + report(END)
    run(garbage_moves_nothing, good[:at] + garbage + good[at:], lengths)
