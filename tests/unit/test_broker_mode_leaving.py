"""How long a member that stops goes on forwarding: until its clients are elsewhere, and not where nobody leads."""

import asyncio
from collections.abc import Callable

import pytest

from broker.raft_group.mode import HAND_OVERS_MAX, forward_until_quiet, give_away
from tests.parts.forwarding import FakeRole

# Nothing here waits so long: a test that did would end by its timeout.
LONG = 1000.0


class Clients:
    """What the forwarder tells of clients, one of which asks all the time until it is told to be quiet."""

    def __init__(self) -> None:
        self.idle_seconds = 0.0
        self.looks = 0

    def served(self) -> bool:
        self.looks += 1
        return True


def leaving(clients: Clients, role: FakeRole, **bounds: float) -> "asyncio.Task[None]":
    given = {"quiet": 0.01, "most": LONG, "leaderless": LONG, **bounds}
    return asyncio.create_task(forward_until_quiet(clients, role, clients.served, led=True, **given))


async def looked(clients: Clients, enough: Callable[[], bool]) -> None:
    while not enough():
        await asyncio.sleep(0.01)


async def test_it_forwards_as_long_as_a_client_asks_and_somebody_leads() -> None:
    clients = Clients()
    task = leaving(clients, FakeRole("127.0.0.1:1"), leaderless=0.0)
    await looked(clients, lambda: clients.looks > 3)
    assert not task.done()
    clients.idle_seconds = LONG
    await task


async def test_it_waits_in_vain_for_a_bounded_time_where_nobody_leads(caplog: pytest.LogCaptureFixture) -> None:
    """As when all members are told to stop: no client can find a leader, and all of them ask on."""
    clients, role = Clients(), FakeRole("127.0.0.1:1")
    task = leaving(clients, role, leaderless=0.1)
    await looked(clients, lambda: clients.looks > 3)
    assert not task.done()
    role.become()
    await task
    assert "nobody leads" in caplog.text


async def test_a_leader_that_is_elected_in_time_gets_what_clients_ask() -> None:
    clients, role = Clients(), FakeRole()
    task = leaving(clients, role)
    await looked(clients, lambda: clients.looks > 3)
    assert not task.done()
    role.become(leader_address="127.0.0.1:1")
    clients.idle_seconds = LONG
    await task


async def test_it_stops_forwarding_when_it_is_elected_itself() -> None:
    """A member that stops still votes, and what it would forward comes back to it then."""
    clients, role = Clients(), FakeRole("127.0.0.1:1")
    task = leaving(clients, role)
    await looked(clients, lambda: clients.looks > 3)
    assert not task.done()
    role.become(leads=True)
    await task


class Lead:
    """A group whose lead goes where it is given, and comes back while this member forwards as often as is said."""

    def __init__(self, role: FakeRole, comes_back: int, *, taken: bool = True) -> None:
        self._role = role
        self._comes_back = comes_back
        self._taken = taken
        self.given = self.forwarded = 0

    async def hand_over(self) -> bool:
        self.given += 1
        if self._taken:
            self._role.become(leader_address="127.0.0.1:1")
        return self._taken

    async def forward(self) -> None:
        assert not self._role.leads
        self.forwarded += 1
        if self.forwarded <= self._comes_back:
            self._role.become(leads=True)


@pytest.mark.parametrize("times", [0, 1, HAND_OVERS_MAX - 1])
async def test_a_lead_that_comes_back_is_given_away_again(times: int) -> None:
    role = FakeRole(leads=True)
    lead = Lead(role, times)
    await give_away(lead.hand_over, role, lead.forward)
    assert not role.leads
    assert lead.given == lead.forwarded == times + 1


async def test_a_lead_that_always_comes_back_ends_the_stop_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    role = FakeRole(leads=True)
    lead = Lead(role, HAND_OVERS_MAX)
    await give_away(lead.hand_over, role, lead.forward)
    assert lead.given == HAND_OVERS_MAX
    assert "leaves as the leader" in caplog.text


async def test_a_lead_that_nobody_takes_is_not_forwarded_for(caplog: pytest.LogCaptureFixture) -> None:
    role = FakeRole(leads=True)
    lead = Lead(role, 0, taken=False)
    await give_away(lead.hand_over, role, lead.forward)
    assert lead.forwarded == 0
    assert "no other member" in caplog.text
