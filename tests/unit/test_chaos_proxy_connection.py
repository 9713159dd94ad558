"""chaos/proxy/connection.py: what comes before the other side is there, and who closes whom; sockets are doubles."""

import asyncio
from random import Random
from typing import Any

import pytest

from chaos.proxy.connection import ProxiedConnection
from chaos.proxy.journal import Counters
from chaos.proxy.toxics import Toxic, parse_toxic


class Wire(asyncio.Transport):
    """A socket that notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reading = True
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close


class Rig:
    """A connection whose far side is not there yet."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.done = 0
        self.connection = ProxiedConnection(0, self.counters, asyncio.get_running_loop(), lambda: None, self._done)
        self.near, self.far = self.connection.near, self.connection.far
        self.near_wire, self.far_wire = Wire(), Wire()
        self.near.connection_made(self.near_wire)

    def join(self, *toxics: Toxic) -> None:
        self.far.connection_made(self.far_wire)
        self.connection.join((toxic, Random(1)) for toxic in toxics)

    def _done(self, _connection: ProxiedConnection) -> None:
        self.done += 1


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_early_bytes_and_the_early_end_are_kept(rig: Rig) -> None:
    rig.near.data_received(b"early")
    assert not rig.near_wire.reading  # one piece is kept, not more
    rig.near.eof_received()
    rig.join()
    assert (rig.far_wire.written, rig.far_wire.closed, rig.near_wire.closed) == (b"early", True, False)
    rig.far.connection_lost(None)
    assert rig.near_wire.closed
    rig.near.connection_lost(None)
    assert rig.done == 1


async def test_early_bytes_without_an_end_go_on_with_reading(rig: Rig) -> None:
    rig.near.data_received(b"early")
    rig.join()
    assert rig.near_wire.reading
    rig.near.data_received(b" and late")
    assert (rig.far_wire.written, rig.far_wire.closed) == (b"early and late", False)


async def test_a_dialler_that_has_gone_early_ends_the_far_side(rig: Rig) -> None:
    rig.near_wire.close()
    rig.near.connection_lost(None)
    rig.join(parse_toxic({"type": "hold"}))
    assert rig.far_wire.closed
    rig.far.data_received(b"nobody")
    assert (rig.counters.downstream.kept, rig.counters.downstream.lost) == (0, 6)
    rig.far.connection_lost(None)
    assert rig.done == 1


async def test_a_slow_reader_stops_the_other_sides_reading(rig: Rig) -> None:
    rig.join()
    rig.far.pause_writing()
    assert (rig.near_wire.reading, rig.far_wire.reading) == (False, True)
    rig.connection.add(parse_toxic({"type": "hold", "stream": "upstream"}), Random(1))
    rig.near.data_received(b"x")
    assert not rig.near_wire.reading  # there is room in the stage, but not in the socket
    rig.far.resume_writing()
    assert rig.near_wire.reading


async def test_a_sink_that_is_gone_frees_what_was_kept_for_it(rig: Rig) -> None:
    rig.join()
    rig.connection.add(parse_toxic({"type": "hold", "stream": "upstream"}), Random(1))
    rig.near.data_received(b"kept")
    assert rig.counters.upstream.kept == 4
    rig.far.connection_lost(ConnectionResetError())
    assert (rig.counters.upstream.kept, rig.counters.upstream.lost) == (0, 4)
    assert rig.near_wire.closed
    rig.connection.remove(parse_toxic({"type": "hold", "stream": "upstream"}))
    assert rig.far_wire.written == b""


async def test_what_is_aborted_while_it_is_dialled_is_closed_when_it_comes(rig: Rig) -> None:
    rig.connection.abort()
    assert (rig.near_wire.closed, rig.done) == (True, 0)
    rig.near.connection_lost(None)
    assert rig.done == 1
    rig.far.connection_made(rig.far_wire)
    assert rig.far_wire.closed
    rig.far.connection_lost(None)
    assert rig.done == 1
