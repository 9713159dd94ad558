"""fresh_topics.py: which answers wait, and for what."""

import asyncio
from functools import partial

import pytest

from broker.messages.fresh_topics import FreshTopics
from remoting.codes import ResponseCode
from remoting.errors import CommandError


class Table:
    """A topic table whose writings end when the test says so."""

    def __init__(self) -> None:
        self.writings: list[asyncio.Future[None]] = []

    async def save(self) -> None:
        self.writings.append(asyncio.get_running_loop().create_future())
        await self.writings[-1]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_answer_waits_for_its_own_topic_only() -> None:
    table, told = Table(), list[str]()
    fresh = FreshTopics(table.save)
    fresh.made("A")
    early, other = fresh.behind("A", partial(told.append)), fresh.behind("B", partial(told.append))
    early("A is stored")
    other("B is stored")
    await turns()
    assert (told, "A" in fresh, "B" in fresh) == (["B is stored"], True, False)
    late = fresh.behind("A", partial(told.append))
    table.writings[0].set_result(None)
    await turns()
    assert told == ["B is stored", "A is stored"]
    late("and again")
    assert (told[-1], "A" in fresh) == ("and again", False)


@pytest.mark.parametrize("error", [OSError("full"), CommandError(ResponseCode.SYSTEM_ERROR, "no lead")])
async def test_a_writing_that_fails_holds_nothing_back(error: Exception) -> None:
    table, told = Table(), list[str]()
    fresh = FreshTopics(table.save)
    fresh.made("A")
    fresh.behind("A", partial(told.append))("stored")
    await turns()
    table.writings[0].set_exception(error)
    await turns()
    assert (told, "A" in fresh) == (["stored"], False)


async def test_a_topic_that_is_made_again_meanwhile_waits_for_the_later_writing() -> None:
    table, told = Table(), list[str]()
    fresh = FreshTopics(table.save)
    fresh.made("A")
    fresh.made("A")
    await turns()
    fresh.behind("A", partial(told.append))("stored")
    table.writings[0].set_result(None)
    await turns()
    assert (told, "A" in fresh) == ([], True)
    table.writings[1].set_result(None)
    await turns()
    assert (told, "A" in fresh) == (["stored"], False)
