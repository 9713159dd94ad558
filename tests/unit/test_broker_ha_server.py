"""ha_server.py and ha_link.py over real sockets: what slaves are sent, what counts as held, what ends whom."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from broker.master_slave.ha_link import OUTPUT_HIGH_BYTES, PUSH_BYTES_MAX
from broker.master_slave.ha_rate import RateLimit
from broker.master_slave.ha_server import SLAVES_MAX, STRANGERS_MAX
from remoting.haframes import report
from tests.parts.ha_master import FILE_BYTES, MemoryLog, connect, content, serving

LOG = content(3 * FILE_BYTES + 100)
END = len(LOG)
MIB = 1024 * 1024
# So that nobody looks at the speed while a test runs.
UNMEASURED = {"haSendHeartbeatInterval": 60_000, "haHousekeepingInterval": 60_000}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


# -- pushing


async def test_an_empty_slave_is_sent_everything_that_is_kept() -> None:
    log = MemoryLog(LOG, least=FILE_BYTES)
    async with serving(log) as master:
        slave = await connect(master, 0)
        assert await slave.take(FILE_BYTES, END) == LOG[FILE_BYTES:]
        slave.report(END)
        await master.until_acked(END)


async def test_with_syncfromlastfile_an_empty_slave_is_sent_the_last_file() -> None:
    async with serving(MemoryLog(LOG), syncFromLastFile=True) as master:
        slave = await connect(master, 0)
        assert await slave.frame() == (3 * FILE_BYTES, LOG[3 * FILE_BYTES :])


async def test_a_slave_goes_on_where_it_stands_even_within_a_record() -> None:
    async with serving(MemoryLog(LOG)) as master:
        slave = await connect(master, 777)
        await master.until_acked(777)
        assert await slave.take(777, END) == LOG[777:]


async def test_frames_keep_to_the_batch_size_and_to_one_file() -> None:
    async with serving(MemoryLog(LOG), haTransferBatchSize=300) as master:
        slave = await connect(master, 0)
        at = 0
        while at < END:
            position, piece = await slave.frame()
            assert position == at
            assert 0 < len(piece) <= 300
            assert position // FILE_BYTES == (position + len(piece) - 1) // FILE_BYTES
            assert piece == LOG[at : at + len(piece)]
            at += len(piece)


async def test_what_is_written_is_pushed_in_the_same_turn_as_one_write() -> None:
    async with serving(MemoryLog()) as master:
        slave = await connect(master, 0)
        await until(lambda: master.server.in_sync() == 1)
        for number in range(1, 4):
            master.grow(b"x" * 10)
            (status,) = master.server.status()
            assert status["sent"] == 10 * number
        assert await slave.take(0, 30) == b"x" * 30


async def test_what_is_not_in_memory_is_read_by_a_thread() -> None:
    log = MemoryLog(LOG)
    log.cold = 2 * FILE_BYTES
    async with serving(log) as master:
        slave = await connect(master, 0)
        assert await slave.take(0, END) == LOG
        assert log.cold_reads == 2
        master.grow(b"more")
        assert await slave.take(END, END + 4) == b"more"


async def test_a_disk_that_fails_costs_the_slave_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(LOG)
    log.cold, log.broken = END, True
    async with serving(log) as master:
        slave = await connect(master, 5)
        assert await slave.ended()
        await until(lambda: master.server.in_sync() == 0)
    assert "cannot be sent the log at 5: OSError: the disk fails" in caplog.text


async def test_a_slave_that_retention_overtakes_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(LOG)
    async with serving(log) as master:
        slave = await connect(master, 0)
        await slave.take(0, END)
        master.server.stop_pushing()
        master.grow(content(2 * FILE_BYTES))
        log.least = 4 * FILE_BYTES
        master.server.resume()
        assert await slave.ended()
    assert f"needs the log from {END} on, of which only what stands behind {4 * FILE_BYTES} is kept" in caplog.text


async def test_a_slave_that_does_not_read_costs_little_and_holds_nobody_up() -> None:
    log = MemoryLog(content(16 * MIB), file_bytes=4 * MIB)
    async with serving(log) as master:
        stuck = await connect(master, 0)
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined] # asyncio's own transports have it
        await until(lambda: bool(master.server.status()))
        reading = await connect(master, 0)
        assert await reading.take(0, 16 * MIB) == log.data
        reading.report(16 * MIB)
        await master.until_acked(16 * MIB)
        link = master.server._slaves[0]
        assert link.sent < 16 * MIB
        assert 0 < link._transport.get_write_buffer_size() < OUTPUT_HIGH_BYTES + PUSH_BYTES_MAX
        stuck.writer.transport.resume_reading()  # type: ignore[attr-defined] # see above
        assert await stuck.take(0, 16 * MIB) == log.data


async def test_stopped_pushing_sends_signs_of_life_only() -> None:
    async with serving(MemoryLog(LOG), haSendHeartbeatInterval=40) as master:
        slave = await connect(master, END)
        await until(lambda: master.server.in_sync() == 1)
        master.server.stop_pushing()
        late = await connect(master, 0)
        master.grow(b"more")
        assert await slave.frame() == (END, b"")
        assert await late.frame() == (0, b"")
        master.server.resume()
        assert await slave.take(END, END + 4) == b"more"
        assert await late.take(0, END + 4) == LOG + b"more"


async def test_a_send_rate_limit_lets_everything_through_in_time() -> None:
    async with serving(MemoryLog(LOG), haFlowControlEnable=True, maxHaTransferByteInSecond=20_000) as master:
        begun = master.server.loop.time()
        slave = await connect(master, 0)
        assert await slave.take(0, END) == LOG
        assert master.server.loop.time() - begun > (END - 2000) / 20_000 / 2


def test_the_rate_limit_counts() -> None:
    limit = RateLimit(10.0)
    assert limit.allowed(1000, 50, 10.0) == (0, 0.05)
    assert limit.allowed(1000, 50, 10.0625) == (62, 0.0)
    limit.spent(62)
    assert limit.allowed(1000, 50, 20.0) == (100, 0.0)  # a burst is a tenth of a second
    limit.spent(200)  # a piece may be longer than what was allowed
    count, seconds = limit.allowed(1000, 5000, 20.0)
    assert (count, seconds) == (0, 0.2)  # never less than a frame, but a burst will do


# -- what counts as held


async def test_half_reports_wait_for_their_other_half() -> None:
    async with serving(MemoryLog(LOG)) as master:
        slave = await connect(master)
        for byte in report(END)[:-1]:
            slave.writer.write(bytes([byte]))
            await slave.writer.drain()
            await asyncio.sleep(0)
        assert master.server.in_sync() == 0
        slave.writer.write(report(END)[-1:])
        await master.until_acked(END)
        assert master.acks == 1


async def test_the_position_that_enough_slaves_hold() -> None:
    async with serving(MemoryLog(LOG)) as master:
        server = master.server
        assert (server.in_sync(), server.acked_by(0), server.acked_by(1)) == (0, END, 0)
        first = await connect(master, 2000)
        await connect(master, 3000)
        await until(lambda: server.in_sync() == 2)
        server._slaves[0].host = "another"
        server._slaves[0].doubted_at = server._slaves[1].doubted_at = None
        assert (server.acked_by(1), server.acked_by(2), server.acked_by(3)) == (3000, 2000, 0)
        acks = master.acks
        await first.close()
        await until(lambda: server.in_sync() == 1)
        assert (server.acked_by(1), server.acked_by(2)) == (3000, 0)
        assert master.acks == acks + 1


async def test_a_slave_too_far_behind_is_not_in_sync() -> None:
    async with serving(MemoryLog(LOG), haMaxGapNotInSync=100) as master:
        slave = await connect(master, END - 101)
        await until(lambda: bool(master.server.status()))
        assert (master.server.in_sync(), master.server.acked_by(1)) == (0, 0)
        slave.report(END - 100)
        await master.until_acked(END - 100)
        assert master.server.in_sync() == 1


async def test_the_dead_end_of_a_slave_that_came_again_is_no_second_slave() -> None:
    async with serving(MemoryLog(LOG)) as master:
        dead, again = await connect(master, 1000), None
        await dead.take(1000, END)
        again = await connect(master, 1000)
        await again.take(1000, END)
        # Both hold 1000, as far as they say, but it may be one slave.
        assert (master.server.in_sync(), master.server.acked_by(1), master.server.acked_by(2)) == (2, 1000, 0)
        dead.report(END)
        again.report(END)
        await master.until_acked(END)
        assert master.server.acked_by(2) == 0
        # A slave of its own holds what was written since.
        master.grow(b"more")
        dead.report(END + 4)
        again.report(END + 4)
        await master.until_acked(END + 4, slaves=2)


async def test_the_status_tells_of_each_slave() -> None:
    async with serving(MemoryLog(LOG), haMaxGapNotInSync=1000, **UNMEASURED) as master:
        slave = await connect(master, END - 5)
        await slave.take(END - 5, END)
        host, port = slave.writer.get_extra_info("sockname")
        assert master.server.status() == [
            {
                "address": f"{host}:{port}",
                "sent": END,
                "acked": END - 5,
                "behind": 5,
                "bytesPerSecond": 0,
                "inSync": True,
            }
        ]


async def test_the_speed_is_measured() -> None:
    async with serving(MemoryLog(LOG), haSendHeartbeatInterval=40) as master:
        slave = await connect(master, 0)
        await slave.take(0, END)
        await until(lambda: master.server.status()[0]["bytesPerSecond"] > 0)
        assert master.server.status()[0]["bytesPerSecond"] <= END


# -- garbage


@pytest.mark.parametrize("offset", [-1, -(2**63), END + 1, 2**63 - 1, FILE_BYTES - 1, 1])
async def test_a_first_report_that_cannot_be_true_moves_nothing(offset: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryLog(LOG, least=FILE_BYTES)) as master:
        await connect(master, END)
        await master.until_acked(END)
        liar = await connect(master, offset)
        assert await liar.ended()
        assert [link["acked"] for link in master.server.status()] == [END]
        assert master.acks == 1
        address = "{}:{}".format(*liar.writer.get_extra_info("sockname"))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert address in warning
    assert f"reported {offset} at first" in warning


@pytest.mark.parametrize("offset", [-1, 1499, END + 1, 2**63 - 1])
async def test_a_later_report_that_cannot_be_true_ends_the_slave(offset: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryLog(LOG)) as master:
        slave = await connect(master, 1000)
        await slave.take(1000, END)
        slave.report(1500)
        await master.until_acked(1500)
        # What stands behind a lie is not even looked at.
        slave.writer.write(report(offset) + report(END))
        assert await slave.ended()
        await until(lambda: not master.server.status())
        assert (master.server.acked_by(1), master.server.in_sync()) == (0, 0)
    assert f"reported {offset}, but had reported 1500 and was sent 1000 to {END}" in caplog.text


async def test_an_empty_slave_cannot_have_what_it_was_not_sent() -> None:
    async with serving(MemoryLog(LOG, least=FILE_BYTES)) as master:
        slave = await connect(master, 0)
        await slave.take(FILE_BYTES, END)
        slave.report(0)
        slave.report(FILE_BYTES - 1)
        assert await slave.ended()


async def test_a_host_complains_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryLog(LOG)) as master:
        for _ in range(3):
            assert await (await connect(master, END + 1)).ended()
        host, (at, more) = next(iter(master.server._complaints.items()))
        assert more == 2
        master.server._complaints[host] = (at - 60, more)
        assert await (await connect(master, END + 1)).ended()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 2
    assert warnings[1].endswith("(2 more were closed like it)")


# -- limits and life


async def test_signs_of_life_tell_what_was_sent() -> None:
    async with serving(MemoryLog(LOG), haSendHeartbeatInterval=20) as master:
        slave = await connect(master, 0)
        await slave.take(0, END)
        assert [await slave.frame() for _ in range(3)] == [(END, b"")] * 3


@pytest.mark.parametrize("offset", [None, END])
async def test_who_is_silent_is_dropped(offset: int | None, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryLog(LOG), haHousekeepingInterval=50) as master:
        slave = await connect(master, offset)
        assert await slave.ended()
        await until(lambda: not master.server.status())
    assert "was silent for " in caplog.text


async def test_no_more_slaves_than_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryLog(LOG)) as master:
        slaves = [await connect(master, END) for _ in range(SLAVES_MAX)]
        await until(lambda: master.server.in_sync() == SLAVES_MAX)
        late = await connect(master, END)
        assert await late.ended()
        assert master.server.in_sync() == SLAVES_MAX
        await slaves.pop().close()
        await until(lambda: master.server.in_sync() == SLAVES_MAX - 1)
        slaves.append(await connect(master, END))
        await until(lambda: master.server.in_sync() == SLAVES_MAX)
    assert "is one too many: 16 slaves are served" in caplog.text


async def test_strangers_do_not_keep_slaves_out(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryLog(LOG)) as master:
        strangers = [await connect(master) for _ in range(STRANGERS_MAX + 1)]
        assert await strangers[0].ended()
        await connect(master, END)
        await master.until_acked(END)
    assert "had not reported" in caplog.text


async def test_closing_sends_what_was_written_and_ends_everybody() -> None:
    async with serving(MemoryLog()) as master:
        slave, stranger = await connect(master, 0), await connect(master)
        await until(lambda: master.server.in_sync() == 1)
        master.grow(b"last words")
        await master.server.close()
        assert await slave.take(0, 10) == b"last words"
        assert await slave.ended()
        assert await stranger.ended()
        with pytest.raises(ConnectionError):
            await connect(master)


async def test_a_link_that_breaks_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(MemoryLog(LOG)) as master:
        broken, good = await connect(master, END), await connect(master, END)
        await until(lambda: master.server.in_sync() == 2)

        def push() -> None:
            raise RuntimeError("strange")

        monkeypatch.setattr(master.server._slaves[0], "push", push)
        master.grow(b"more")
        assert await good.take(END, END + 4) == b"more"
        assert await broken.ended()
        await until(lambda: master.server.in_sync() == 1)
    assert "cannot be sent the log" in caplog.text


@pytest.mark.parametrize(
    "scenario",
    [
        test_frames_keep_to_the_batch_size_and_to_one_file,
        test_what_is_not_in_memory_is_read_by_a_thread,
        test_a_slave_that_does_not_read_costs_little_and_holds_nobody_up,
        test_stopped_pushing_sends_signs_of_life_only,
        test_the_position_that_enough_slaves_hold,
        test_closing_sends_what_was_written_and_ends_everybody,
    ],
)
def test_all_this_holds_on_uvloop_as_well(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    uvloop.run(scenario(), debug=True)
