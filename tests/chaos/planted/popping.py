"""Bugs of POP: what was taken, acknowledged or is due is not known, not stored, or not waited for."""

from typing import Any

from broker.pop.acknowledging import AckHandlers
from broker.pop.check_points import CheckPoint
from broker.pop.feed import ReviveFeed
from broker.pop.reading import PopReader
from broker.pop.revival import Revival
from broker.pop.service import PopService
from remoting.codes import ResponseCode
from remoting.command import Command
from tests.chaos.planted import tables
from tests.chaos.planted.grafts import graft, once_in

# Some are right: a broker that gets every one wrong would be found by anybody.
EVERY = 4


def acknowledge_without_storing() -> None:
    """Answer, now and then, that an acknowledgement is stored, and store nothing."""
    now = once_in(EVERY)

    def make(honest: Any) -> Any:
        async def store(self: AckHandlers, *asked: Any) -> Command | None:
            if now():
                return Command.response(ResponseCode.SUCCESS)
            answer: Command | None = await honest(self, *asked)
            return answer

        return store

    graft(AckHandlers, "_store_acks", make)


def begin_without_what_was_taken() -> None:
    """Begin, as who leads, with the check points that come from then on."""

    def make(honest: Any) -> Any:
        def begin(self: ReviveFeed, committed: Any, since_ms: int) -> None:
            honest(self, committed, since_ms)
            for queue in range(self._queues):
                self._next[queue] = self._store.max_offset(self._topic, queue)

        return begin

    graft(ReviveFeed, "begin", make)


def give_what_was_taken_at_once() -> None:
    """Take, as who leads next, all that others have in hand for due."""

    def make(_honest: Any) -> Any:
        async def give_back(self: PopService) -> None:
            for point in self._feed.table:
                self._feed.table.again(point.key, 0)

        return give_back

    graft(PopService, "_give_back", make)


def drop_what_is_due() -> None:
    """Call, now and then, over what is due, and have it not come again."""
    now = once_in(EVERY)

    def make(honest: Any) -> Any:
        async def settle(self: Revival, made: CheckPoint, table: Any) -> None:
            if now():
                table.acknowledge(made.key, made.open_offsets())
            else:
                await honest(self, made, table)

        return settle

    graft(Revival, "settle", make)


def be_due_early() -> None:
    """Have what was taken come again after two thirds of its invisible time."""

    def make(_honest: Any) -> Any:
        return property(lambda self: self.key.pop_ms + self.invisible_ms * 2 // 3)

    graft(CheckPoint, "revive_ms", make)


def take_side_by_side() -> None:
    """Let a pop, now and then, take from queues that others take from."""
    now = once_in(EVERY)

    def make(honest: Any) -> Any:
        async def read(self: PopReader, asked: Any, *, locks: bool) -> Any:
            return await honest(self, asked, locks=locks and not now())

        return read

    graft(PopReader, "read", make)


def keep_offsets_of_pops_to_oneself() -> None:
    """Have only the leader that gave messages know how far their group is."""
    tables.keep_offsets_to_oneself()
