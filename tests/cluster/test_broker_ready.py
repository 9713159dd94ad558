"""READY says what it means of a slave, and what two brokers must not have in common is told by each of them (R15)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess, broker_process, classic_processes, free_ports, namesrv_process
from client.message import Message
from client.produce.producer import Producer
from tests.cluster.classic_pair import SETTINGS, status, until

ASYNC = "ASYNC_MASTER"
QUICK = {**SETTINGS, "registerNameServerPeriod": 10_000}


class Site:
    """A NameServer, a master and whoever else is started; all end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namesrv = namesrv_process(folder / "namesrv")
        self.master, self.slave = classic_processes(folder, 1, role=ASYNC, namesrv=self.namesrv.address, settings=QUICK)
        self.processes: list[ServerProcess] = [self.namesrv, self.master, self.slave]

    def another(self, name: str, **settings: object) -> ServerProcess:
        (ha_port,) = free_ports(1)
        made = broker_process(
            self.folder / name,
            namesrv=self.namesrv.address,
            name=name,
            settings={**QUICK, "haListenPort": ha_port, **settings},
        )
        self.processes.append(made)
        return made

    def lead_slave_to(self, address: str) -> None:
        config = self.folder / "slave1" / "broker.conf"
        lines = [line for line in config.read_text().splitlines() if not line.startswith("haMasterAddress=")]
        config.write_text("\n".join([*lines, *([f"haMasterAddress={address}"] if address else [])]) + "\n")

    async def restart_slave(self) -> None:
        if self.slave.running:
            assert await asyncio.to_thread(self.slave.stop) == 0
        self.slave.launch()
        await until(lambda: status(self.slave) is not None, "the slave does not answer")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.namesrv.start()
    yield made
    for process in reversed(made.processes):
        process.kill()


def why(process: ServerProcess) -> str:
    return str((process.state("/v1/status") or {}).get("reason"))


@pytest.mark.timeout(90)
async def test_a_slave_is_ready_only_while_its_masters_log_comes_or_the_master_is_away(site: Site) -> None:
    # Nobody is there yet: it has nothing to serve.
    await site.restart_slave()
    await until(lambda: "never had a master's log" in why(site.slave), "it does not say that it has nothing")
    assert not site.slave.ready()
    await asyncio.to_thread(site.master.start)
    await until(site.slave.ready, "it is not ready behind its master")
    async with Producer("P", site.namesrv.address) as producer:
        await producer.send(Message("T", b"one"))
    held = 0

    def equal() -> bool:
        nonlocal held
        slave, master = status(site.slave), status(site.master)
        held = slave["max"] if slave else 0
        return slave is not None and master is not None and held == master["max"]

    await until(equal, "it lacks a message")
    other = site.another("other", brokerName="broker-b", brokerRole=ASYNC, brokerId=0)
    await asyncio.to_thread(other.start)
    (closed,) = free_ports(1)
    ha_of_other = str((status(other) or {})["haAddress"])
    # A port where nobody listens, its own, that of another pair's master: the slave had the log before, and yet.
    for address in (f"127.0.0.1:{closed}", site.slave.address, ha_of_other):
        site.lead_slave_to(address)
        await site.restart_slave()
        await until(lambda: why(site.slave).startswith("slave, "), "it does not say why it is not ready")
        # However often it tries.
        for _ in range(20):
            assert not site.slave.ready(), address
            await asyncio.sleep(0.1)
        assert (status(site.slave) or {})["max"] == held, f"what {address} has got in"
    site.lead_slave_to("")
    await site.restart_slave()
    await until(site.slave.ready, "it is not ready behind its master again")
    # The master is away: what the slave has is the best that there is, in this life and in the next.
    site.master.kill()
    await until(lambda: not (status(site.slave) or {"master": {"alive": True}})["master"]["alive"], "it still lives")
    await until(site.slave.ready, "it serves nobody while its master is away")
    await site.restart_slave()
    await until(site.slave.ready, "it serves nobody when it starts while its master is away")


@pytest.mark.timeout(60)
async def test_two_slaves_with_one_id_and_two_masters_with_one_name_say_so(site: Site) -> None:
    await asyncio.to_thread(site.master.start)
    site.slave.launch()
    twin = site.another("twin", brokerRole="SLAVE", brokerId=1)
    twin.launch()

    def warned(process: ServerProcess, words: str) -> bool:
        return any(words in each for each in (status(process) or {}).get("warnings", []))

    await until(lambda: warned(site.master, "slaves with one brokerId, 1"), "the master does not say so")
    await until(lambda: warned(site.slave, twin.address), "the slave does not name its twin")
    await until(lambda: warned(twin, site.slave.address), "the twin does not name the slave")
    second = site.another("second", brokerRole=ASYNC, brokerId=0)
    second.launch()
    await until(
        lambda: warned(second, site.master.address) or warned(site.master, second.address),
        "neither master tells of the other",
    )
