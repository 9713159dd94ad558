"""R18 at the HA port: what comes from the disk is checked before a slave gets it, which does not check it itself."""

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.master_slave.ha_server import HaServer
from broker.settings.pair_keys import ClassicKeys
from remoting.record import encode_record
from store.integrity import pushed
from store.integrity.pushed import PushedPiece, read_checked
from store.messagestore import MessageStore
from tests.parts import store_tools
from tests.parts.entry_tools import damage
from tests.parts.ha_master import Slave

# Messages, of 1000 bytes each: several files.
COUNT = 150


def open_store(folder: Path) -> MessageStore:
    return MessageStore.open(store_tools.make_config(folder), store_host=store_tools.HOST, stepped=True)


def filled(folder: Path) -> tuple[MessageStore, list[int]]:
    """Return a store that was started again, and where its records begin."""
    store = open_store(folder)
    for number in range(COUNT):
        store_tools.fill(store, 1, body=b"%04d" % number * 250)
    places = [entry.physical_offset for entry in store.queue_entries("T", 0, 0, COUNT)]
    store.close()
    return open_store(folder), places


def whole(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "store" / "commitlog").iterdir()))


@asynccontextmanager
async def serving(store: MessageStore) -> AsyncIterator[HaServer]:
    with ThreadPoolExecutor(1) as threads:
        server = HaServer(store, ClassicKeys, asyncio.get_running_loop(), threads)
        await server.start("127.0.0.1", 0)
        try:
            yield server
        finally:
            await server.close()


async def received(server: HaServer, position: int, end: int) -> bytes:
    """Return what a slave is sent up to `end`, or until its link ends."""
    slave = Slave(*await asyncio.open_connection("127.0.0.1", server.port))
    slave.report(position)
    data = b""
    try:
        while position + len(data) < end:
            at, piece = await slave.frame()
            assert at == position + len(data)
            data += piece
    except (EOFError, ConnectionError):
        pass
    finally:
        await slave.close()
    return data


async def check_nothing_wrong_leaves(folder: Path, at: int, caplog: pytest.LogCaptureFixture) -> None:
    store, places = filled(folder)
    hurt = places[100]
    right = whole(folder)
    damage(folder, hurt + at)
    async with serving(store) as server:
        # From the begin of the log, of a file, from a border, from within a record before it and within it.
        for begin in (0, places[40], places[40] + 7, places[99] + 500, hurt, hurt + 300):
            assert await received(server, begin, store.written) == right[begin : max(begin, hurt)], begin
        assert (server.stopped, server.stopped_at) == (6, hurt)
        assert (store.integrity().found, list(store.integrity().places)) == (1, [hurt])
        # What lies behind it is not concerned.
        begin = places[101] + 3
        assert await received(server, begin, store.written) == right[begin : store.written]
    store.close()
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert f"at {hurt} " in errors[0]


# In the size, the magic, the body, the length of the body.
@pytest.mark.parametrize("at", [2, 5, 500, 84])
async def test_R18_a_slave_is_never_sent_a_rotten_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    await check_nothing_wrong_leaves(tmp_path, at, caplog)


async def test_R18_pushing_what_is_not_checked_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(store: MessageStore, position: int, size_max: int, _border: int = -1) -> PushedPiece:
        return PushedPiece(store.read_piece_cold(position, size_max), -1, None)

    monkeypatch.setattr(MessageStore, "checked_piece", trusting)
    with pytest.raises(AssertionError):
        await check_nothing_wrong_leaves(tmp_path, 500, caplog)


async def test_what_was_written_lately_is_pushed_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = filled(tmp_path)
    begin = store.written
    store_tools.fill(store, 5)
    asked: list[int] = []

    def counted(_store: MessageStore, position: int, _size_max: int, _border: int = -1) -> PushedPiece:
        asked.append(position)
        return PushedPiece(b"", -1, (position, "not to be asked"))

    monkeypatch.setattr(MessageStore, "checked_piece", counted)
    async with serving(store) as server:
        assert len(await received(server, begin, store.written)) == store.written - begin
        assert not asked
    store.close()


@pytest.mark.parametrize("size", [1, 7, 900, 5000, 1 << 20])
@pytest.mark.parametrize("near", [1500, 1 << 20])
def test_pieces_of_any_size_from_anywhere_are_the_logs_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, near: int
) -> None:
    monkeypatch.setattr(pushed, "NEAR_BYTES", near)
    store, places = filled(tmp_path)
    right = whole(tmp_path)[: store.written]
    ends = {*places, store.written, *range(0, store.written, store.file_bytes)}
    ends |= {entry.physical_offset + entry.size for entry in store.queue_entries("T", 0, 0, COUNT)}
    for begin in (0, 5, places[70], places[70] + 4, places[71] - 2, store.written - 3):
        position, border = begin, -1
        while position < min(store.written, begin + 20 * size):
            data, border, damaged = read_checked(store._log, position, size, border, lambda _: False)
            assert damaged is None
            assert bytes(data) == right[position : position + len(data)]
            assert 0 < len(data) <= size
            position += len(data)
            assert border <= position
            assert border in ends
    store.close()


def test_a_record_in_a_body_is_no_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's body holds a right record for the very place at which it stands."""
    monkeypatch.setattr(pushed, "NEAR_BYTES", 700)
    store = open_store(tmp_path)
    store_tools.fill(store, 20, body=bytes(100))
    first = store.written
    store_tools.fill(store, 1, body=b"a" * 3000)
    within = whole(tmp_path).index(b"a" * 3000) - first
    place = store.written + within + 1500
    inner = encode_record("T", 0, b"x" * 10, physical_offset=place)
    store_tools.fill(store, 1, body=bytes(1500) + inner + bytes(1500 - len(inner)))
    store_tools.fill(store, 20, body=bytes(100))
    right = whole(tmp_path)
    store.close()
    store = open_store(tmp_path)
    assert right[place : place + len(inner)] == inner
    data, _, damaged = read_checked(store._log, place + 200, 500, -1, lambda _: False)
    assert damaged is None
    assert bytes(data) == right[place + 200 : place + 700]
    store.close()
