"""The slave's hot path: how often it reports and dispatches, and what it does when it cannot keep up."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from broker.master_slave import ha_receive
from broker.master_slave.ha_receive import DISPATCH_BEHIND_MAX, SLICE_BYTES, LateDispatch, OnDisk, Receiver
from remoting.haframes import head, report
from store.errors import ReplicaRefused, StoreWriteError


class Log:
    def __init__(self) -> None:
        self.written = self.flushed = self.dispatched = 0
        self.appended: list[int] = []
        self.slices: list[int] = []
        self.asked = 0
        self.error: Exception | None = None

    def append(self, position: int, data: bytes | memoryview) -> int:
        if self.error is not None:
            raise self.error
        if position != self.written:
            raise ReplicaRefused("not the end")
        self.appended.append(len(data))
        self.written += len(data)
        return self.written

    def dispatch(self, bytes_max: int = 0) -> bool:
        if self.error is not None:
            raise self.error
        taken = min(bytes_max, self.written - self.dispatched)
        self.slices.append(taken)
        self.dispatched += taken
        return self.dispatched < self.written

    def flush_soon(self) -> None:
        self.asked += 1


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.reading = True
        self.aborted = False
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Rig:
    def __init__(self, *, sync_flush: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.log = Log()
        self.dispatch = LateDispatch(self.log, loop, self.caught_up)
        self.receiver = Receiver(self.log, self.dispatch, loop, sync_flush=sync_flush)
        self.transport = Transport()
        self.receiver.connection_made(self.transport)

    def caught_up(self) -> None:
        self.receiver.resume()

    def frames(self, *sizes: int) -> bytes:
        at, data = self.log.written, b""
        for size in sizes:
            data += head(at, size) + bytes(size)
            at += size
        return data


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_all_that_comes_in_one_turn_is_one_report() -> None:
    rig = Rig()
    rig.receiver.begin(0)
    data = rig.frames(100, 200, 300)
    for cut in (data[:5], data[5:150], data[150:]):
        rig.receiver.data_received(cut)
    assert rig.log.appended == [100, 200, 300]
    assert rig.transport.sent == [report(0)]
    await turn()
    assert rig.transport.sent == [report(0), report(600)]
    rig.receiver.data_received(head(600, 0))
    await turn()
    assert len(rig.transport.sent) == 2, "a sign of life is no news"


async def test_with_sync_flush_one_flush_is_asked_for_and_its_end_reported() -> None:
    rig = Rig(sync_flush=True)
    rig.receiver.begin(0)
    rig.receiver.data_received(rig.frames(100, 100))
    await turn()
    assert (rig.log.asked, rig.transport.sent) == (1, [report(0)])
    rig.log.flushed = 150
    rig.receiver.flushed()
    rig.receiver.flushed()
    assert rig.transport.sent == [report(0), report(150)]


async def test_dispatch_comes_later_and_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_receive, "DISPATCH_SECONDS", 0.001)
    rig = Rig()
    rig.receiver.begin(0)
    rig.receiver.data_received(rig.frames(2 * SLICE_BYTES, SLICE_BYTES // 2))
    await turn()
    assert rig.log.slices == []
    assert rig.transport.sent[-1] == report(rig.log.written)
    await until(lambda: rig.log.dispatched == rig.log.written)
    assert rig.log.slices == [SLICE_BYTES, SLICE_BYTES, SLICE_BYTES // 2]


async def test_a_slave_that_cannot_keep_up_reads_no_more_until_half_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    loop = asyncio.get_running_loop()
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began)
    rig.receiver.begin(0)
    while rig.log.written <= DISPATCH_BEHIND_MAX:
        rig.receiver.data_received(rig.frames(1024 * 1024))
        await turn()
    assert not rig.transport.reading
    monkeypatch.undo()  # from here on time passes, and it is dispatched
    await until(lambda: rig.transport.reading)
    assert 0 < rig.log.written - rig.log.dispatched <= DISPATCH_BEHIND_MAX // 2


async def test_silence_of_ones_own_making_is_not_the_masters() -> None:
    rig = Rig()
    rig.receiver.begin(0)
    rig.receiver.data_received(rig.frames(2 * 1024 * 1024))
    rig.log.written += DISPATCH_BEHIND_MAX
    await turn()
    assert not rig.transport.reading
    rig.dispatch.close()
    rig.receiver.heard_at -= 100
    rig.receiver.tick(5.0, 20.0)
    assert not rig.transport.aborted


async def test_time_brings_reports_and_ends_silent_connections() -> None:
    rig = Rig()
    rig.receiver.tick(0.0, 20.0)
    assert rig.transport.sent == [], "nothing is reported before the logs were compared"
    rig.receiver.begin(7)
    rig.receiver.tick(5.0, 20.0)
    assert rig.transport.sent == [report(7)]
    rig.receiver.tick(0.0, 20.0)
    # Never less than was reported before, though nothing has come yet.
    assert rig.transport.sent == [report(7), report(7)]
    rig.receiver.heard_at -= 21
    rig.receiver.tick(5.0, 20.0)
    assert rig.transport.aborted
    assert "20 s" in rig.receiver.lost.result()


async def test_a_master_that_reads_no_reports_is_given_up() -> None:
    rig = Rig()
    rig.receiver.begin(0)
    rig.transport.unsent = ha_receive.UNSENT_BYTES_MAX + 1
    rig.receiver.tick(5.0, 20.0)
    assert rig.transport.aborted


@pytest.mark.parametrize("error", [ReplicaRefused("a body that does not match its CRC"), StoreWriteError("no room")])
async def test_what_the_store_refuses_ends_the_connection_unreported(error: Exception) -> None:
    rig = Rig()
    rig.receiver.begin(0)
    rig.log.error = error
    rig.receiver.data_received(rig.frames(100))
    assert rig.transport.aborted
    assert rig.receiver.distrusted
    assert not rig.receiver.accepted
    assert str(error) in rig.receiver.lost.result()
    rig.log.error = None
    rig.receiver.data_received(rig.frames(100))
    await turn()
    assert rig.log.appended == []
    assert rig.transport.sent == [report(0)]


async def test_a_frame_for_another_position_is_not_stored() -> None:
    rig = Rig()
    rig.receiver.begin(0)
    rig.receiver.data_received(rig.frames(100) + head(99, 10) + bytes(10))
    assert rig.log.appended == [100]
    assert rig.transport.aborted


async def test_nothing_is_taken_before_the_first_report() -> None:
    rig = Rig()
    rig.receiver.data_received(rig.frames(100))
    assert rig.log.appended == []
    assert rig.transport.aborted
    rig.receiver.begin(0)
    rig.receiver.data_received(rig.frames(100))
    assert rig.log.appended == []


async def test_a_store_that_cannot_dispatch_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ha_receive, "DISPATCH_SECONDS", 0.001)
    rig = Rig()
    rig.log.error = StoreWriteError("queues cannot take records")
    rig.dispatch.soon()
    await until(lambda: rig.dispatch.failure is not None)
    rig.dispatch.soon()
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


async def test_the_own_log_gets_to_disk_or_the_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, log, told = asyncio.get_running_loop(), Log(), 0

    def count() -> None:
        nonlocal told
        told += 1

    disk = OnDisk(log, loop, count)
    await disk.all()
    assert log.asked == 0
    log.written = 100
    waiting = asyncio.create_task(disk.all())
    await turn()
    log.flushed = 50
    disk.flushed_in_thread(50)
    await turn()
    assert not waiting.done()
    log.flushed = 100
    disk.flushed_in_thread(100)
    await waiting
    assert told == 2
    log.written = 200
    monkeypatch.setattr(ha_receive, "FLUSH_SECONDS", 0.01)
    with pytest.raises(TimeoutError, match="did not get to disk"):
        await disk.all()
