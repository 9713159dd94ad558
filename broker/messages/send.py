"""Sending: codes 10, 310 and 320.

This is the hot path of the broker: straight-line code, no task, future or map per message. A message is checked,
becomes a PendingRecord, and its answer is parked as one partial call that the replication completes.
"""

import struct
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import orjson

from broker.messages.delayed_record import waiting
from broker.messages.held import HEADER_BYTES_FREE, HeldRequests
from broker.messages.send_checks import (
    CLIENT_SYS_FLAGS,
    PREPARED,
    MessageChecks,
    Target,
    check_sys_flag,
    remark_of,
    special,
    too_long,
)
from broker.replication import Replication
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.codes import VERSION, MessageSysFlag, RequestCode, ResponseCode
from remoting.command import JSON, ONEWAY_FLAG, Command
from remoting.errors import CommandError
from remoting.headers.registry import SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader
from remoting.properties import PROPERTIES_BYTES_MAX
from remoting.record import RecordError, split_batch
from remoting.server import Connection, Handler
from store.types import PendingRecord, PutResult, PutStatus

_words = struct.Struct(">II").pack
_UNIQ_KEY = "\x02UNIQ_KEY\x01"
_UNIQ_KEY_LENGTH = len(_UNIQ_KEY)
_NOT_LEADER = int(ResponseCode.NOT_LEADER_FOR_QUEUE)
# Stores a record; see Replication.append.
Append = Callable[..., None]
# Takes a request that this broker cannot serve, and sees to it that it is answered.
Elsewhere = Callable[[Connection, Command], None]
# Messages in one batch; at 4 MiB of body a batch of messages with any content has fewer.
BATCH_MESSAGES_MAX = 65_536
_FOREVER = float("inf")


class SendHandlers:
    """Handlers of the send requests."""

    def __init__(
        self,
        live: LiveConfig,
        checks: MessageChecks,
        replication: Replication,
        store_host: bytes,
        new_uniq_key: Callable[[], str],
        on_failure: Callable[[], None],
        elsewhere: Elsewhere | None = None,
        prepare: Append | None = None,
    ) -> None:
        """`store_host` as records hold it; `on_failure` counts a send that was refused by the store.

        `elsewhere` takes what the replication gives back with NOT_LEADER_FOR_QUEUE: it is in no log, and another
        broker may store it. Without one the client gets that code. `prepare` stores a transaction's half message.
        """
        self._live = live
        self._checks = checks
        self._append = replication.append
        self._prepare = replication.append if prepare is None else prepare
        self._append_batch = replication.append_batch
        self._id_prefix = store_host.hex().upper()
        self._new_uniq_key = new_uniq_key
        self._on_failure = on_failure
        self._elsewhere = elsewhere
        self._held = HeldRequests()
        self.answers: defaultdict[int, int] = defaultdict(int)
        """How often a send was answered with each code."""
        self._config: BrokerConfig | None = None
        self._suffix = ""
        self._body_bytes_max = 0
        self._wait_seconds_max = _FOREVER
        self._template = b""
        self._ext: dict[str, str] = {}
        self._reload()

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
        }

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
        error.ext = self._ext
        self.answers[error.code] += 1
        return error

    def _send(self, connection: Connection, request: Command, header: SendMessageRequestHeader) -> None:
        if self._live.broker is not self._config:
            self._reload()
        if request.waited > self._wait_seconds_max:
            raise _waited_too_long(connection, request)
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
        waits, level = True, 0
        if special(marked) is not None:
            again = header.reconsumeTimes or 0
            text, waits, level = checks.properties(text, dead_letter=dead, again=again, group=header.producerGroup)
            marked = "\x02" + text
        at = marked.find(_UNIQ_KEY)
        if at >= 0:
            end = marked.find("\x02", at + _UNIQ_KEY_LENGTH)
            uniq_key = marked[at + _UNIQ_KEY_LENGTH : end] if end >= 0 else marked[at + _UNIQ_KEY_LENGTH :]
        else:
            uniq_key = self._new_uniq_key()
            marked = f"\x02UNIQ_KEY\x01{uniq_key}{marked}"
        if marked[-1] != "\x02":
            marked += "\x02"
        properties = (marked[1:] + self._suffix).encode()
        body = request.body
        if len(properties) > PROPERTIES_BYTES_MAX or len(body) > self._body_bytes_max:
            checks.check_size(len(body), len(properties))

        sys_flag = header.sysFlag
        if sys_flag & ~CLIENT_SYS_FLAGS:
            sys_flag = check_sys_flag(sys_flag, transaction=level == PREPARED or bool(header.reconsumeTimes))
        record = PendingRecord(
            topic,
            queue_id,
            header.flag,
            sys_flag | target.sys_flag,
            header.bornTimestamp,
            connection.peer_host,
            header.reconsumeTimes or 0,
            0,
            body,
            properties,
        )
        append = self._append
        if level > 0:
            record = waiting(record, level)
        elif level == PREPARED:
            append = self._prepare
        done = partial(self._stored, connection, request, queue_id, uniq_key)
        if (raw := request.raw_header) is None or len(raw) > len(text) + HEADER_BYTES_FREE:
            done = self._held.hold(request.header_bytes - len(text), done)
        if request.until:
            append(record, done, wait=waits, until=request.until)
        else:
            append(record, done, wait=waits)

    def _stored(
        self, connection: Connection, request: Command, queue_id: int, uniq_key: str, result: PutResult, code: int
    ) -> None:
        """Answer one message."""
        self.answers[code] += 1
        if code and (code == _NOT_LEADER or result.status is not PutStatus.PUT_OK):
            self._not_stored(connection, request, result, code)
        elif request.flag & ONEWAY_FLAG:
            return
        elif request.serialize_type == JSON and (key := uniq_key.encode()).isalnum():
            head = self._template % (
                code,
                queue_id,
                key,
                result.physical_offset,
                result.queue_offset,
                request.opaque,
            )
            length = len(head)
            connection.write(_words(length + 4, length) + head)
        else:
            msg_id = f"{self._id_prefix}{result.physical_offset:016X}"
            self._reply(connection, request, code, queue_id, uniq_key, msg_id, result.queue_offset)

    def _send_batch(self, connection: Connection, request: Command, header: SendMessageRequestHeader) -> None:
        if self._live.broker is not self._config:
            self._reload()
        if request.waited > self._wait_seconds_max:
            raise _waited_too_long(connection, request)
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
        done = partial(self._batch_stored, connection, request, queue_id, uniq_key)
        done = self._held.hold(request.header_bytes, done)
        self._append_batch(records, done, wait=waits, until=request.until)

    def _records_of(
        self,
        connection: Connection,
        request: Command,
        header: SendMessageRequestHeader,
        target: Target,
        queue_id: int,
    ) -> list[PendingRecord]:
        """Unpack a batch; each message keeps the properties that the client gave it, as RocketMQ does."""
        topic, born, host = header.topic, header.bornTimestamp, connection.peer_host
        sys_flag = check_sys_flag(header.sysFlag) & ~int(MessageSysFlag.COMPRESSED) | target.sys_flag
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

    def _batch_stored(
        self,
        connection: Connection,
        request: Command,
        queue_id: int,
        uniq_key: str | None,
        results: list[PutResult],
        code: int,
    ) -> None:
        """Answer a batch: all offset ids, and the first queue offset."""
        self.answers[code] += 1
        first = results[0]
        if code and (code == _NOT_LEADER or first.status is not PutStatus.PUT_OK):
            self._not_stored(connection, request, first, code)
            return
        msg_ids = ",".join([f"{self._id_prefix}{result.physical_offset:016X}" for result in results])
        self._reply(connection, request, code, queue_id, uniq_key, msg_ids, first.queue_offset)

    def _not_stored(self, connection: Connection, request: Command, result: PutResult, code: int) -> None:
        """Hand a send on that only another broker can store; refuse any other."""
        if code == _NOT_LEADER and self._elsewhere is not None:
            self._elsewhere(connection, request)
            return
        self._on_failure()
        connection.reply(request, Command.response(code, remark_of(result.status), ext=self._ext))

    def _reply(
        self,
        connection: Connection,
        request: Command,
        code: int,
        queue_id: int,
        uniq_key: str | None,
        msg_id: str,
        queue_offset: int,
    ) -> None:
        header = SendMessageResponseHeader(
            msgId=msg_id, queueId=queue_id, queueOffset=queue_offset, transactionId=uniq_key
        )
        connection.reply(request, Command.response(code, header=header, ext=self._ext))

    def _reload(self) -> None:
        """Make what depends on the configuration only."""
        self._config = config = self._live.broker
        traced = "true" if config.traceOn else "false"
        self._ext = {"MSG_REGION": config.regionId, "TRACE_ON": traced}
        self._suffix = (
            f"MSG_REGION\x01{config.regionId}\x02TRACE_ON\x01{traced}\x02CLUSTER\x01{config.brokerClusterName}\x02"
        )
        self._body_bytes_max = self._live.store.maxMessageSize
        self._wait_seconds_max = config.waitTimeMillsInSendQueue / 1000 if config.brokerFastFailureEnable else _FOREVER
        region = orjson.dumps(config.regionId).replace(b"%", b"%%")
        self._template = (
            b'{"code":%d,"extFields":{"queueId":"%d","transactionId":"%b","msgId":"'
            + self._id_prefix.encode()
            + b'%016X","TRACE_ON":"'
            + traced.encode()
            + b'","MSG_REGION":'
            + region
            + b',"queueOffset":"%d"},"flag":1,"language":"JAVA","opaque":%d,'
            b'"serializeTypeCurrentRPC":"JSON","version":' + str(VERSION).encode() + b"}"
        )


def _waited_too_long(connection: Connection, request: Command) -> CommandError:
    """Return the refusal of a send whose turn came so late that its client gives it up: RocketMQ's words."""
    return CommandError(
        ResponseCode.SYSTEM_BUSY,
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        f"{request.waited * 1000:.0f}ms, size of queue: {connection.unserved} bytes",
    )
