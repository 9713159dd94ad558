"""raftmq/cli/classic.py: which slave is proposed, and how states are shown."""

from typing import Any, cast

import pytest

from client.admin.client import AdminClient, BrokerEntry
from client.errors import RouteError
from raftmq.cli import classic
from remoting.errors import ConnectError


class Admin:
    """Knows slaves by the ends of their logs; None: it does not answer."""

    def __init__(self, ends: dict[int, int | None]) -> None:
        self.ends = ends

    async def slaves(self, name: str) -> list[BrokerEntry]:
        return [BrokerEntry("C", name, number, f"s{number}:1") for number in sorted(self.ends)]

    async def ha_status(self, address: str) -> dict[str, Any]:
        end = self.ends[int(address[1 : address.index(":")])]
        if end is None:
            raise ConnectError(f"no connection to {address}")
        return {"max": end}


async def choose(ends: dict[int, int | None], slave: int = 0) -> str:
    return await classic._choose(cast(AdminClient, Admin(ends)), "b", slave)


async def test_the_slave_whose_log_ends_last_is_proposed() -> None:
    assert await choose({1: 100, 2: 300, 3: 300}) == "s2:1"


async def test_the_slave_that_is_named_is_asked_whatever_others_have() -> None:
    assert await choose({1: 100, 2: 300, 3: None}, 1) == "s1:1"


async def test_a_slave_that_is_not_there_cannot_be_chosen() -> None:
    with pytest.raises(RouteError, match=r"b has no slave 7 \(the NameServers know: 1, 2\)"):
        await choose({1: 100, 2: 300}, 7)
    with pytest.raises(RouteError, match="no slave of b answers: slave 1 at s1:1"):
        await choose({1: None})


def test_states_are_shown_one_row_for_each_broker() -> None:
    common = {"brokerName": "b", "epoch": 2, "min": 0, "flushed": 90}
    states: dict[str, dict[str, Any]] = {
        "m:1": {
            **common, "brokerId": 0, "role": "SYNC_MASTER", "max": 100, "warnings": ["1 of 2 are in sync"],
            "slaves": [{"inSync": True}, {"inSync": False}],
        },
        "s:1": {
            **common, "brokerId": 1, "role": "SLAVE", "max": 80,
            "master": {"state": "following", "behind": 20, "why": "m:1"}, "warnings": ["m:1", "s:2 has its id too"],
        },
        "o:1": {**common, "brokerId": 0, "role": "ASYNC_MASTER", "max": 70, "fenced": "m:1 was promoted"},
        "x:1": {"brokerName": "b", "error": "no connection"},
    }  # fmt: skip
    rows = {row[0]: row[2:] for row in classic._rows(states)}
    assert rows["m:1"] == (0, "SYNC_MASTER", 2, 0, 100, 90, None, "2 slaves, 1 in sync; 1 of 2 are in sync")
    assert rows["s:1"] == (1, "SLAVE", 2, 0, 80, 90, 20, "following: m:1; s:2 has its id too")
    assert rows["o:1"][-1] == "fenced: m:1 was promoted"
    assert rows["x:1"][-1] == "no connection"
    assert all(len(row) + 2 == len(classic.COLUMNS) for row in rows.values())


def test_a_person_is_told_what_is_known_before_deciding() -> None:
    report = {
        "brokerId": 1, "address": "s:1", "end": 4096, "master": None, "masterEnd": None, "heardMsAgo": None,
        "words": ["one", "two"],
    }  # fmt: skip
    assert classic._prospects(report) == [
        "slave 1 at s:1: its log ends at 4,096",
        "master unknown: its log ended at unknown",
        "one",
        "two",
    ]
    report |= {"master": "m:1", "masterEnd": 5000, "heardMsAgo": 2500}
    assert classic._prospects(report)[1] == "master m:1: its log ended at 5,000, heard 2.5 s ago"
