"""ha_secret.py: master and slave prove to one another at the HA port that they know the secret of haSecretFile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.master_slave import ha_client
from broker.master_slave.ha_client import State
from broker.master_slave.ha_secret import MAGIC, MasterProof, ProofRefused, SlaveProof
from remoting.haframes import report
from tests.parts.ha_site import Master, Slave, free_port, pair, same_bytes, until

OLD, NEW, WRONG = b"the secret of before", b"the secret of today", b"another one's secret"
M, S = b"m" * 32, b"s" * 32


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make attempts follow one another quickly."""
    monkeypatch.setattr(ha_client, "BACKOFF_FIRST_SECONDS", 0.005)
    monkeypatch.setattr(ha_client, "BACKOFF_MAX_SECONDS", 0.02)


@pytest.mark.parametrize("piece", [1, 7, 40, 64, 1000])
@pytest.mark.parametrize(
    ("masters", "slaves"), [((NEW,), (NEW,)), ((NEW, OLD), (OLD, NEW)), ((OLD, NEW), (NEW, OLD)), ((OLD,), (NEW, OLD))]
)
def test_both_sides_prove_themselves_however_it_comes_in_pieces(
    piece: int, masters: tuple[bytes, ...], slaves: tuple[bytes, ...]
) -> None:
    master, slave = MasterProof(masters, M), SlaveProof(slaves, S)
    to_master, behind = slave.open(), b""
    while to_master:
        to_slave = b""
        for at in range(0, len(to_master), piece):
            answer, rest = master.take(to_master[at : at + piece])
            to_slave, behind = to_slave + answer, behind + rest
        to_master = b"".join(slave.take(to_slave[at : at + piece]) for at in range(0, len(to_slave), piece))
        if to_master:
            # It need not wait with its first report.
            to_master += report(4096)[: piece - 1] if piece > 32 else b""
    assert (master.done, slave.done) == (True, True)
    assert behind == (report(4096) if piece > 32 else b"")


def test_nobody_passes_without_the_secret_or_with_what_was_said_before() -> None:
    master, slave = MasterProof((NEW,), M), SlaveProof((NEW,), S)
    answer, _ = master.take(slave.open())
    proof = slave.take(answer)
    # A slave's proof, on another connection: the master's nonce is another one.
    with pytest.raises(ProofRefused, match="does not know the secret"):
        MasterProof((NEW,), bytes(32)).take(slave.open() + proof)
    # A master's answer, to another slave; and a slave's proof in its place.
    with pytest.raises(ProofRefused, match="the master does not know the secret"):
        SlaveProof((NEW,), bytes(32)).take(answer)
    with pytest.raises(ProofRefused, match="the master does not know the secret"):
        SlaveProof((NEW,), S).take(M + proof)
    with pytest.raises(ProofRefused, match="the master does not know the secret"):
        SlaveProof((WRONG, OLD), S).take(answer)
    with pytest.raises(ProofRefused, match="more than a proof"):
        SlaveProof((NEW,), S).take(answer + b"x")
    with pytest.raises(ProofRefused, match="does not know the secret"):
        MasterProof((NEW,), M).take(slave.open() + bytes(32))
    # RocketMQ's slave, which reports at once; also when its report comes byte by byte.
    for begin in (report(0), report(1 << 40), b"\0", MAGIC[:-1] + b"\2"):
        with pytest.raises(ProofRefused, match="as RocketMQ's slaves cannot"):
            MasterProof((NEW,), M).take(begin)


@asynccontextmanager
async def with_secrets(
    folder: Path, masters: tuple[bytes, ...], slaves: tuple[bytes, ...]
) -> AsyncIterator[tuple[Master, Slave]]:
    """A pair whose sides know these."""
    async with pair(folder) as (master, slave):
        master.secrets, slave.secrets = masters, slaves
        await master.restart()
        await slave.stop()
        await slave.start()
        yield master, slave


@pytest.mark.parametrize(("masters", "slaves"), [((NEW,), (NEW,)), ((NEW, OLD), (OLD, NEW)), ((OLD,), (NEW, OLD))])
async def test_a_slave_with_the_secret_follows(
    tmp_path: Path, masters: tuple[bytes, ...], slaves: tuple[bytes, ...]
) -> None:
    async with with_secrets(tmp_path, masters, slaves) as (master, slave):
        slave.follow()
        await slave.caught_up()
        master.send(20, 1000)
        await until(lambda: master.ha.acked_by(1) == master.store.written)
        await same_bytes(master, slave)


@pytest.mark.parametrize(
    ("masters", "slaves", "masters_words", "slaves_words"),
    [
        ((NEW,), (), "does not prove that it knows the secret of haSecretFile", "connection"),
        ((), (NEW,), "wants proof of the secret of haSecretFile, and this master has none", "is it there as well?"),
        ((NEW,), (WRONG,), "", "the master does not know the secret of haSecretFile"),
    ],
)
async def test_without_the_same_secret_nobody_follows_and_nothing_counts(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    masters: tuple[bytes, ...],
    slaves: tuple[bytes, ...],
    masters_words: str,
    slaves_words: str,
) -> None:
    caplog.set_level("INFO", "audit")
    async with with_secrets(tmp_path, masters, slaves) as (master, slave):
        slave.follow()
        await until(lambda: slaves_words in slave.client.status()["why"])
        await until(lambda: masters_words in caplog.text)
        told = [record.getMessage() for record in caplog.records if record.name == "audit"]
        # In the third case it is the slave who goes.
        assert len(told) == bool(masters_words)
        assert all(f"127.0.0.1 asked for HA connection: refused (it {masters_words}" in line for line in told)
        assert slave.client.state is not State.FOLLOWING
        assert (master.ha.in_sync(), master.ha.status(), slave.written) == (0, [], 0)
        counted = {reason for reason, count in master.ha.refused.items() if count}
        assert counted == ({"proof"} if masters_words else set())


async def test_a_master_that_proves_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_client, "CONNECT_SECONDS", 0.05)
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(100):
                pass
        except ConnectionError:
            pass
        finally:
            closed.set()
            writer.close()

    async with with_secrets(tmp_path, (NEW,), (NEW,)) as (master, slave):
        await master.ha.close()
        master.port = free_port()
        async with await asyncio.start_server(silent, "127.0.0.1", master.port):
            slave.follow()
            await until(lambda: "none within 0.05 s" in slave.client.status()["why"])
            # Nor is its connection kept.
            async with asyncio.timeout(20):
                await closed.wait()
