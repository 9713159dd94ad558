"""What one link takes in one turn of the loop."""

import asyncio
from typing import Any, cast

import pytest

from raft.network.link import TURN_BYTES, Link, LinkLimits, LinkOwner
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.wire import FRAME_BYTES_MAX, frame_message

PART = bytes(256 * 1024)


class Wire:
    """A transport whose socket always holds more, as that of a member which catches up does."""

    def __init__(self) -> None:
        self.reading = True
        self.closing = False

    def get_extra_info(self, name: str) -> None: ...

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Receiver:
    """Counts the bytes of messages."""

    def __init__(self) -> None:
        self.taken = 0

    def link_made(self, link: Link) -> None: ...

    def link_received(self, link: Link, message: RaftMessage) -> None:  # noqa: ARG002
        self.taken += message.size

    def link_closed(self, link: Link, reason: str) -> None: ...


@pytest.fixture
async def made() -> tuple[Link, Wire, Receiver]:
    receiver, wire = Receiver(), Wire()
    link = Link(cast("Any", None), LinkLimits(handshake_seconds=60), cast("LinkOwner", receiver))
    link.connection_made(cast("asyncio.Transport", wire))
    link.opened = True
    link._reader.limit = FRAME_BYTES_MAX
    return link, wire, receiver


def pour(link: Link, wire: Wire, data: memoryview) -> memoryview:
    """Give a link what it takes in this turn; return the rest."""
    while wire.reading and data:
        room = link.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        link.buffer_updated(size)
        data = data[size:]
    return data


async def test_a_link_takes_so_much_in_one_turn_of_the_loop(made: tuple[Link, Wire, Receiver]) -> None:
    link, wire, receiver = made
    pieces, _ = frame_message(RaftMessage(MessageKind.REPAIR_BYTES, {"start": 0, "kept": 0, "sure": True}, (PART,)))
    rest = memoryview(b"".join(pieces) * 32)
    turns = 0
    while rest:
        before = receiver.taken
        rest = pour(link, wire, rest)
        turns += 1
        assert receiver.taken - before <= TURN_BYTES + len(PART)
        await asyncio.sleep(0)
        assert wire.reading, "the next turn reads on"
    assert receiver.taken == 32 * len(PART)
    assert turns >= receiver.taken // (TURN_BYTES + len(PART))
    link.connection_lost(None)


async def test_a_link_that_closes_is_not_read_on(made: tuple[Link, Wire, Receiver]) -> None:
    link, wire, _ = made
    pieces, _ = frame_message(RaftMessage(MessageKind.REPAIR_BYTES, {"start": 0, "kept": 0, "sure": True}, (PART,)))
    pour(link, wire, memoryview(b"".join(pieces) * 8))
    assert not wire.reading
    wire.closing = True
    await asyncio.sleep(0)
    assert not wire.reading
    link.connection_lost(None)
    await asyncio.sleep(0)
    assert not wire.reading
