"""Consumer groups that were made by being used, and that nobody uses any more, go; all others stay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.housekeeping import GROUP_UNUSED_SECONDS, UnusedGroups
from broker.metadata.consumer_groups import GroupTable
from remoting.bodies.registry import SubscriptionGroupConfig
from tests.parts.broker_parts import Parts, Peer, broker_parts

DAY = GROUP_UNUSED_SECONDS


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with broker_parts(tmp_path) as made:
        yield made


def collect(parts: Parts) -> None:
    UnusedGroups(parts.tables, parts.store).collect()


async def test_a_group_that_nobody_uses_goes_with_its_empty_retry_topic(parts: Parts) -> None:
    for group in ("a", "b"):
        parts.groups.find(group, Peer())
        parts.topics.create_for_retry(f"%RETRY%{group}", 1)
    parts.put("%RETRY%b", 0)
    parts.store.idle()
    parts.clock.advance(DAY - 1)
    collect(parts)
    assert parts.groups.get("a") is not None
    parts.clock.advance(1)
    collect(parts)
    assert (parts.groups.get("a"), parts.groups.get("b")) == (None, None)
    # What holds messages stays, whoever reads it one day.
    assert (parts.topics.get("%RETRY%a"), parts.topics.get("%RETRY%b") is None) == (None, False)
    assert parts.groups.get("TOOLS_CONSUMER") is not None


async def test_who_has_members_an_offset_or_a_setting_stays(parts: Parts) -> None:
    for group in ("member", "offset", "altered", "forbidden"):
        parts.groups.find(group, Peer())
    parts.groups.update(SubscriptionGroupConfig("asked-for"))
    parts.join(Peer(), "c", "member", "T")
    parts.offsets.commit("offset", "T", 0, 0, 1, None)
    parts.groups.update(SubscriptionGroupConfig("altered", retryMaxTimes=3))
    parts.groups.update(SubscriptionGroupConfig("altered"))
    parts.groups.set_readable("forbidden", "T", readable=False)
    parts.clock.advance(10 * DAY)
    collect(parts)
    stayed = {"member", "offset", "altered", "forbidden", "asked-for"}
    assert stayed <= parts.groups.tables.keys()


async def test_the_day_begins_when_the_last_member_has_gone(parts: Parts) -> None:
    peer = Peer()
    parts.groups.find("g", peer)
    parts.join(peer, "c", "g", "T")
    parts.clock.advance(DAY)
    collect(parts)
    parts.clients.on_close(peer)
    parts.clock.advance(DAY - 1)
    collect(parts)
    assert parts.groups.get("g") is not None
    parts.clock.advance(1)
    collect(parts)
    assert parts.groups.get("g") is None
    # Whoever comes back finds it made again.
    assert parts.groups.find("g", peer) == SubscriptionGroupConfig("g")


async def test_groups_of_before_a_start_or_a_change_of_the_lead_stay(parts: Parts, tmp_path: Path) -> None:
    parts.groups.find("g", Peer())
    await parts.groups.save()
    again = GroupTable(tmp_path / "store" / "config" / "subscriptionGroup.json", parts.config, parts.clock)
    parts.groups.lead(first=False)
    parts.clock.advance(10 * DAY)
    collect(parts)
    assert again.collect(DAY, lambda _group: False) == []
    assert (parts.groups.get("g") is None, again.get("g") is None) == (False, False)
