"""What the administrative handlers share: good answers, refusals, and giving way to the traffic."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from remoting.codes import ResponseCode
from remoting.command import Body, Command
from remoting.errors import CommandError
from remoting.headers.registry import Header

# Rows (topics or groups) that one page of the tables 21 and 201 holds at most: RocketMQ's splitMetadataSize.
PAGE_ROWS_MAX = 2000
# Bytes of an answer that holds a whole table; more does not fit a frame.
TABLE_BYTES_MAX = 15 * 1024 * 1024
# A field of ours in the answers that slaves copy: where the log ends that the answer belongs to.
LOG_END = "logEnd"
# Field of code 43's answer: which purposeful lowerings of offsets the table has seen
# (broker/metadata/offset_lowered.py).
OFFSET_MARK = "offsetMark"
# Queues whose offsets and times a report looks up before it lets the traffic pass.
QUEUES_PER_TURN = 256

# Returns when a change has got where it must be before it is answered: to the NameServers, or to the disk.
Announce = Callable[[], Awaitable[None]]


# What RocketMQ says where nobody has said anything.
WELL = "not set any response code"


def ok(header: Header | None = None, body: Body | Sequence[Body] = b"") -> Command:
    """Return a SUCCESS response."""
    return Command.response(ResponseCode.SUCCESS, None, header, body)


def no_topic(topic: str) -> CommandError:
    """Return the refusal for a topic that this broker does not have."""
    return CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist on this broker")


def no_group(group: str) -> CommandError:
    """Return the refusal for a group that this broker does not have."""
    return CommandError(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group[{group}] not exist on this broker"
    )


def whole_table(content: bytes, hint: str) -> bytes:
    """Return a table's bytes when they fit a frame, else raise CommandError that says what to use instead."""
    if len(content) > TABLE_BYTES_MAX:
        raise CommandError(
            ResponseCode.SYSTEM_ERROR, f"the table takes {len(content)} bytes, a frame holds {TABLE_BYTES_MAX}: {hint}"
        )
    return content


class ReportPace:
    """Gives way to the traffic from time to time during a long report."""

    def __init__(self) -> None:
        self._queues = 0

    async def spend(self, queues: int = 1) -> None:
        """Count queues that were looked up; after QUEUES_PER_TURN of them others get their turn."""
        self._queues += queues
        if self._queues >= QUEUES_PER_TURN:
            self._queues = 0
            await asyncio.sleep(0)
