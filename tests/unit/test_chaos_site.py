"""chaos/site/site.py: what is taken for certain about a cluster."""

from pathlib import Path
from typing import Any

import pytest

from chaos.site.site import Site, group_is_level
from pipeline.history.rows import UNKNOWN


async def test_R7_who_has_no_lease_is_not_taken_for_the_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cut off leads for most of a second more, says so, and answers pulls with ends that are too small."""
    site = Site(tmp_path)
    state: dict[str, Any] = {"leads": True, "lease": True, "term": 7}
    monkeypatch.setattr("chaos.site.site.SiteMember.state", lambda _member: state)
    address = site.members[0].process.address
    assert await site.leads(address) == 7
    state["lease"] = False
    assert await site.leads(address) == UNKNOWN
    state |= {"leads": False, "lease": False}
    assert await site.leads(address) == UNKNOWN
    assert await site.leads("127.0.0.1:1") == UNKNOWN


LEVEL = {"whole": True, "damaged": None, "last": 9, "commit": 9, "applied": 9, "durable": 9, "end": 4096}


@pytest.mark.parametrize(
    ("all_say", "one_says"),
    [
        ({"commit": 8, "applied": 8}, {}),
        ({}, {"commit": 8, "applied": 8}),
        ({}, {"applied": 8}),
        ({}, {"durable": 8}),
        ({}, {"last": 10, "end": 5000}),
        ({}, {"end": 5000}),
        ({}, {"whole": False}),
        ({}, {"damaged": [0, 1]}),
    ],
)
def test_a_group_is_level_when_all_know_all_as_committed(all_say: dict[str, Any], one_says: dict[str, Any]) -> None:
    """An entry that all have, and that is not committed, is in no queue yet: stopped then, each vouches for less."""
    assert group_is_level([LEVEL, LEVEL, LEVEL])
    state = LEVEL | all_say
    assert not group_is_level([state, state, state | one_says])


async def test_a_cluster_that_settles_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    leader = site.members[0]
    state: dict[str, Any] = {**LEVEL, "commit": 8}
    monkeypatch.setattr("chaos.site.site.SiteMember.state", lambda member: {**state, "leads": member is leader})
    assert not await site.settle(0.2)
    state["commit"] = 9
    assert [said["end"] for said in await site.settle(10)] == [4096] * len(site.members)
