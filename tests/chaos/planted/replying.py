"""Bugs of request-reply: a reply goes to another request, comes again, or is said to be with who asked and is not."""

from typing import Any

from broker.messages.replies import ReplyHandlers
from remoting.properties import PROPERTY_CORRELATION_ID
from tests.chaos.planted.grafts import graft, once_in

# Some are right: a broker that gets every one wrong would be found by anybody.
EVERY = 5


def mix_replies_up() -> None:
    """Bring, now and then, a reply under the number of the request that was replied to before it."""
    now, last = once_in(EVERY), [""]

    def make(honest: Any) -> Any:
        def request(self: ReplyHandlers, reply: Any) -> Any:
            own = reply.properties
            before, last[0] = last[0], own.get(PROPERTY_CORRELATION_ID, "")
            if not (now() and before):
                return honest(self, reply)
            reply.properties = {**own, PROPERTY_CORRELATION_ID: before}
            try:
                return honest(self, reply)
            finally:
                reply.properties = own

        return request

    graft(ReplyHandlers, "_request", make)


def bring_replies_again() -> None:
    """Bring, now and then, a reply two times."""
    now = once_in(EVERY)

    def make(honest: Any) -> Any:
        def submit(self: ReplyHandlers, client: Any, request: Any) -> Any:
            if now():
                honest(self, client, request)
            return honest(self, client, request)

        return submit

    graft(ReplyHandlers, "_submit", make)


def keep_replies() -> None:
    """Say, now and then, that who asked has its reply, and bring it to nobody."""
    now = once_in(EVERY)

    def make(honest: Any) -> Any:
        def push(self: ReplyHandlers, reply: Any) -> None:
            if now():
                self._pushed(reply, "")
            else:
                honest(self, reply)

        return push

    graft(ReplyHandlers, "_push", make)
