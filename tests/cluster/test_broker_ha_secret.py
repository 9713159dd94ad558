"""Master and slaves with haSecretFile: real processes; a stranger at the HA port is nobody's slave."""

import asyncio
from pathlib import Path

import pytest

from chaos.host.processes import ProcessEnded, broker_process
from remoting.address import parse_address
from remoting.haframes import report
from tests.cluster.test_broker_promotion import Site, loaded, sites, state, until

__all__ = ["sites"]


def secret(folder: Path, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    path.chmod(mode)
    return path


@pytest.mark.timeout(90)
async def test_who_knows_the_secret_follows_and_a_stranger_counts_for_nothing(
    tmp_path: Path, sites: list[Site]
) -> None:
    site = await loaded(tmp_path, sites, role="SYNC_MASTER", settings={"haSecretFile": secret(tmp_path)})
    host, port = parse_address(state(site.master)["haAddress"])
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(report(0))
    async with asyncio.timeout(10):
        assert await reader.read(1) == b""
    writer.close()
    assert len(state(site.master)["slaves"]) == 1
    # Also with the sides changed.
    site.master.kill()
    await site.promote(site.slave, "--role", "ASYNC_MASTER")
    await asyncio.to_thread(site.master.launch)
    await until(lambda: state(site.master).get("fenced"), site.master.last_words)
    await site.done("follow", site.master.address)
    await until(lambda: len(state(site.slave).get("slaves", ())) == 1, site.slave.last_words)
    await site.send()


@pytest.mark.parametrize(("mode", "words"), [(None, "No such file"), (0o644, "any user of this machine may read")])
def test_a_secret_that_cannot_be_used_refuses_the_start(tmp_path: Path, mode: int | None, words: str) -> None:
    path = tmp_path / "secret" if mode is None else secret(tmp_path, mode)
    for number, role in enumerate(("ASYNC_MASTER", "SLAVE")):
        keys = {"brokerRole": role, "brokerId": number, "haSecretFile": path}
        process = broker_process(tmp_path / role, settings=keys)
        process.launch()
        try:
            with pytest.raises(ProcessEnded, match="ended with"):
                process.wait_ready()
            assert f"haSecretFile={path}: {words}" in process.last_words().splitlines()[-1]
        finally:
            process.kill()
