"""A client whose every request is recorded: nothing is repeated, nothing is hidden.

Each `LoadClient` is one process of the history at a time: one operation under way; after one whose end is unknown it
goes on under a new number. Requests that wait share a RemotingClient with others, as the threads of an application do.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from chaos.load.errors import outcome
from chaos.load.recorder import Recorder
from client.api import BrokerApi, PullAnswer, PullRequest, PullStatus
from client.credentials import credentials_for
from client.nameservers import NameServers
from client.tls import tls_of
from pipeline.history.body import Tag, digest, make_body, read_tag
from pipeline.history.rows import UNKNOWN, Act, Kind, Op, Read
from remoting.bodies.registry import MessageQueue
from remoting.client import ClientHandler, RemotingClient
from remoting.codes import MessageSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import HeaderError, RemotingError, ResponseError
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.limits import ClientLimits
from remoting.message import MessageExt
from remoting.msgid import parse_offset_msg_id
from remoting.properties import PROPERTY_TIMER_DELIVER_MS, encode_properties
from remoting.record import encode_batch
from remoting.topics import AUTO_CREATE_TOPIC

TIMEOUT_S = 3.0
BROKER = "broker-a"
# An address that could not be reached is tried again after this at the latest.
BACKOFF_S_MAX = 0.1
# Before an idempotent send is made again.
AGAIN_S = 0.02
READ_BYTES = 4 * 1024 * 1024

# What a lock says that was not granted.
REFUSED = "held by another"
Leads = Callable[[str], Awaitable[int]]
"""Tells in which term the member at an address says that it leads; UNKNOWN when it does not."""

# An answer that lacks what it must have, or has it in another form, is no proof of anything either.
_NO_ANSWER = (RemotingError, TimeoutError, ValueError, KeyError)


class _NotGranted(Exception):
    """A lock is another client's."""


class Clients:
    """Those clients of a run that may be ended without a goodbye."""

    def __init__(self) -> None:
        self._crash: dict[str, Callable[[], Awaitable[None]]] = {}

    def add(self, name: str, crash: Callable[[], Awaitable[None]]) -> None:
        """Take a client: `crash` ends it."""
        self._crash[name] = crash

    def remove(self, name: str) -> None:
        """Forget a client that ended by itself."""
        self._crash.pop(name, None)

    async def crash(self, rng: random.Random) -> str:
        """End one of them; return what shows it, "" when there is none."""
        if not self._crash:
            return ""
        name = rng.choice(sorted(self._crash))
        await self._crash.pop(name)()
        return f"client {name} ended without goodbye"


class Leaders:
    """Where clients turn to: who leads by the route, or who answered last, and the next one after a failure."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self._at = 0

    @property
    def address(self) -> str:
        """Whom to ask now."""
        return self.addresses[self._at]

    def failed(self, address: str) -> None:
        """Note that nothing good came from there; whoever else said so meanwhile has moved on already."""
        if self.addresses[self._at] == address:
            self._at = (self._at + 1) % len(self.addresses)

    def routed(self, address: str) -> None:
        """Note who leads, as clients learn it when they look at the route; who is none of these is not asked."""
        if address in self.addresses:
            self._at = self.addresses.index(address)


def connections(name: str, handlers: Mapping[int, ClientHandler] | None = None) -> RemotingClient:
    """Return connections that several clients may share; must be closed. Made inside a running loop.

    They sign and encrypt as the environment says, which a run sets (chaos/host/security.py). `handlers` answer what
    brokers ask.
    """
    return RemotingClient(
        handlers,
        limits=ClientLimits(backoff_max_seconds=BACKOFF_S_MAX),
        name=name,
        tls=tls_of(None),
        credentials=credentials_for(None),
    )


class LoadClient:
    """One client. Methods return the operation as it ended; none of them raises for what a broker does."""

    def __init__(self, recorder: Recorder, remoting: RemotingClient, namesrv: str, name: str) -> None:
        self.recorder = recorder
        self.name = name
        self.api = BrokerApi(remoting, NameServers(remoting, (namesrv,)))
        self._remoting = remoting
        self._process = recorder.process()
        # For the further messages of a batch.
        self._others: list[int] = []

    async def send(self, address: str, topic: str, queue: int, tag: Tag, rest: bytes = b"") -> Op:
        """Send one attempt of a message."""
        body = make_body(tag, rest)
        request = self._request(topic, queue, RequestCode.SEND_MESSAGE_V2, _named(tag), body)

        async def told() -> dict[str, Any]:
            (found,) = await self._stored(address, request, 1)
            return found

        return await self._do(self._begin_send(address, topic, queue, tag, body, self._process), told)

    async def send_once(
        self,
        leaders: Leaders,
        topic: str,
        queue: int,
        tag: Tag,
        rest: bytes,
        patience_s: float,
        delay_ms: int = 0,
    ) -> Op:
        """Send a message again and again, as an idempotent one, until somebody says where it stands, for so long.

        `delay_ms`: it is a timer message, due then; where such a one waits is nothing that a reader could be held to.
        """
        body, properties, due = make_body(tag, rest), _named(tag), UNKNOWN
        if delay_ms:
            at_ms = time.time_ns() // 1_000_000 + delay_ms  # brokers deliver by the time of day
            due = self.recorder.now() + delay_ms * 1_000_000
            properties += encode_properties({PROPERTY_TIMER_DELIVER_MS: str(at_ms)}).decode()

        async def told() -> dict[str, Any]:
            loop = asyncio.get_running_loop()
            until, unsure = loop.time() + patience_s, None
            while True:
                address = leaders.address
                request = self._request(topic, queue, RequestCode.SEND_MESSAGE_V2, properties, body, once=True)
                try:
                    (found,) = await self._stored(address, request, 1)
                    return {} if delay_ms else found
                except _NO_ANSWER as error:
                    leaders.failed(address)
                    # What one attempt left open, a later one's refusal does not settle.
                    if unsure is None or outcome(error) is not Kind.FAIL:
                        unsure = error
                    if loop.time() >= until:
                        raise unsure from error
                await asyncio.sleep(AGAIN_S)

        begun = self._begin_send(leaders.address, topic, queue, tag, body, self._process, delay_until=due)
        return await self._do(begun, told)

    async def send_batch(
        self, address: str, topic: str, queue: int, tags: Sequence[Tag], rest: bytes = b""
    ) -> list[Op]:
        """Send messages that are stored together or not at all; each is an operation of a process of its own."""
        bodies = [make_body(tag, rest) for tag in tags]
        batch = encode_batch((0, body, _named(tag).encode()) for tag, body in zip(tags, bodies, strict=True))
        request = self._request(topic, queue, RequestCode.SEND_BATCH_MESSAGE, "WAIT\x01true\x02", batch)
        while len(self._others) < len(tags) - 1:
            self._others.append(self.recorder.process())
        ops = [
            self._begin_send(address, topic, queue, tag, body, process)
            for tag, body, process in zip(tags, bodies, [self._process, *self._others], strict=False)
        ]
        try:
            answers = await self._stored(address, request, len(tags))
            return [self.recorder.ok(op, **answer) for op, answer in zip(ops, answers, strict=True)]
        except _NO_ANSWER as error:
            done = [self.recorder.ended(op, error) for op in ops]
        except asyncio.CancelledError as error:
            for op in ops:
                self.recorder.ended(op, error)
            raise
        if done[0].kind == Kind.INFO:
            self._process = self.recorder.process()
            self._others.clear()
        return done

    async def poll(
        self,
        address: str,
        group: str,
        topic: str,
        queue: int,
        offset: int,
        *,
        count: int = 64,
        suspend_ms: int = 0,
        act: Act = Act.POLL,
        leader: str = "",
        leads: Leads | None = None,
        seen: Callable[[Sequence[MessageExt]], None] | None = None,
    ) -> Op:
        """Read from an offset; the messages are in the history, and `seen` gets them.

        `suspend_ms`: a long poll; `leader`: the address of who leads, if that is known for sure; `leads` finds that
        out: who says before the question and behind the answer that it leads in one and the same term led meanwhile.
        """
        term = await leads(address) if leads is not None else UNKNOWN
        op = self._begin(act, address, topic, queue, group=group, offset=offset, leader=leader)
        request = PullRequest(
            group, MessageQueue(topic, BROKER, queue), offset, count, "*", 0, suspend_ms, READ_BYTES,
        )  # fmt: skip

        async def told() -> dict[str, Any]:
            async with asyncio.timeout(TIMEOUT_S + suspend_ms / 1000):
                answer = await self.api.pull(address, request)
            self.recorder.reads(_read(op, message) for message in answer.messages)
            if seen is not None:
                seen(answer.messages)
            told: dict[str, Any] = {"value": _next(answer, offset), "end": answer.max_offset}
            if leads is not None and term != UNKNOWN and await leads(address) == term:
                told["leader"] = address
            return told

        return await self._do(op, told)

    async def commit(self, address: str, group: str, topic: str, queue: int, offset: int) -> Op:
        """Store a group's offset."""
        op = self._begin(Act.COMMIT, address, topic, queue, group=group, value=offset)

        async def told() -> dict[str, Any]:
            await self.api.commit(address, group, MessageQueue(topic, BROKER, queue), offset)
            return {}

        return await self._do(op, told)

    async def query(self, address: str, group: str, topic: str, queue: int) -> Op:
        """Ask for a group's offset: `value`, UNKNOWN when none is stored."""
        op = self._begin(Act.QUERY, address, topic, queue, group=group)

        async def told() -> dict[str, Any]:
            found = await self.api.committed(address, group, MessageQueue(topic, BROKER, queue))
            return {"value": UNKNOWN if found is None else found}

        return await self._do(op, told)

    async def lock(self, address: str, group: str, topic: str, queue: int) -> Op:
        """Lock a queue for this client, or renew its lock; FAIL with the words REFUSED when another has it."""
        op = self._begin(Act.LOCK, address, topic, queue, group=group)
        wanted = MessageQueue(topic, BROKER, queue)

        async def told() -> dict[str, Any]:
            if wanted not in await self.api.lock(address, group, self.name, [wanted]):
                raise _NotGranted
            return {}

        try:
            return await self._do(op, told)
        except _NotGranted:
            return self.recorder.fail(op, REFUSED)

    async def unlock(self, address: str, group: str, topic: str, queue: int) -> Op:
        """Give a locked queue back."""
        op = self._begin(Act.UNLOCK, address, topic, queue, group=group)

        async def told() -> dict[str, Any]:
            await self.api.unlock(address, group, self.name, [MessageQueue(topic, BROKER, queue)])
            return {}

        return await self._do(op, told)

    async def edge(self, act: Act, address: str, topic: str, queue: int) -> Op:
        """Ask for the end (Act.MAX) or the begin (Act.MIN) of a queue: the leader's answer, whoever passes it on."""
        op = self._begin(act, address, topic, queue, leader=address)
        ask = self.api.max_offset if act is Act.MAX else self.api.min_offset

        async def told() -> dict[str, Any]:
            return {"value": await ask(address, MessageQueue(topic, BROKER, queue))}

        return await self._do(op, told)

    async def call(self, act: Act, address: str, told: Callable[[], Awaitable[dict[str, Any]]], **fields: Any) -> Op:
        """Do and record anything else: `told` returns what its answer adds to the operation."""
        return await self._do(self._begin(act, address, **fields), told)

    def _request(
        self, topic: str, queue: int, code: int, properties: str, body: bytes, *, once: bool = False
    ) -> Command:
        header = SendMessageRequestHeaderV2(
            producerGroup=f"chaos-{self.name}",
            topic=topic,
            defaultTopic=AUTO_CREATE_TOPIC,
            defaultTopicQueueNums=4,
            queueId=queue,
            sysFlag=int(MessageSysFlag.IDEMPOTENT) if once else 0,
            bornTimestamp=1,
            flag=0,
            properties=properties,
            batch=code == RequestCode.SEND_BATCH_MESSAGE,
        )
        return Command.request(code, header, body)

    async def _stored(self, address: str, request: Command, count: int) -> list[dict[str, Any]]:
        """Send, and return where each message of the request stands."""
        answer = await self._remoting.invoke(address, request, TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, address)
        ids = answer.ext["msgId"].split(",")
        if len(ids) != count:
            raise HeaderError(f"{address} names {len(ids)} places of {count} messages")
        queue, first = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
        return [
            {"queue": queue, "offset": first + number, "position": parse_offset_msg_id(text)[1]}
            for number, text in enumerate(ids)
        ]

    def _begin_send(self, address: str, topic: str, queue: int, tag: Tag, body: bytes, process: int, **more: Any) -> Op:
        return self.recorder.invoke(
            Act.SEND, process, topic=topic, queue=queue, broker=BROKER, address=address,
            writer=tag.writer, counter=tag.counter, attempt=tag.attempt, digest=digest(body), **more,
        )  # fmt: skip

    def _begin(self, act: Act, address: str, topic: str = "", queue: int = UNKNOWN, **fields: Any) -> Op:
        return self.recorder.invoke(
            act, self._process, topic=topic, queue=queue, broker=BROKER, address=address, **fields
        )

    async def _do(self, op: Op, told: Callable[[], Awaitable[dict[str, Any]]]) -> Op:
        try:
            done = self.recorder.ok(op, **await told())
        except _NO_ANSWER as error:
            done = self.recorder.ended(op, error)
        except asyncio.CancelledError as error:
            self.recorder.ended(op, error)
            raise
        if done.kind == Kind.INFO:
            self._process = self.recorder.process()
        return done


def _named(tag: Tag) -> str:
    """Return the properties of a message as they are sent."""
    key = f"{tag.writer:08X}{tag.counter:016X}{tag.attempt:08X}"
    return encode_properties({"UNIQ_KEY": key}).decode()


def _read(op: Op, message: MessageExt) -> Read:
    tag = read_tag(message.body) or Tag(UNKNOWN, UNKNOWN, 0)
    return Read(
        op.op, message.topic, message.queue_id, message.queue_offset, message.physical_offset,
        *tag, digest(message.body), message.properties.get("__transactionId__", ""),
    )  # fmt: skip


def _next(answer: PullAnswer, offset: int) -> int:
    """Return the offset to go on from: where there is nothing, a slave may name another one, which is not ours."""
    return answer.next_offset if answer.status is not PullStatus.NO_NEW else offset
