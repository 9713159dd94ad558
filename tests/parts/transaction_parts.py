"""What tests of transactions send: prepared messages and their ends, as official clients form them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from broker.replication import CODES, BatchDone, Done
from broker.transactions.halves import Half
from broker.transactions.loading import GROUP as PROGRESS_GROUP
from broker.transactions.service import Transactions
from remoting.bodies.registry import HeartbeatData, ProducerData, TopicConfig
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import BacklogFull, CommandError
from remoting.headers.registry import EndTransactionRequestHeader, Header, SendMessageRequestHeaderV2
from remoting.message import MessageExt
from remoting.msgid import offset_msg_id, pack_host, parse_offset_msg_id
from remoting.record import decode_record
from remoting.server import Connection
from remoting.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.messagestore import MessageStore
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.broker_parts import HOST, Parts, Timer, broker_parts

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "TxGroup"


def prepared(key: str, topic: str = "T", queue_id: int = 0, more: str = "") -> SendMessageRequestHeaderV2:
    """A half message, as the Java client sends it."""
    return SendMessageRequestHeaderV2(
        producerGroup=GROUP,
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=queue_id,
        sysFlag=4,
        bornTimestamp=1_700_000_000_000,
        flag=7,
        properties=f"KEYS\x01{key}\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02PGROUP\x01{GROUP}\x02"
        f"TAGS\x01Tx\x02{more}",
        reconsumeTimes=0,
    )


def ends(
    stored: Mapping[str, str], how: int, *, group: str = GROUP, checked: bool = False
) -> EndTransactionRequestHeader:
    """The end of a transaction whose half message was answered with these fields."""
    return EndTransactionRequestHeader(
        topic="T",
        producerGroup=group,
        tranStateTableOffset=int(stored["queueOffset"]),
        commitLogOffset=parse_offset_msg_id(stored["msgId"])[1],
        commitOrRollback=how,
        fromTransactionCheck=checked,
        msgId=stored["transactionId"],
        transactionId=stored["transactionId"],
    )


class Log:
    """A replication over a real store: all is stored at once, and acknowledged then or when the test says."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.held: list[Callable[[], None]] | None = None
        """Acknowledgements that wait; None: none does."""
        self.refuses: tuple[PutStatus, int] | None = None

    def append(self, record: PendingRecord, done: Done, **_when: object) -> None:
        self._store_all([record], lambda results, code: done(results[0], code))

    def append_batch(self, records: Sequence[PendingRecord], done: BatchDone, **_when: object) -> None:
        self._store_all(records, done)

    def release(self) -> None:
        """Acknowledge what waits, and from here on at once."""
        held, self.held = self.held or [], None
        for call in held:
            call()

    def _store_all(self, records: Sequence[PendingRecord], done: BatchDone) -> None:
        if self.refuses is not None:
            done([PutResult(self.refuses[0])], self.refuses[1])
            return
        results = self._store.put_batch(records)
        self._store.write()
        if self.held is None:
            done(results, CODES[results[0].status])
        else:
            self.held.append(lambda: done(results, CODES[results[0].status]))


class Client:
    """A producer's connection: keeps its answers and what it was asked."""

    def __init__(self) -> None:
        self.closed = False
        self.full = False
        self.peer = ("10.0.0.9", 40000)
        self.peer_host = pack_host("10.0.0.9", 40000)
        self.answers: list[Command] = []
        self.asked: list[Command] = []

    def reply(self, request: Command, response: Command) -> None:
        if not request.is_oneway:
            self.answers.append(response)

    def send_oneway(self, request: Command) -> None:
        if self.full:
            raise BacklogFull("full")
        self.asked.append(request)


class TransactionSite:
    """The transactions of a broker's parts, with a clock and timers that the test moves."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.clock, self.store = parts, parts.clock, parts.store
        self.log = Log(parts.store)
        self.elsewhere: list[Command] = []
        self.timers: list[Timer] = []
        self.client = Client()
        self.service = Transactions(
            parts.context(),
            parts.tables,
            self.log,
            lambda _connection, request: self.elsewhere.append(request),
            mends=False,
            later=self._later,
        )
        self._keys = 0
        self._flushed = asyncio.Event()
        loop = asyncio.get_running_loop()
        parts.told.flushed = lambda _position: loop.call_soon_threadsafe(self._flushed.set)
        parts.topics.update(TopicConfig("T", 4, 4))

    async def flushed(self) -> None:
        """Return when everything written is on the disk."""
        while self.store.flushed < self.store.written:
            self._flushed.clear()
            self.store.flush_soon(self.store.written)
            await self._flushed.wait()

    def _later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.clock.monotonic() + seconds, call))
        return self.timers[-1]

    async def lead(self) -> None:
        """Begin to lead: read what the queues hold."""
        await self.service.read()

    async def round(self, seconds: float = 30.0) -> list[Command]:
        """Let time pass and do a round; returns whom the client was asked about."""
        self.clock.advance(seconds)
        before = len(self.client.asked)
        await self.service.checker.round()
        return self.client.asked[before:]

    def connect(self, client: Client | None = None, group: str = GROUP) -> None:
        """Have a producer known."""
        data = HeartbeatData(clientID="c", producerDataSet=[ProducerData(groupName=group)])
        self.parts.clients.heartbeat(client or self.client, data, 0, 500)

    def prepare(self, key: str = "", more: str = "", topic: str = "T") -> dict[str, str]:
        """Store a half; returns what its sender is answered."""
        self._keys += 1
        key = key or f"K{self._keys}"
        told = self.prepare_later(key, more, topic)
        return {
            "queueOffset": str(told[0].queue_offset),
            "msgId": offset_msg_id(HOST, told[0].physical_offset),
            "transactionId": key,
        }

    def prepare_later(self, key: str, more: str = "", topic: str = "T") -> list[PutResult]:
        """Store a half; what became of it stands in the list once it is acknowledged."""
        text = prepared(key, more=more).properties or ""
        record = PendingRecord(
            topic, 1, 7, 0, self.clock.now_ms(), self.client.peer_host, 0, 0, key.encode(), text.encode()
        )
        told: list[PutResult] = []
        self.service.prepare(record, lambda result, _code: told.append(result))
        return told

    def ask(self, code: int, header: Header, *, oneway: bool = False) -> object:
        """Send a request; returns what the handler did."""
        request = Command.request(code, header, oneway=oneway)
        try:
            return self.service.table()[code](cast(Connection, self.client), request)
        except CommandError as error:
            return Command.response(error.code, error.remark)

    def end(self, stored: Mapping[str, str], how: int, *, oneway: bool = False, checked: bool = False) -> int | None:
        """End a transaction; returns the code of the answer, None when there is none yet."""
        before = len(self.client.answers)
        header = ends(stored, how, checked=checked)
        answer = self.ask(RequestCode.END_TRANSACTION, header, oneway=oneway)
        if isinstance(answer, Command):
            return answer.code
        return self.client.answers[before].code if len(self.client.answers) > before else None

    def answered(self, question: Command, how: int) -> int | None:
        """End a transaction as a producer does that was asked about it."""
        said = {
            "queueOffset": question.ext["tranStateTableOffset"],
            "msgId": question.ext["offsetMsgId"],
            "transactionId": question.ext["transactionId"],
        }
        return self.end(said, how, checked=True)

    @property
    def pending(self) -> dict[int, Half]:
        """What is undecided, by root."""
        table = self.service.ending.table
        assert table is not None
        return table.pending

    def records(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        """The messages of a queue."""
        entries = self.store.queue_entries(topic, queue_id, self.store.min_offset(topic, queue_id), 10_000)
        found = [self.store.record_at(entry.physical_offset) for entry in entries]
        return [decode_record(record) for record in found if record is not None]

    def delivered(self, topic: str = "T") -> list[str]:
        """The keys of what consumers get."""
        return [message.body.decode() for message in self.records(topic, 1)]

    def ops(self) -> list[str]:
        """The bodies of the op messages."""
        return [bytes(message.body).decode() for message in self.records(TRANS_OP_HALF_TOPIC)]

    def committed(self) -> tuple[int, int]:
        """The offsets that are committed in the half queue and the op queue."""
        query = self.parts.offsets.query
        return query(PROGRESS_GROUP, TRANS_HALF_TOPIC, 0), query(PROGRESS_GROUP, TRANS_OP_HALF_TOPIC, 0)


@asynccontextmanager
async def transaction_site(folder: Path, **broker: Any) -> AsyncIterator[TransactionSite]:
    async with broker_parts(folder, **broker) as parts:
        site = TransactionSite(parts)
        await site.lead()
        yield site
        await site.service.close()
