"""Pops that wait for a message: by topic and group, woken one at a time, for one takes what is there."""

import asyncio
from collections.abc import Iterable, Iterator


class PopWaiter:
    """One pop that waits; `woken` is done when it should look again."""

    __slots__ = ("group", "owner", "topics", "woken")

    def __init__(self, owner: object, group: str, topics: tuple[str, ...], woken: "asyncio.Future[None]") -> None:
        self.owner = owner
        self.group = group
        self.topics = topics
        self.woken = woken


class PopWaiting:
    """Who waits, at most `limit` and of one group and topic `each`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, each: int, limit: int) -> None:
        self._loop = loop
        self._each = each
        self._limit = limit
        self._by_topic: dict[str, dict[str, dict[PopWaiter, None]]] = {}
        self._by_owner: dict[object, dict[PopWaiter, None]] = {}
        self.size = 0
        """How many wait."""

    def enter(self, owner: object, group: str, topics: tuple[str, ...]) -> PopWaiter | None:
        """Wait from now on, for messages of any of these topics; None when too many do."""
        if self.size >= self._limit or self.count(topics[0], group) >= self._each:
            return None
        waiter = PopWaiter(owner, group, topics, self._loop.create_future())
        for topic in topics:
            self._by_topic.setdefault(topic, {}).setdefault(group, {})[waiter] = None
        self._by_owner.setdefault(owner, {})[waiter] = None
        self.size += 1
        return waiter

    def leave(self, waiter: PopWaiter) -> None:
        """Wait no more."""
        for topic in waiter.topics:
            groups = self._by_topic[topic]
            del groups[waiter.group][waiter]
            if not groups[waiter.group]:
                del groups[waiter.group]
            if not groups:
                del self._by_topic[topic]
        owned = self._by_owner[waiter.owner]
        del owned[waiter]
        if not owned:
            del self._by_owner[waiter.owner]
        self.size -= 1
        waiter.woken.cancel()

    def count(self, topic: str, group: str) -> int:
        """Return how many pops of a group wait for a topic."""
        return len(self._by_topic.get(topic, {}).get(group, ()))

    def arrived(self, topics: Iterable[str]) -> None:
        """Wake one waiter of each group that waits for one of these topics."""
        for topic in topics:
            for waiters in self._by_topic.get(topic, {}).values():
                _wake(waiters)

    def more(self, topic: str, group: str) -> None:
        """Wake one more of a group: there is something left, or to be had again."""
        _wake(self._by_topic.get(topic, {}).get(group, ()))

    def drop(self, owner: object) -> None:
        """Wake all of a connection that has closed, so that they end."""
        self._wake_all(self._by_owner.get(owner, ()))

    def wake_all(self) -> None:
        """Wake everybody."""
        self._wake_all(waiter for owned in self._by_owner.values() for waiter in owned)

    @staticmethod
    def _wake_all(waiters: Iterable[PopWaiter]) -> None:
        for waiter in waiters:
            if not waiter.woken.done():
                waiter.woken.set_result(None)


def _wake(waiters: Iterable[PopWaiter]) -> None:
    sleeping: Iterator[PopWaiter] = (waiter for waiter in waiters if not waiter.woken.done())
    waiter = next(sleeping, None)
    if waiter is not None:
        waiter.woken.set_result(None)
