"""Answers to sends: of one message, a batch, a timer message, and one that was stored before."""

import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import orjson

from broker.messages.idempotent import FirstResult
from broker.messages.send_checks import remark_of
from broker.replication import CODES
from broker.settings.config import BrokerConfig
from remoting.codes import VERSION, ResponseCode
from remoting.command import JSON, ONEWAY_FLAG, Command
from remoting.headers.registry import SendMessageResponseHeader
from remoting.runs import SendRun
from remoting.server import Connection
from store.recordrun import RecordRun
from store.types import PutResult, PutStatus

_words = struct.Struct(">II").pack
_NOT_LEADER = int(ResponseCode.NOT_LEADER_FOR_QUEUE)
# Messages of a batch whose answer fits into a frame without doubt: 41 bytes each, 65 with an IPv6 address.
_FEW_MESSAGES = 1024
# Takes a request that this broker cannot serve, and sees to it that it is answered.
Elsewhere = Callable[[Connection, Command], None]


class SendAnswers:
    """Tells clients what became of what they sent."""

    def __init__(self, store_host: bytes, on_failure: Callable[[], None], elsewhere: Elsewhere | None) -> None:
        """`store_host` as records hold it; `on_failure` counts a send that was refused by the store.

        `elsewhere` takes what the replication gives back with NOT_LEADER_FOR_QUEUE: it is in no log, and another
        broker may store it. Without one the client gets that code. reconfigure() comes before the first answer.
        """
        self._id_prefix = store_host.hex().upper()
        self._on_failure = on_failure
        self._elsewhere = elsewhere
        self.counts: defaultdict[int, int] = defaultdict(int)
        """How often a send was answered with each code."""
        self.ext: dict[str, str] = {}
        """The fields that every answer to a send has."""
        self._template = self._batch_template = b""
        self._pieces: tuple[bytes, ...] = ()

    def stored(
        self, connection: Connection, request: Command, queue_id: int, uniq_key: str, result: PutResult, code: int
    ) -> None:
        """Answer one message."""
        self.counts[code] += 1
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

    def run_stored(
        self, connection: Connection, run: SendRun, records: RecordRun, results: list[PutResult], code: int
    ) -> None:
        """Answer a run: all with one write, when all are stored."""
        rows = records.rows
        if not code and records.results is None:
            self.counts[code] += len(rows)
            connection.write(rows.answers(self._pieces))
            return
        told, ok, own = results[0], PutStatus.PUT_OK, records.results
        if own is not None and told.status is not ok and told is not own[0] and code != _NOT_LEADER:
            # The write failed, or nobody knows what became of the entry: so it is with each, whatever was said before.
            own = None
        if own is not None:
            each = own
        elif told.status is ok:
            each = [PutResult(ok, position, offset) for position, offset in rows.placed()]
        else:
            each = [told] * len(rows)
        for command, (_, queue_id, uniq_key), result in zip(run.commands(), rows.places(), each, strict=True):
            if own is not None and result.status is not ok:
                self.stored(connection, command, queue_id, uniq_key, result, CODES[result.status])
            else:
                self.stored(connection, command, queue_id, uniq_key, result if told.status is ok else told, code)

    def timer_stored(
        self,
        connection: Connection,
        request: Command,
        queue_id: int,
        uniq_key: str,
        handle: str | None,
        result: Any,
        code: int,
    ) -> None:
        """Answer one timer message, with what it can be recalled by."""
        if self._stored_before(connection, request, uniq_key, result, code, handle):
            return
        self.counts[code] += 1
        if code and (code == _NOT_LEADER or result.status is not PutStatus.PUT_OK):
            self._not_stored(connection, request, result, code)
            return
        msg_id = f"{self._id_prefix}{result.physical_offset:016X}"
        self._reply(connection, request, code, queue_id, uniq_key, msg_id, result.queue_offset, handle)

    def _stored_before(
        self,
        connection: Connection,
        request: Command,
        uniq_key: str,
        result: Any,
        code: int,
        handle: str | None = None,
    ) -> bool:
        """Answer a message, or a batch, that was stored before, or is refused because a part of it was."""
        if type(result) is FirstResult:
            self._reply(
                connection, request, code, result.queue_id, uniq_key, result.msg_id, result.queue_offset, handle
            )
        elif isinstance(result, str):
            connection.reply(request, Command.response(code, result, ext=self.ext))
        else:
            return False
        self.counts[code] += 1
        return True

    def stored_once(self, *told: Any) -> None:
        """Answer a message, or a batch, that may have been stored before."""
        connection, request, _queue_id, uniq_key, result, code = told
        if self._stored_before(connection, request, uniq_key, result, code):
            return
        if isinstance(result, list):
            self.batch_stored(*told)
        else:
            self.stored(*told)

    def batch_stored(
        self,
        connection: Connection,
        request: Command,
        queue_id: int,
        uniq_key: str | None,
        results: list[PutResult],
        code: int,
    ) -> None:
        """Answer a batch: all offset ids, and the first queue offset."""
        self.counts[code] += 1
        first = results[0]
        if code and (code == _NOT_LEADER or first.status is not PutStatus.PUT_OK):
            self._not_stored(connection, request, first, code)
            return
        places = struct.pack(f">{len(results)}q", *[result[1] for result in results]).hex(",", 8).upper()
        msg_ids = self._id_prefix + places.replace(",", f",{self._id_prefix}")
        if request.flag & ONEWAY_FLAG:
            return
        if (
            len(results) <= _FEW_MESSAGES
            and request.serialize_type == JSON
            and (key := (uniq_key or "").encode()).replace(b",", b"").isalnum()
        ):
            head = self._batch_template % (
                code,
                queue_id,
                key,
                msg_ids.encode(),
                first.queue_offset,
                request.opaque,
            )
            length = len(head)
            connection.write(_words(length + 4, length) + head)
            return
        self._reply(connection, request, code, queue_id, uniq_key, msg_ids, first.queue_offset)

    def _not_stored(self, connection: Connection, request: Command, result: PutResult, code: int) -> None:
        """Hand a send on that only another broker can store; refuse any other."""
        if code == _NOT_LEADER and self._elsewhere is not None:
            self._elsewhere(connection, request)
            return
        self._on_failure()
        connection.reply(request, Command.response(code, remark_of(result.status), ext=self.ext))

    def _reply(
        self,
        connection: Connection,
        request: Command,
        code: int,
        queue_id: int,
        uniq_key: str | None,
        msg_id: str,
        queue_offset: int,
        handle: str | None = None,
    ) -> None:
        header = SendMessageResponseHeader(
            msgId=msg_id, queueId=queue_id, queueOffset=queue_offset, transactionId=uniq_key, recallHandle=handle
        )
        connection.reply(request, Command.response(code, header=header, ext=self.ext))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take over a changed configuration."""
        traced = "true" if config.traceOn else "false"
        self.ext = {"MSG_REGION": config.regionId, "TRACE_ON": traced}
        prefix, region = self._id_prefix.encode(), orjson.dumps(config.regionId)
        # What stands around the queue id, unique key, position, queue offset and opaque of a message that is stored.
        self._pieces = (
            b'{"code":0,"extFields":{"queueId":"',
            b'","transactionId":"',
            b'","msgId":"' + prefix,
            b'","TRACE_ON":"' + traced.encode() + b'","MSG_REGION":' + region + b',"queueOffset":"',
            b'"},"flag":1,"language":"JAVA","opaque":',
            b',"serializeTypeCurrentRPC":"JSON","version":' + str(VERSION).encode() + b"}",
        )
        first, second, third, *others = (piece.replace(b"%", b"%%") for piece in self._pieces)
        before = first.replace(b'"code":0', b'"code":%d') + b"%d" + second + b"%b" + third
        behind = b"%d".join(others)
        self._template = before + b"%016X" + behind
        self._batch_template = before.removesuffix(prefix) + b"%b" + behind
