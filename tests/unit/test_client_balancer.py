"""balancer.py: a round that meets a changed subscription shares nothing by the old one."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from client.consume.balancer import BalanceOptions, Balancer
from client.consume.rebalance import average
from client.consume.subscription import Subscription, subscribe_by_tags
from client.instance import ClientInstance
from client.message import MessageModel
from client.routes import TopicRoute
from remoting.bodies.registry import MessageQueue

QUEUES = tuple(MessageQueue("T", "b", number) for number in range(4))
OLD, NEW = subscribe_by_tags("T", "*", 1), subscribe_by_tags("T", "TagA", 2)


class Member:
    """A consumer with one topic, whose application does something while its broker tells how the topic is read."""

    def __init__(self, meanwhile: Callable[["Member"], object]) -> None:
        self._meanwhile = meanwhile
        self.wants: dict[str, Subscription] = {"T": OLD}
        self.has: dict[str, Subscription] = {}
        self.asked = 0
        route = TopicRoute("T", (), QUEUES, {"b": {0: "m:1"}})
        instance = SimpleNamespace(api=self, routes=SimpleNamespace(cached=lambda _: route), client_id="me")
        options = BalanceOptions(MessageModel.CLUSTERING, average, asks_mode=True)
        self.balancer = Balancer("G", cast("ClientInstance", instance), self.wants, options, self._apply)

    async def consumer_ids(self, _address: str, _group: str) -> list[str]:
        return ["me"]

    async def request_mode(self, _address: str, _group: str, _client_id: str, _topic: str) -> str | None:
        self.asked += 1
        if self.asked == 1:
            self._meanwhile(self)
        return None

    def unsubscribe(self) -> None:
        """Do as a consumer does: drop what is had of the topic, and want it no more."""
        del self.wants["T"]
        self.has.pop("T", None)

    def _apply(self, subscription: Subscription, mine: list[MessageQueue], _wait_s: float) -> None:
        assert mine == list(QUEUES)
        self.has[subscription.topic] = subscription

    async def round(self) -> None:
        running = asyncio.create_task(self.balancer.run())
        await asyncio.wait_for(self.balancer.first_round.wait(), 10)
        # What the round has put off comes within these turns of the loop.
        for _turn in range(5):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_topic_that_nobody_gave_up_is_had() -> None:
    member = Member(lambda _member: None)
    await member.round()
    assert member.has == {"T": OLD}


async def test_a_topic_given_up_while_its_mode_is_asked_for_is_not_had() -> None:
    member = Member(lambda member: member.unsubscribe())
    await member.round()
    assert (member.asked, member.has) == (1, {})


async def test_a_topic_given_up_right_after_its_mode_was_told_is_not_had() -> None:
    """The share is worked out and applied in the turn of the loop in which the answer came."""
    member = Member(lambda member: asyncio.get_running_loop().call_soon(member.unsubscribe))
    await member.round()
    assert (member.asked, member.has) == (1, {})


async def test_a_topic_subscribed_anew_during_a_round_is_not_shared_by_the_old_subscription() -> None:
    def anew(member: Member) -> None:
        member.unsubscribe()
        member.wants["T"] = NEW

    member = Member(anew)
    await member.round()
    assert member.has == {}
    # The next round has it, by the new one.
    member.balancer.first_round.clear()
    await member.round()
    assert member.has == {"T": NEW}
