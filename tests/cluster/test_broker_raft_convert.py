"""A single broker's store begins a Raft group, and a group's store becomes a single broker's, by real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.process_group import told
from tests.cluster.raft_site import NAME, Site, ended, log_of, said, shrink, stop, stop_equal


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(120)
async def test_R1_R2_a_single_brokers_store_becomes_a_groups_and_back_and_a_groups_again(site: Site) -> None:
    alone = site.single("n0")
    await site.create()
    await site.send()
    await site.consume(10)
    stop([alone])

    members = site.group()
    first = await site.until_voting(members)
    assert (first["self"], first["base"]) == ("n0", 0)
    await site.check(offsets=10)
    await site.send()
    await site.consume(20)
    await site.cli("transfer-leader", NAME, "n2")
    await site.check(offsets=20)
    await site.send()
    await stop_equal(site, members)

    for member in members:
        member.launch()
    last = await shrink(site, members)
    stop([last])
    alone = site.single("n0")
    await site.check(offsets=20)
    await site.send()
    await site.consume(30)
    await site.check(offsets=30)
    stop([alone])

    # The others held the same log once. What they missed since is in n0 alone, and they must be emptied to join.
    for empty in ("n1", "n2"):
        site.set_aside(empty)
    members = site.group()
    again = await site.until_voting(members)
    assert again["self"] == "n0"
    assert again["group_id"] != first["group_id"]
    assert again["last"] > first["last"]
    assert again["term"] > first["term"]
    await site.check(offsets=30)
    await site.send()
    await site.cli("transfer-leader", NAME, "n1")
    await site.check(offsets=30)
    await stop_equal(site, members)


@pytest.mark.timeout(120)
async def test_R2_a_members_store_is_refused_to_a_single_broker_unless_forced(site: Site) -> None:
    members = site.group()
    await site.until_voting(members)
    await site.create()
    await site.send()
    await site.consume(10)
    for member in members:
        member.kill()

    refused = site.single("n1", start=False)
    refused.launch()
    assert await ended(refused) == 1
    (line,) = [line for line in refused.last_words().splitlines() if line.startswith("raftmq: ")]
    assert "leave-raft GROUP" in line
    assert "--force, which gives up what the group has acknowledged and this member lacks" in line

    # All had it all, and so the one that is forced has: metadata that was in the log alone too.
    forced = site.single("n1", force=True)
    await site.check(offsets=10)
    await site.send()
    await site.consume(20)
    stop([forced])
    # Once is enough: the group has ended in this log.
    alone = site.single("n1")
    await site.check(offsets=20)
    stop([alone])
    # The others go on without it, and nobody touches what it has.
    before = log_of(site.store("n1"))
    for member in members:
        member.launch()
    await said(members[1], "a group lives already, at n0, n2: waiting for its leader")
    await said(members[2], " leads")
    stop(members)
    assert log_of(site.store("n1")) == before


@pytest.mark.timeout(120)
async def test_R3_metadata_survives_a_kill_of_the_last_member_right_after_the_groups_end(site: Site) -> None:
    members = site.group()
    await site.until_voting(members)
    await site.create()
    await site.send()
    stop(members[1:])
    for member in members[1:]:
        member.launch()
    last = await shrink(site, members, last=lambda: site.consume(17))
    last.kill()
    alone = site.single("n0")
    await said(alone, "metadata was taken from the log of the group that ended")
    await site.check(offsets=17)


async def test_R1_two_stores_with_messages_begin_no_group(site: Site) -> None:
    for filled in ("n0", "n2"):
        alone = site.single(filled)
        await site.create()
        await site.send(2)
        stop([alone])
    members = site.group(wait=False)
    for member in members:
        await said(member, "the stores of n0, n2 all hold messages, and a group has one log")
        state = told(member, "/v1/raft")
        assert state is not None
        assert "n0, n2" in state["founding"]
    assert not any(member.ready() for member in members)
