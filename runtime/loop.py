"""The event loop of every process: uvloop where it can be had, and signals that mean 'stop in good order'."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

try:
    from uvloop import Loop
except ModuleNotFoundError:  # there is none for some systems
    from asyncio import SelectorEventLoop as Loop  # type: ignore[assignment]

__all__ = ["Loop", "run", "run_until_told", "still_wanted", "stop_event", "writes"]

T = TypeVar("T")

# asyncio's own writelines() never asks its protocol to pause: CPython issue 127655, CVE-2024-12254.
_PILES_UP = (3, 12, 0) <= sys.version_info < (3, 12, 9) or (3, 13, 0) <= sys.version_info < (3, 13, 2)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main)


def run_until_told(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; SIGTERM, by which CI ends a job, cancels it, as Ctrl-C does. Then KeyboardInterrupt.

    Also in the background of a shell, which has Ctrl-C ignored: nobody cancels anything there, and an exception out of
    a signal's handler comes up wherever the loop is, in a callback that only logs it too.
    """

    async def told() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main

    # The loop leaves the default action behind.
    before = signal.getsignal(signal.SIGTERM)
    try:
        return run(told())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)


def writes(transport: asyncio.Transport) -> Callable[[Sequence[bytes | memoryview]], None]:
    """Return what writes several pieces at once and has the protocol pause at the transport's high mark.

    That is its writelines(), but for asyncio's own in some releases of Python, where the pieces are joined first: a
    copy, where otherwise all that the other side does not read would pile up in memory.
    """
    if _PILES_UP and type(transport).__module__.startswith("asyncio."):
        return lambda pieces: transport.write(b"".join(pieces))
    return transport.writelines


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets, in place of the default action."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event


def still_wanted() -> None:
    """Raise CancelledError when this task was asked to end and something that it awaited kept that to itself.

    Cleaning up that fails takes the place of what it cleans up after, and up to Python 3.11 asyncio.wait_for returns
    its result when both come in one turn. Not to be called inside of asyncio.timeout().
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
