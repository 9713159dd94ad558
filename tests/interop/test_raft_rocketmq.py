"""The real RocketMQ on the folder of a Raft group that has ended, and RaftMQ on it again afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.raft_site import SETTINGS, Site, shrink, stop, stop_equal
from tests.interop.java_broker import JavaBroker

# RaftMQ's own keys mean nothing to RocketMQ; it takes messages of topics that exist, as RaftMQ is told to here.
SHARED = {key: value for key, value in SETTINGS.items() if key != "shutdownForwardMs"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(360)
async def test_R2_RocketMQ_goes_on_where_a_group_ended_and_a_group_goes_on_where_it_ends(jars: str, site: Site) -> None:
    members = site.group()
    await site.until_voting(members)
    await site.create()
    await site.send()
    await site.consume(10)
    stop([await shrink(site, members)])

    java = JavaBroker(site.folder / "java", site.store("n0"), jars, site.namesrv.address, SHARED)
    try:
        java.start()
        await site.check(offsets=10)
        await site.send()
        await site.consume(20)
        await site.check(offsets=20)
        java.stop()
    finally:
        java.kill()

    alone = site.single("n0")
    await site.check(offsets=20)
    await site.send()
    stop([alone])
    for member in ("n1", "n2"):
        site.set_aside(member)
    members = site.group()
    again = await site.until_voting(members)
    assert again["self"] == "n0"
    await site.check(offsets=20)
    await site.send()
    await stop_equal(site, members)
