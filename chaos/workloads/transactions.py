"""Transactions of one message: prepared, then committed, rolled back, or left for the broker to ask about (A18).

What a transaction is to come to is drawn before its half message is sent, and is told in the end by whoever tells it:
the teller, or the answer to a check. So whatever a reader sees is right or wrong by itself.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from chaos.load.clients import BROKER, TIMEOUT_S, LoadClient, connections
from chaos.load.workload import PAUSE_S, Load, Pace, Plain, keep_known, pause
from client.api import decode_messages
from pipeline.history.body import Tag, digest, make_body, read_tag
from pipeline.history.rows import UNKNOWN, Act, Kind
from remoting.bodies.client import HeartbeatData, ProducerData
from remoting.client import RemotingClient
from remoting.codes import MessageSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import RemotingError, ResponseError
from remoting.headers.registry import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
)
from remoting.msgid import parse_offset_msg_id
from remoting.properties import encode_properties
from remoting.topics import AUTO_CREATE_TOPIC

TOPIC = "chaos_transactions"
GROUP = "chaos_tellers"
READERS = "chaos_transaction_readers"
QUEUES = 4
TELLERS = 12
# Of the transactions so many are to be committed, and so many are left for the broker to ask about.
COMMIT_SHARE = 0.7
LEFT_SHARE = 0.25
# Of the answers to checks so many are "not known yet".
UNKNOWN_SHARE = 0.3
# How often an end of unknown end is told again before it is left to the checks.
ENDS_MAX = 3
READ_EVERY_S = 0.05
# A question that was sent before an end was acknowledged may arrive behind it, over another connection: not for longer.
ON_ITS_WAY_S = 5.0

COMMIT, ROLLBACK = int(MessageSysFlag.TRANSACTION_COMMIT), int(MessageSysFlag.TRANSACTION_ROLLBACK)
_ACTS = {COMMIT: Act.END_COMMIT, ROLLBACK: Act.END_ROLLBACK}


class _Half(NamedTuple):
    """Where the half message of a transaction stands, and what the transaction is to come to."""

    name: str
    key: str
    offset: int
    position: int
    comes_to: int


class _Decisions:
    """What every transaction is to come to, and when its end was acknowledged."""

    def __init__(self) -> None:
        self.comes_to: dict[str, int] = {}
        self.ended: dict[str, float] = {}


class TransactionsWorkload(Plain):
    """Tellers begin and end transactions, readers follow the topic at every member, and checks are answered."""

    name = "transactions"

    def __init__(self) -> None:
        super().__init__({TOPIC: QUEUES})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Make transactions until `stop`."""
        decisions, pace = _Decisions(), Pace(load.rate)
        async with _answering(load, decisions) as remoting, asyncio.TaskGroup() as tasks:
            for number in range(TELLERS):
                teller = _Teller(load, load.client(remoting, f"teller{number}"), decisions)
                tasks.create_task(teller.work(pace, stop))
            tellers = HeartbeatData(clientID=GROUP, producerDataSet=[ProducerData(groupName=GROUP)])
            tasks.create_task(keep_known(load, load.client(remoting, "tellers"), tellers, stop))
            for address in load.addresses:
                client = load.client(remoting, "reader")
                tasks.create_task(_read(client, address, random.Random(load.rng.random()), stop))


class _Teller:
    def __init__(self, load: Load, client: LoadClient, decisions: _Decisions) -> None:
        self._load, self._client, self._decisions = load, client, decisions
        self._rng = random.Random(load.rng.random())

    async def work(self, pace: Pace, stop: asyncio.Event) -> None:
        """Make one transaction after the other."""
        writer, counter = self._load.names.writer(), 0
        while not stop.is_set():
            await pace.turn()
            comes_to = COMMIT if self._rng.random() < COMMIT_SHARE else ROLLBACK
            half = await self._prepare(Tag(writer, counter, 0), comes_to)
            counter += 1
            if half is None:
                await asyncio.sleep(PAUSE_S)
            elif self._rng.random() >= LEFT_SHARE:
                await self._end(half)

    async def _prepare(self, tag: Tag, comes_to: int) -> _Half | None:
        """Send a half message; None when it is not known to be stored."""
        name, key, body = _name(tag), _key(tag), make_body(tag)
        self._decisions.comes_to[name] = comes_to
        queue, address = self._rng.randrange(QUEUES), self._load.leaders.address
        request = Command.request(RequestCode.SEND_MESSAGE_V2, _half_header(queue, key), body)
        places: list[tuple[int, int]] = []

        async def told() -> dict[str, Any]:
            answer = await self._asked(address, request)
            places.append((int(answer.ext["queueOffset"]), parse_offset_msg_id(answer.ext["msgId"])[1]))
            # Where a half message stands is nothing that a reader could hold it to.
            return {}

        done = await self._client.call(
            Act.SEND, address, told, topic=TOPIC, queue=queue, writer=tag.writer, counter=tag.counter,
            attempt=tag.attempt, digest=digest(body), transaction=name,
        )  # fmt: skip
        if done.kind != Kind.OK:
            self._load.leaders.failed(address)
            return None
        return _Half(name, key, *places[0], comes_to)

    async def _end(self, half: _Half) -> None:
        """Tell what a transaction comes to, and wait for the answer; what nobody answers is left to the checks."""
        header = _end_header(half.comes_to, half.key, half.offset, half.position)
        for _ in range(ENDS_MAX):
            address = self._load.leaders.address

            async def told(address: str = address) -> dict[str, Any]:
                await self._asked(address, Command.request(RequestCode.END_TRANSACTION, header))
                return {}

            done = await self._client.call(_ACTS[half.comes_to], address, told, topic=TOPIC, transaction=half.name)
            if done.kind == Kind.OK:
                self._decisions.ended[half.name] = asyncio.get_running_loop().time()
                return
            self._load.leaders.failed(address)
            await asyncio.sleep(PAUSE_S)

    async def _asked(self, address: str, request: Command) -> Command:
        answer = await self._client.api.remoting.invoke(address, request, TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, address)
        return answer


@contextlib.asynccontextmanager
async def _answering(load: Load, decisions: _Decisions) -> AsyncIterator[RemotingClient]:
    """Yield connections over which brokers may ask what became of a transaction."""
    rng, recorder = random.Random(load.rng.random()), load.recorder
    process = recorder.process()

    def check(connection: Connection, request: Command) -> None:
        header = request.header(CheckTransactionStateRequestHeader)
        (message,) = decode_messages(request.body, BROKER)
        tag = read_tag(message.body)
        name = _name(tag) if tag is not None else ""
        comes_to = decisions.comes_to.get(name)
        if comes_to is None:
            return
        ended = decisions.ended.get(name)
        if ended is None or connection.loop.time() > ended + ON_ITS_WAY_S:
            asked = recorder.invoke(
                Act.CHECK, process, topic=TOPIC, broker=BROKER, address=connection.address, transaction=name
            )
            recorder.ok(asked)
        if rng.random() < UNKNOWN_SHARE:
            return
        end = _end_header(comes_to, message.msg_id, header.tranStateTableOffset, header.commitLogOffset, checked=True)
        # Nobody answers it: whether it took effect is not known.
        told = recorder.invoke(
            _ACTS[comes_to], recorder.process(), topic=TOPIC, broker=BROKER, address=connection.address,
            transaction=name,
        )  # fmt: skip
        try:
            connection.send_oneway(Command.request(RequestCode.END_TRANSACTION, end, oneway=True))
        except RemotingError as error:
            recorder.ended(told, error)
        else:
            recorder.info(told, "one-way")

    remoting = connections("transactions", {RequestCode.CHECK_TRANSACTION_STATE: check})
    try:
        yield remoting
    finally:
        await remoting.close()


async def _read(client: LoadClient, address: str, rng: random.Random, stop: asyncio.Event) -> None:
    """Follow all queues at one member."""
    at = [0] * QUEUES
    while await pause(stop, READ_EVERY_S):
        queue = rng.randrange(QUEUES)
        done = await client.poll(address, READERS, TOPIC, queue, at[queue])
        if done.kind == Kind.OK and done.value != UNKNOWN:
            at[queue] = done.value


def _name(tag: Tag) -> str:
    return f"{tag.writer}-{tag.counter}"


def _key(tag: Tag) -> str:
    return f"{tag.writer:08X}{tag.counter:016X}{tag.attempt:08X}"


def _half_header(queue: int, key: str) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producerGroup=GROUP,
        topic=TOPIC,
        defaultTopic=AUTO_CREATE_TOPIC,
        defaultTopicQueueNums=QUEUES,
        queueId=queue,
        sysFlag=int(MessageSysFlag.TRANSACTION_PREPARED),
        bornTimestamp=time.time_ns() // 1_000_000,  # brokers reckon the age of a half from it
        flag=0,
        properties=encode_properties({"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP}).decode(),
    )


def _end_header(
    comes_to: int, key: str, offset: int, position: int, *, checked: bool = False
) -> EndTransactionRequestHeader:
    return EndTransactionRequestHeader(
        topic=TOPIC,
        producerGroup=GROUP,
        tranStateTableOffset=offset,
        commitLogOffset=position,
        commitOrRollback=comes_to,
        fromTransactionCheck=checked,
        msgId=key,
        transactionId=key,
        bname=BROKER,
    )
