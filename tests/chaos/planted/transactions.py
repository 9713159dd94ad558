"""Bugs of transactions: an end that is taken for the other one, and one that leaves out the message."""

from typing import Any

import msgspec

from broker.transactions.ending import COMMIT, EndHandler
from tests.chaos.planted.grafts import graft, once_in

# Some are right: a broker that gets every one wrong would be found by anybody.
EVERY = 5


def deliver_what_is_rolled_back() -> None:
    """Commit, now and then, what a producer has rolled back."""
    now = once_in(EVERY)

    def make(honest: Any) -> Any:
        def end(self: EndHandler, table: Any, connection: Any, request: Any, header: Any) -> Any:
            if header.commitOrRollback != COMMIT and now():
                header = msgspec.structs.replace(header, commitOrRollback=COMMIT)
            return honest(self, table, connection, request, header)

        return end

    graft(EndHandler, "_end", make)


def commit_without_the_message() -> None:
    """Write, now and then, that a transaction is over, and not the message that it was about."""
    now = once_in(EVERY)

    def make(honest: Any) -> Any:
        def real(self: EndHandler, half: Any) -> Any:
            return [] if now() else honest(self, half)

        return real

    graft(EndHandler, "_real", make)
