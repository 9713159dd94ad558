"""The event loop of every process: uvloop, and signals that mean 'stop in good order'."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

# What every process of ours runs on.
Loop = uvloop.Loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new uvloop."""
    return uvloop.run(main)


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets, in place of the default action."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event
