"""What clients do while members fail: sends that are never repeated, offset commits and queries, pulls at any member.

Every attempt to send is a message of its own, numbered; nothing here retries, so one number may stand in the log once
at most. What was acknowledged is kept with its queue offset, what was read with where it was read.
"""

import asyncio
import random
import time
from array import array
from dataclasses import dataclass, field

from remoting.client import RemotingClient
from remoting.codes import PullSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.headers import (
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.limits import ClientLimits
from remoting.properties import encode_properties
from remoting.record import decode_records

TOPIC = "torture"
GROUP = "torture_group"
QUEUES = 4
BODY_BYTES = 100
NUMBER_BYTES = 12
SEND_TIMEOUT_S = 3.0
PAUSE_S = 0.02
READ_EVERY_S = 0.05
COMMIT_EVERY_S = 0.1
MESSAGES_BEFORE_COMMITS = 1000


@dataclass
class History:
    """What clients saw. Index of `queue` and `offset`: the number of the attempt; -1: not acknowledged."""

    queue: "array[int]" = field(default_factory=lambda: array("b"))
    offset: "array[int]" = field(default_factory=lambda: array("q"))
    acknowledged: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    # (queue, offset) → number, as pulls of any member gave it.
    reads: dict[tuple[int, int], int] = field(default_factory=dict)
    # The newest offset of each queue that was acknowledged.
    ends: list[int] = field(default_factory=lambda: [0] * QUEUES)
    violations: list[str] = field(default_factory=list)
    commits: int = 0
    last_ack: float = 0.0
    longest_gap_s: float = 0.0

    def attempt(self) -> int:
        self.queue.append(-1)
        self.offset.append(-1)
        return len(self.queue) - 1

    def acknowledge(self, number: int, queue: int, offset: int) -> None:
        self.queue[number] = queue
        self.offset[number] = offset
        self.ends[queue] = max(self.ends[queue], offset)
        self.acknowledged += 1
        now = time.monotonic()
        if self.last_ack:
            self.longest_gap_s = max(self.longest_gap_s, now - self.last_ack)
        self.last_ack = now

    def failed(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1


class Load:
    """The clients. `addresses` are the members' broker ports."""

    def __init__(self, addresses: list[str], history: History, seed: int, *, senders: int = 64) -> None:
        self._addresses = addresses
        self._history = history
        self._dice = random.Random(seed)
        self._senders = senders
        self._client = RemotingClient(limits=ClientLimits(backoff_max_seconds=0.1), name="torture")
        self._tasks: list[asyncio.Task[None]] = []
        self._target = 0
        self._stopping = False
        self._committed: dict[int, int] = {}

    def start(self) -> None:
        work = [self._send_forever() for _ in range(self._senders)]
        work += [self._read_forever(number) for number in range(len(self._addresses))]
        work.append(self._commit_forever())
        self._tasks = [asyncio.get_running_loop().create_task(one) for one in work]

    async def stop(self) -> None:
        """Take no new attempts and wait for the answers of those under way."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        await self._client.close()

    async def _send_forever(self) -> None:
        while not self._stopping:
            number = self._history.attempt()
            queue = number % QUEUES
            target = self._target
            error = await self._send(number, queue, self._addresses[target])
            if error:
                self._history.failed(error)
                if self._target == target:
                    self._target = (target + 1) % len(self._addresses)
                await asyncio.sleep(PAUSE_S)

    async def _send(self, number: int, queue: int, address: str) -> str:
        """Send once; return "" or what went wrong."""
        header = SendMessageRequestHeaderV2(
            producerGroup="torture",
            topic=TOPIC,
            defaultTopic="TBW102",
            defaultTopicQueueNums=QUEUES,
            queueId=queue,
            sysFlag=0,
            bornTimestamp=1,
            flag=0,
            properties=encode_properties({"UNIQ_KEY": f"{number:032d}"}).decode(),
        )
        body = b"%0*d" % (NUMBER_BYTES, number) + b"x" * (BODY_BYTES - NUMBER_BYTES)
        try:
            request = Command.request(RequestCode.SEND_MESSAGE_V2, header, body)
            answer = await self._client.invoke(address, request, SEND_TIMEOUT_S)
        except RemotingError as error:
            return type(error).__name__
        if answer.code != ResponseCode.SUCCESS:
            return f"code {answer.code}"
        self._history.acknowledge(number, int(answer.ext["queueId"]), int(answer.ext["queueOffset"]))
        return ""

    async def _read_forever(self, member: int) -> None:
        """Pull at one member, whatever it is just now, near the ends of the queues."""
        while not self._stopping:
            queue = self._dice.randrange(QUEUES)
            offset = max(0, self._history.ends[queue] - self._dice.randrange(1, 200))
            await self._pull(self._addresses[member], queue, offset)
            await asyncio.sleep(READ_EVERY_S)

    async def _pull(self, address: str, queue: int, offset: int) -> None:
        header = PullMessageRequestHeader(
            consumerGroup=GROUP,
            topic=TOPIC,
            queueId=queue,
            queueOffset=offset,
            maxMsgNums=32,
            sysFlag=int(PullSysFlag.SUBSCRIPTION),
            commitOffset=0,
            suspendTimeoutMillis=0,
            subVersion=0,
            subscription="*",
        )
        try:
            request = Command.request(RequestCode.PULL_MESSAGE, header)
            answer = await self._client.invoke(address, request, SEND_TIMEOUT_S)
        except RemotingError:
            return
        if answer.code != ResponseCode.SUCCESS:
            return
        for message in decode_records(bytes(answer.body)):
            number = int(message.body[:NUMBER_BYTES])
            known = self._history.reads.setdefault((queue, message.queue_offset), number)
            if known != number:
                self._history.violations.append(
                    f"queue {queue} offset {message.queue_offset} was read as {known} and as {number}"
                )

    async def _commit_forever(self) -> None:
        """Commit growing offsets, and ask for them: what an answer acknowledged never goes back."""
        offset = 0
        while not self._stopping:
            if self._history.acknowledged < MESSAGES_BEFORE_COMMITS + 2 * QUEUES * offset:
                # What is committed beyond the end of a queue counts as its end.
                await asyncio.sleep(COMMIT_EVERY_S)
                continue
            offset += 1
            queue = offset % QUEUES
            address = self._addresses[self._target]
            try:
                if await self._commit(address, queue, offset):
                    self._committed[queue] = offset
                    self._history.commits += 1
                expected = self._committed.get(queue, -1)
                found = await self._query(address, queue)
                if found is not None and found < expected:
                    self._history.violations.append(f"queue {queue}: offset {expected} was committed, then {found}")
                elif found is not None:
                    self._committed[queue] = max(expected, found)
            except RemotingError:
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _commit(self, address: str, queue: int, offset: int) -> bool:
        header = UpdateConsumerOffsetRequestHeader(consumerGroup=GROUP, topic=TOPIC, queueId=queue, commitOffset=offset)
        request = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        answer = await self._client.invoke(address, request, SEND_TIMEOUT_S)
        return answer.code == ResponseCode.SUCCESS

    async def _query(self, address: str, queue: int) -> int | None:
        header = QueryConsumerOffsetRequestHeader(consumerGroup=GROUP, topic=TOPIC, queueId=queue)
        request = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self._client.invoke(address, request, SEND_TIMEOUT_S)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return -1 if self._committed.get(queue, -1) >= 0 else None
        return int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else None
