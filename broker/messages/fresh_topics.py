"""Topics that a send has just made: what goes there is answered when the topic's configuration is on disk.

Otherwise a broker killed right after the answer has the message and not the topic: adopted from the log, it has as many
queues as were used, and a producer that knows the others is refused until it asks for the route again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from remoting.errors import CommandError


class FreshTopics:
    """The topics that are being written, and the answers that wait for it."""

    def __init__(self, save: Callable[[], Awaitable[None]]) -> None:
        """`save` returns when all topics are on disk; raises OSError, CommandError."""
        self._save = save
        self._saving: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._saving

    def made(self, topic: str) -> None:
        """Have a topic written; must be called in the loop, and after the topic was put into the table."""
        self._saving[topic] = asyncio.get_running_loop().create_task(self._saved(topic), name=f"save {topic}")

    def behind(self, topic: str, done: "partial[None]") -> "partial[None]":
        """Return what to call in the place of `done`, so that it is called when the topic is written."""
        saving = self._saving.get(topic)
        return done if saving is None else partial(_after, saving, done)

    async def _saved(self, topic: str) -> None:
        try:
            await self._save()
        except (OSError, CommandError):
            # The table says so in the log, and tries again; the message is as safe as its mode promises.
            pass
        finally:
            # It may have been deleted meanwhile, and made again.
            if self._saving[topic] is asyncio.current_task():
                del self._saving[topic]


def _after(saving: asyncio.Task[None], done: "partial[None]", *answer: object) -> None:
    if saving.done():
        done(*answer)
    else:
        saving.add_done_callback(lambda _saving: done(*answer))
