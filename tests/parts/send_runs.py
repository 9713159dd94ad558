"""Sends as they come over the wire, and the compiled hot path, or runs too, switched off for a while."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from unittest.mock import patch

import pytest

import broker.messages.arrivals
import remoting.connection
import remoting.runs
import store.derived.indexfile
import store.derived.queuestate
import store.files.queuefile
import store.integrity.ranges
import store.integrity.verifier
import store.log.logscan
import store.raftlog.covered_records
import store.raftlog.entrybuild
import store.raftlog.entrycheck
import store.reads.reads
from remoting import sendrows
from remoting.codec import encode
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.compiled.door import COMPILED
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.runs import Cut, RequestRun, SendRun, cut_sends

needs_hotpath = pytest.mark.skipif(not COMPILED, reason="the compiled hot path is not built here")

_USERS: tuple[ModuleType, ...] = (
    broker.messages.arrivals,
    remoting.runs,
    store.derived.queuestate,
    store.derived.indexfile,
    store.files.queuefile,
    store.integrity.ranges,
    store.integrity.verifier,
    store.log.logscan,
    store.raftlog.covered_records,
    store.raftlog.entrybuild,
    store.raftlog.entrycheck,
    store.reads.reads,
)


@contextmanager
def pure() -> Iterator[None]:
    """Do everything in Python, as where nothing is compiled."""
    patches = [patch.object(module, "COMPILED", new=False) for module in _USERS]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


@contextmanager
def singly() -> Iterator[None]:
    """Serve each request by itself, in Python."""
    with pure(), patch.object(remoting.connection, "cut_for", new=lambda _served: None):
        yield


def cut_in_python(data: bytes, position: int, most: int, limit: int) -> RequestRun | None:
    """Do as cut_sends() does where nothing is compiled."""
    rows = sendrows.cut_sends(data, position, most, limit)
    return None if rows is None else SendRun(rows)


# How a broker may serve sends, and what cuts runs of them.
WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {"each": singly, "runs in Python": pure}
CUTS: dict[str, Cut] = {"runs in Python": cut_in_python}
if COMPILED:
    WAYS["compiled"], CUTS["compiled"] = nullcontext, cut_sends


def send_frame(
    number: int,
    *,
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"body",
    properties: str = "",
    oneway: bool = False,
) -> bytes:
    """Return a usual send, if the arguments are."""
    header = SendMessageRequestHeaderV2(
        producerGroup="P",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=queue_id,
        sysFlag=0,
        bornTimestamp=99,
        flag=7,
        properties=f"UNIQ_KEY\x01U{number:031d}\x02{properties}",
        reconsumeTimes=0,
    )
    request = Command.request(RequestCode.SEND_MESSAGE_V2, header, body, oneway=oneway)
    request.opaque = number
    return encode(request)
