"""ha_link.py with a real log and sends that wait: what is pushed are the log's own bytes, uncopied."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop

from broker.master_slave.ha_server import HaServer
from broker.master_slave.sync_replication import SyncReplication
from broker.settings.pair_keys import ClassicKeys
from runtime.late import late
from store.messagestore import MessageStore
from tests.parts import store_tools
from tests.parts.ha_master import Slave
from tests.parts.replication_parts import Answers, answered, turn
from tests.parts.told import Told


class Master:
    """A master of real parts."""

    def __init__(self, folder: Path, threads: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        told = Told()
        self.store = MessageStore.open(store_tools.make_config(folder), store_host=store_tools.HOST, events=told.events)
        self.keys = ClassicKeys(brokerRole="SYNC_MASTER", inSyncReplicas=2)
        self.server = HaServer(self.store, lambda: self.keys, loop, threads, late(lambda: self.replication.advance))
        self.replication: SyncReplication = SyncReplication(
            self.store,
            loop,
            self.server,
            lambda: self.keys,
            sync_flush=True,
            flush_timeout=5.0,
            pending_bytes_max=64 * 1024 * 1024,
            on_written=self.server.advanced,
        )
        told.flushed = self.replication.flushed_in_thread

    async def slave(self) -> Slave:
        slave = Slave(*await asyncio.open_connection("127.0.0.1", self.server.port))
        slave.report(0)
        async with asyncio.timeout(20):
            while not self.server.in_sync():
                await asyncio.sleep(0.001)
        return slave


async def slave_gets_the_logs_own_bytes_and_its_report_answers_the_sends(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        master = Master(tmp_path, threads)
        await master.server.start("127.0.0.1", 0)
        slave = await master.slave()
        answers, log = Answers(), b""
        for number in range(1, 41):
            # Enough for several files.
            for _ in range(8):
                master.replication.append(store_tools.record(bytes(500)), answers)
            await turn()
            log += await slave.take(len(log), master.store.written)
            assert len(answers.codes) == 8 * (number - 1)
            slave.report(len(log))
            await answered(answers, 8 * number)
        assert set(answers.codes) == {0}
        assert len(log) > 2 * store_tools.FILE_BYTES
        assert master.replication.acknowledged_by_slaves == master.store.written
        await slave.close()
        await master.server.close()
        master.store.close()
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    assert b"".join([file.read_bytes() for file in files])[: len(log)] == log


async def what_a_slave_has_not_read_yet_stays_valid_when_its_file_is_removed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        master = Master(tmp_path, threads)
        await master.server.start("127.0.0.1", 0)
        slave = await master.slave()
        slave.writer.transport.pause_reading()  # type: ignore[attr-defined] # asyncio's own transports have it
        link = master.server._slaves[0]
        number = 0
        while not link._transport.get_write_buffer_size():
            for _ in range(60):
                number += 1
                master.replication.append(store_tools.record(number.to_bytes(4, "big") * 250), Answers())
            await turn()
        master.server.stop_pushing()
        sent = link.sent
        files = sorted((tmp_path / "store" / "commitlog").iterdir())
        expected = b"".join([file.read_bytes() for file in files])[:sent]
        assert await master.replication.drain(0.01) is False
        master.store.close()
        for file in files:
            file.unlink()
        slave.writer.transport.resume_reading()  # type: ignore[attr-defined] # see above
        assert await slave.take(0, sent) == expected
        await slave.close()
        await master.server.close()


REAL = (
    slave_gets_the_logs_own_bytes_and_its_report_answers_the_sends,
    # On uvloop the transport keeps views of the mapped files until they are sent.
    what_a_slave_has_not_read_yet_stays_valid_when_its_file_is_removed,
)


@pytest.mark.parametrize("scenario", REAL)
async def test_with_a_real_log(scenario: Callable[[Path], Coroutine[None, None, None]], tmp_path: Path) -> None:
    await scenario(tmp_path)


@pytest.mark.parametrize("scenario", REAL)
def test_with_a_real_log_on_uvloop(scenario: Callable[[Path], Coroutine[None, None, None]], tmp_path: Path) -> None:
    uvloop.run(scenario(tmp_path), debug=True)
