"""A slave behind its master: what it takes and reports, masters that come and go, and such as are none."""

import asyncio
import logging
from pathlib import Path

import pytest
import uvloop

from broker.master_slave import ha_client
from broker.master_slave.ha_client import HaClient, State
from broker.master_slave.ha_compare import VerdictKind
from broker.master_slave.ha_receive import Receiver
from broker.settings.pair_keys import ASYNC_MASTER
from remoting.codes import ClassicCode
from remoting.haframes import head
from tests.parts.ha_site import BROKER, followed, free_port, pair, same_bytes, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make attempts follow one another quickly."""
    monkeypatch.setattr(ha_client, "BACKOFF_FIRST_SECONDS", 0.005)
    monkeypatch.setattr(ha_client, "BACKOFF_MAX_SECONDS", 0.02)


# -- following


async def test_an_empty_slave_copies_everything_and_then_what_comes(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        assert slave.client.state is State.FOLLOWING
        for number in range(5):
            master.send(20, 1000 + 20 * number)
            end = master.store.written
            await until(lambda end=end: master.ha.acked_by(1) == end)  # type: ignore[misc] # a default of a lambda
        await same_bytes(master, slave)


async def test_status_tells_where_it_stands(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        status = slave.client.status()
        assert (status["state"], status["address"], status["max"]) == ("no master known", None, None)
        assert not slave.client.master_alive
        slave.follow()
        await slave.caught_up()
        end = master.store.written
        await until(lambda: slave.client.status()["behind"] == 0)
        status = slave.client.status()
        assert (status["state"], status["address"], status["haAddress"]) == ("following", BROKER, master.address)
        assert (status["role"], status["max"], status["reported"]) == (ASYNC_MASTER, end, end)
        assert status["lastFrameAt"] > 1_600_000_000_000
        assert status["seenAt"] > 1_600_000_000_000
        assert status["alive"]
        assert status["waitsFor"] is None


async def test_with_sync_flush_only_what_is_on_disk_is_reported(tmp_path: Path) -> None:
    async with pair(tmp_path, sync_flush=True) as (master, slave):
        slave.follow()
        await slave.caught_up()
        assert master.ha.acked_by(1) == 0
        assert slave.store.step_flush()
        await until(lambda: master.ha.acked_by(1) == master.store.written)
        # Nor does the first report of the next connection say more.
        await master.ha.close()
        await until(lambda: slave.client.state is not State.FOLLOWING)
        assert slave.store.log_range()[1] == slave.store.flushed


async def test_with_sync_flush_the_own_log_is_on_disk_before_its_end_is_reported(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        await slave.client.close()
        slave.client = HaClient(
            slave.store,
            lambda: slave.values,
            master,
            asyncio.get_running_loop(),
            slave.threads,
            sync_flush=True,
            events=slave,
            root=slave.config.root,
        )
        await slave.client.start()
        await until(lambda: master.ha.status() == [])
        slave.follow()
        await slave.state(State.COMPARING)
        await until(lambda: len(slave.verdicts) == 2)
        await asyncio.sleep(0.01)
        assert slave.store.flushed < slave.written
        assert master.ha.status() == []
        assert slave.store.step_flush()
        await until(lambda: master.ha.acked_by(1) == slave.written)


async def test_signs_of_life_keep_an_idle_connection(tmp_path: Path) -> None:
    # Silence that is long enough for a machine that lets nobody run for a while; or for a longer one, another try.
    async with followed(tmp_path, haHousekeepingInterval=1200) as (master, slave):
        for _ in range(5):
            known = len(slave.verdicts)
            await asyncio.sleep(2.5 * slave.values.haHousekeepingInterval / 1000)
            if slave.client.state is State.FOLLOWING and len(slave.verdicts) == known and master.ha.in_sync() == 1:
                return
    raise AssertionError("each time it was lost")


async def test_after_a_lost_connection_the_same_master_is_followed_without_comparing(tmp_path: Path) -> None:
    async with followed(tmp_path, haHousekeepingInterval=60_000, haSendHeartbeatInterval=20_000) as (master, slave):
        for link in list(master.ha._links):
            link.abort()
        await until(lambda: len(slave.verdicts) == 2)
        master.send(10, 2000)
        await slave.caught_up()
        assert ClassicCode.DIGEST not in master.asked
        assert slave.verdicts[-1].kind is VerdictKind.GO_ON


async def test_a_master_that_was_started_again_is_compared_with(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        await master.restart()
        master.send(10, 2000)
        await slave.caught_up()
        assert ClassicCode.DIGEST in master.asked
        await same_bytes(master, slave)


async def test_a_slave_that_was_started_again_goes_on_where_it_was(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        await slave.stop()
        master.send(50, 3000)
        await slave.start()
        slave.follow()
        await slave.caught_up()
        assert slave.verdicts[-1].position > 0
        await same_bytes(master, slave)


# -- masters that come, go and change


async def test_a_master_that_goes_and_comes_back_is_told(tmp_path: Path) -> None:
    async with followed(tmp_path, haHousekeepingInterval=60_000) as (master, slave):
        assert slave.alive == [True]
        await master.stop()
        # Long before haHousekeepingInterval: nobody listens there any more.
        await until(lambda: slave.alive == [True, False])
        assert not slave.client.master_alive
        await master.start()
        await until(lambda: slave.alive == [True, False, True])


async def test_a_master_whose_ha_port_alone_is_closed_lives(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        await master.ha.close()
        slave.follow()
        await until(lambda: slave.alive == [True])
        await until(lambda: "no connection" in slave.client.status()["why"])
        assert slave.client.master_alive


async def test_behind_a_proxy_a_master_that_is_gone_does_not_live_again_with_each_connection(tmp_path: Path) -> None:
    taken: list[asyncio.StreamWriter] = []
    async with followed(tmp_path, haHousekeepingInterval=60_000) as (master, slave):
        await master.stop()

        # In the place of a proxy that has nobody behind it: it takes a connection, holds it for a moment, and ends it.
        async def proxy(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.append(writer)
            await asyncio.sleep(0.01)
            writer.close()

        async with await asyncio.start_server(proxy, "127.0.0.1", master.port):
            await until(lambda: slave.alive == [True, False])
            attempts = len(taken) + 5
            while len(taken) < attempts:
                assert (slave.client.master_alive, slave.client.state) == (False, State.CONNECTING)
                await asyncio.sleep(0)
        assert slave.alive == [True, False]
        for writer in taken:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in taken), return_exceptions=True)


async def test_a_master_without_an_ha_port_is_asked_for_by_name(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_master, slave):
        slave.client.set_master(BROKER, "")
        await until(lambda: "haListenPort" in slave.client.status()["why"])


async def test_another_master_is_followed_at_once_and_an_unknown_one_changes_nothing(tmp_path: Path) -> None:
    async with followed(tmp_path, haHousekeepingInterval=60_000, haSendHeartbeatInterval=20_000) as (master, slave):
        slave.client.set_master(None, None)
        assert slave.client.state is State.FOLLOWING
        slave.client.set_master(BROKER, f"localhost:{master.port}")
        await until(lambda: len(slave.verdicts) == 2)
        await slave.state(State.FOLLOWING)
        assert slave.client.status()["haAddress"] == f"localhost:{master.port}"


async def test_a_master_that_was_replaced_while_it_was_connected_to_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (master, slave):
        client = slave.client
        connect, connected, go_on = client._connect, asyncio.Event(), asyncio.Event()

        async def slow(address: str, ha_address: str) -> Receiver:
            link = await connect(address, ha_address)
            connected.set()
            await go_on.wait()
            return link

        monkeypatch.setattr(client, "_connect", slow)
        client.set_master("10.0.0.2:10911", master.address)
        await connected.wait()
        slave.follow()
        go_on.set()
        await slave.caught_up()
        assert len(slave.verdicts) == 1
        # The double fails when another address than BROKER is asked.
        assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_it_works_in_the_loop_that_brokers_run_in(tmp_path: Path) -> None:
    async def body() -> None:
        async with followed(tmp_path) as (master, slave):
            await master.restart()
            master.send(30, 9000)
            await same_bytes(master, slave)

    uvloop.run(body())


async def test_haMasterAddress_overrides_what_the_registration_says(tmp_path: Path) -> None:
    async with pair(tmp_path, haMasterAddress=f"127.0.0.1:{free_port()}") as (_master, slave):
        slave.follow()
        assert slave.client.status()["haAddress"] == slave.values.haMasterAddress
        await until(lambda: slave.values.haMasterAddress in slave.client.status()["why"])
        assert slave.written == 0


async def test_why_it_does_not_follow_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(tmp_path) as (master, slave):
        await master.stop()
        slave.follow()
        await until(lambda: len(master.asked) >= 5)
        assert caplog.text.count("no connection") == 1


# -- bad masters


class Impostor:
    """An HA port that sends what it is told to, whatever is reported."""

    def __init__(self, *, first: bytes = b"", then: bytes = b"") -> None:
        self.first, self.then = first, then
        self.port = 0
        self.connections = 0
        self.reports = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(self.first)
        while data := await reader.read(8):
            self.reports += len(data) // 8
            writer.write(self.then)
            self.then = b""
        writer.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (head(64, 10) + bytes(10), "what was sent"),
        (head(0, 200) + bytes(200), "no log"),
        (head(-1, 10), "a frame of 10 bytes"),
        (head(0, -1), "a frame of -1 bytes"),
        (head(0, 1 << 30), "a frame of 1073741824 bytes"),
    ],
)
async def test_frames_that_cannot_be_cost_the_connection_and_store_nothing(
    tmp_path: Path, content: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (master, slave):
        master.tells_slaves = False
        bad = Impostor(then=content)
        await bad.start()
        slave.client.set_master(BROKER, f"127.0.0.1:{bad.port}")
        await until(lambda: bad.connections >= 2)
        assert words in caplog.text
        assert slave.written == 0
        slave.follow()
        await slave.caught_up()
        await bad.close()
        await same_bytes(master, slave)


async def test_who_speaks_before_the_first_report_is_no_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        master.tells_slaves = False
        bad = Impostor(first=head(0, 0))
        await bad.start()
        slave.client.set_master(BROKER, f"127.0.0.1:{bad.port}")
        await until(lambda: bad.connections >= 2)
        assert bad.reports == 0
        await slave.client.close()
        await bad.close()


async def test_a_silent_master_is_given_up(tmp_path: Path) -> None:
    # Time for many reports, some of which a busy machine leaves out.
    async with pair(tmp_path, haHousekeepingInterval=1200) as (master, slave):
        master.tells_slaves = False
        bad = Impostor()
        await bad.start()
        slave.client.set_master(BROKER, f"127.0.0.1:{bad.port}")
        await until(lambda: bad.connections >= 2)
        assert bad.reports >= 3
        await slave.client.close()
        await bad.close()


async def test_a_sign_of_life_at_another_position_ends_the_connection(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        master.tells_slaves = False
        bad = Impostor(then=head(slave.written + 1, 0))
        await bad.start()
        slave.client.set_master(BROKER, f"127.0.0.1:{bad.port}")
        await until(lambda: bad.connections >= 2)
        await slave.client.close()
        await bad.close()
