"""Sending: codes 10, 310 and 320.

This is the hot path of the broker: straight-line code, no task, future or map per message. A message is checked,
becomes a PendingRecord, and its answer is parked as one partial call that the replication completes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from broker.messages.delayed_record import waiting
from broker.messages.held import HeldRequests
from broker.messages.idempotent import IdempotentSends
from broker.messages.priorities import by_priority
from broker.messages.recent_records import IDEMPOTENT_FLAG
from broker.messages.send_answers import SendAnswers
from broker.messages.send_checks import (
    CLIENT_SYS_FLAGS,
    PREPARED,
    MessageChecks,
    Target,
    check_sys_flag,
    special,
    special_bytes,
    too_long,
    wait_seconds_max,
    waited_too_long,
)
from broker.messages.timed_record import recall_handle
from broker.replication import Replication
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.codes import MessageSysFlag, RequestCode, ResponseCode
from remoting.command import HEADER_BYTES_FREE, Command
from remoting.errors import CommandError
from remoting.headers.registry import SendMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.properties import PROPERTIES_BYTES_MAX
from remoting.record import RecordError, batch_columns, split_batch
from remoting.runs import SEND_RUN, SendRun
from remoting.server import Connection, Handler
from store.recordbatch import RecordBatch
from store.recordrun import RecordRun
from store.types import PendingRecord

_UNIQ_KEY = "\x02UNIQ_KEY\x01"
_UNIQ_KEY_LENGTH = len(_UNIQ_KEY)
# Stores a record; see Replication.append.
Append = Callable[..., None]
# Messages in one batch; at 4 MiB of body a batch of messages with any content has fewer.
BATCH_MESSAGES_MAX = 65_536


class SendHandlers:
    """Handlers of the send requests."""

    def __init__(
        self,
        live: LiveConfig,
        checks: MessageChecks,
        replication: Replication,
        answers: SendAnswers,
        new_uniq_key: Callable[[], str],
        prepare: Append | None = None,
        idempotent: IdempotentSends | None = None,
    ) -> None:
        """`prepare` stores a transaction's half message; `idempotent` stands in front of the replication."""
        self._live = live
        self._checks = checks
        self._append = replication.append
        self._prepare = replication.append if prepare is None else prepare
        self._append_batch = replication.append_batch
        self._new_uniq_key = new_uniq_key
        self._answers, self._answer, self._answer_once = answers, answers.stored, answers.stored_once
        self.answers = answers.counts
        """How often a send was answered with each code."""
        self._held = HeldRequests()
        self._idempotent = idempotent
        # The flags of a send that ask for it, and what a send has anyway when all are to be.
        self._asks = self._all = 0
        self._config: BrokerConfig | None = None
        self._suffix, self._run_suffix = "", b""
        self._body_bytes_max = 0
        self._wait_seconds_max = 0.0
        self._reload()

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
            SEND_RUN: cast(Handler, self.send_run),
        }

    def send_run(self, connection: Connection, run: SendRun) -> SendRun | None:
        """Store usual sends that came together; return them when anything is unusual about them or the moment."""
        if self._live.broker is not self._config:
            self._reload()
        rows, suffix = run.rows, self._run_suffix
        sys_flags = self._checks.run_flags(rows.topics, rows.queues_max)
        if (
            sys_flags is None
            or run.waited > self._wait_seconds_max
            or self._all
            or rows.sys_flags & (self._asks | ~CLIENT_SYS_FLAGS)
            or rows.body_max > self._body_bytes_max
            or rows.properties_max + len(suffix) > PROPERTIES_BYTES_MAX
        ):
            return run
        records = RecordRun(rows, sys_flags, connection.peer_host, suffix)
        self._append_batch(records, partial(self._answers.run_stored, connection, run, records), until=run.until)
        return None

    def send(self, connection: Connection, request: Command) -> None:
        """Store a message (SEND_MESSAGE 10)."""
        header = request.header(SendMessageRequestHeader)
        # The C++ client sends batch=1 with an encoded batch, which RocketMQ keeps as one message: only "true" counts.
        batch = header.batch and request.ext.get("batch", "").lower() == "true"
        try:
            (self._send_batch if batch else self._send)(connection, request, header)
        except CommandError as error:
            raise self._told(error) from None

    def send_v2(self, connection: Connection, request: Command) -> None:
        """Store a message (SEND_MESSAGE_V2 310)."""
        header = request.typed_header
        if type(header) is not SendMessageRequestHeaderV2:
            header = request.header(SendMessageRequestHeaderV2)
        try:
            if header.batch and request.ext.get("m", "").lower() == "true":
                self._send_batch(connection, request, header)
            else:
                self._send(connection, request, header)
        except CommandError as error:
            raise self._told(error) from None

    def send_batch(self, connection: Connection, request: Command) -> None:
        """Store several messages next to one another (SEND_BATCH_MESSAGE 320)."""
        header = request.header(SendMessageRequestHeaderV2)
        try:
            self._send_batch(connection, request, header)
        except CommandError as error:
            raise self._told(error) from None

    def _told(self, error: CommandError) -> CommandError:
        """Return a refusal with the fields that every answer to a send has."""
        error.ext = self._answers.ext
        self.answers[error.code] += 1
        return error

    def _send(self, connection: Connection, request: Command, header: SendMessageRequestHeader) -> None:
        if self._live.broker is not self._config:
            self._reload()
        if request.waited > self._wait_seconds_max:
            raise waited_too_long(connection, request)
        checks = self._checks
        target = checks.target(header, connection)
        queue_id = header.queueId
        if not 0 <= queue_id < target.queue_limit:
            queue_id = checks.queue(target, queue_id)
        topic = header.topic
        dead = False
        if target.retry_group is not None and (letter := checks.dead_letter(target.retry_group, header)) is not None:
            topic, queue_id, dead = letter, 0, True

        text = header.properties or ""
        marked = "\x02" + text
        waits, level, out_ms = True, 0, 0
        if special(marked) is not None:
            if not dead:
                text, queue_id = by_priority(text, queue_id, target.write_queues)
            text, waits, level, out_ms = checks.properties(
                text, dead_letter=dead, again=header.reconsumeTimes or 0, group=header.producerGroup
            )
            marked = "\x02" + text
        at = marked.find(_UNIQ_KEY)
        if at >= 0:
            at += _UNIQ_KEY_LENGTH
            end = marked.find("\x02", at)
            uniq_key, stored = marked[at:end] if end >= 0 else marked[at:], text
        else:
            uniq_key = self._new_uniq_key()
            stored = f"UNIQ_KEY\x01{uniq_key}{marked}"
        if stored[-1] != "\x02":
            stored += "\x02"
        properties = (stored + self._suffix).encode()
        body = request.body
        if len(properties) > PROPERTIES_BYTES_MAX or len(body) > self._body_bytes_max:
            checks.check_size(len(body), len(properties))

        sys_flag = header.sysFlag
        once = (sys_flag | self._all) & self._asks
        if sys_flag & ~CLIENT_SYS_FLAGS:
            sys_flag = check_sys_flag(sys_flag, transaction=level == PREPARED or bool(header.reconsumeTimes))
        record = PendingRecord(
            topic,
            queue_id,
            header.flag,
            sys_flag | target.sys_flag | once,
            header.bornTimestamp,
            connection.peer_host,
            header.reconsumeTimes or 0,
            0,
            body,
            properties,
        )
        append = self._append
        done = partial(self._answer_once if once else self._answer, connection, request, queue_id, uniq_key)
        if level or out_ms:
            record, done, append = self._unusual(record, level, out_ms, done)
        raw = request.raw_header
        if raw is None or (len(raw) > HEADER_BYTES_FREE and len(raw) > len(text) + HEADER_BYTES_FREE):
            done = self._held.hold(request.header_bytes - len(text), done)
        if target.fresh is not None:
            done = target.fresh.behind(header.topic, done)
        if once and self._idempotent is not None:
            until = request.until
            self._idempotent.append(topic, uniq_key, queue_id, record, done, wait=waits, until=until, append=append)
        else:
            append(record, done, wait=waits, until=request.until)

    def _unusual(
        self, record: PendingRecord, level: int, out_ms: int, done: "partial[None]"
    ) -> tuple[PendingRecord, "partial[None]", Append]:
        """Return what is stored of a message that is not delivered at once, who answers it, and who stores it."""
        if level == PREPARED:
            return record, done, self._prepare
        if level:
            return waiting(record, level), done, self._append
        config = self._live.broker
        connection, request, queue_id, uniq_key = done.args
        handle = recall_handle(record.topic, config.name(), out_ms, uniq_key) if config.recallMessageEnable else None
        told = partial(self._answers.timer_stored, connection, request, queue_id, uniq_key, handle)
        return self._checks.timed(record, out_ms), told, self._append

    def _send_batch(self, connection: Connection, request: Command, header: SendMessageRequestHeader) -> None:
        if self._live.broker is not self._config:
            self._reload()
        if request.waited > self._wait_seconds_max:
            raise waited_too_long(connection, request)
        target = self._checks.target(header, connection)
        if target.retry_group is not None:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group")
        queue_id = self._checks.queue(target, header.queueId)
        outer = "\x02" + (header.properties or "")
        waits = True
        if special(outer) is not None:
            waits = self._checks.properties(outer[1:], batch=True).waits
        if len(request.body) > self._live.store.maxMessageSize:
            raise too_long(len(request.body), 0, self._live.store.maxMessageSize)
        records = self._records_of(connection, request, header, target, queue_id)
        at = outer.find(_UNIQ_KEY)
        uniq_key = outer[at + _UNIQ_KEY_LENGTH :].partition("\x02")[0] if at >= 0 else None
        once = (header.sysFlag | self._all) & self._asks
        answers = self._answers
        done = partial(answers.stored_once if once else answers.batch_stored, connection, request, queue_id, uniq_key)
        done = self._held.hold(request.header_bytes, done)
        if target.fresh is not None:
            done = target.fresh.behind(header.topic, done)
        if once and self._idempotent is not None:
            self._idempotent.append_batch(header.topic, queue_id, records, done, wait=waits, until=request.until)
        else:
            self._append_batch(records, done, wait=waits, until=request.until)

    def _records_of(
        self,
        connection: Connection,
        request: Command,
        header: SendMessageRequestHeader,
        target: Target,
        queue_id: int,
    ) -> Sequence[PendingRecord]:
        """Unpack a batch; each message keeps the properties that the client gave it, as RocketMQ does."""
        topic, born, host = header.topic, header.bornTimestamp, connection.peer_host
        sys_flag = check_sys_flag(header.sysFlag) & ~int(MessageSysFlag.COMPRESSED) | target.sys_flag
        sys_flag |= (header.sysFlag | self._all) & self._asks
        if (columns := _plain_columns(bytes(request.body))) is not None:
            return RecordBatch(topic, queue_id, sys_flag, (born, host), columns)
        records = []
        try:
            for flag, body, properties in split_batch(request.body):
                text = bytes(properties)
                if special("\x02" + text.decode("utf-8", "replace")) is not None:
                    text = self._checks.properties(text.decode(), batch=True).text.encode()
                elif text and text[-1] != 2:
                    text += b"\x02"
                if len(text) > PROPERTIES_BYTES_MAX:
                    self._checks.check_size(len(body), len(text))
                records.append(PendingRecord(topic, queue_id, flag, sys_flag, born, host, 0, 0, body, text))
                if len(records) > BATCH_MESSAGES_MAX:
                    raise RecordError(f"more than {BATCH_MESSAGES_MAX} messages")
        except (RecordError, UnicodeDecodeError) as error:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, f"the batch is malformed: {error}") from None
        if not records:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        return records

    def _reload(self) -> None:
        """Make what depends on the configuration only."""
        self._config = config = self._live.broker
        self._asks = IDEMPOTENT_FLAG if config.enableIdempotentProducer and self._idempotent is not None else 0
        self._all = IDEMPOTENT_FLAG if config.idempotentForAllProducers else 0
        traced = "true" if config.traceOn else "false"
        self._answers.reconfigure(config)
        self._suffix = (
            f"MSG_REGION\x01{config.regionId}\x02TRACE_ON\x01{traced}\x02CLUSTER\x01{config.brokerClusterName}\x02"
        )
        self._run_suffix = self._suffix.encode()
        self._body_bytes_max = self._live.store.maxMessageSize
        self._wait_seconds_max = wait_seconds_max(config)


def _plain_columns(body: bytes) -> tuple[list[int], list[bytes], list[bytes]] | None:
    """Return the messages of a batch as they are stored, None when one of them wants to be looked at by itself."""
    columns = batch_columns(body, BATCH_MESSAGES_MAX)
    if columns is None:
        return None
    flags, bodies, properties = columns
    if not flags or special_bytes(b"\x02" + b"\x02".join(properties)) is not None:
        return None
    if {text[-1:] for text in properties} != {b"\x02"}:
        properties = [text if not text or text[-1] == 2 else text + b"\x02" for text in properties]
        if max(map(len, properties)) > PROPERTIES_BYTES_MAX:
            return None
    return flags, bodies, properties
