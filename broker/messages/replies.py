"""Request-reply: a reply (324, 325) is pushed to the client that asked (326), and stored like any message.

Whom it is for says its property REPLY_TO_CLIENT: the client id of a producer that is connected here. It is pushed and
stored at the same time, and answered when both have ended: with code 1 when it could not be pushed, whatever became of
the record, and with success when it was, for what was asked for is done then. With storeReplyMessageEnable=false it is
only pushed. A broker on its own keeps one, for a moment, whose client lost its connection, until that is back.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from broker.messages.delayed_record import waiting
from broker.messages.send_answers import Elsewhere
from broker.messages.send_checks import MessageChecks, check_sys_flag, wait_seconds_max, waited_too_long
from broker.replication import Replication
from broker.settings.config import LiveConfig
from remoting.address import format_address
from remoting.codes import MessageSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, ConnectionLost, InvokeError, RemotingError
from remoting.headers.registry import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from remoting.msgid import unpack_host
from remoting.properties import (
    PROPERTY_MSG_REGION,
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TRACE_SWITCH,
    decode_properties,
    encode_properties,
)
from remoting.server import Connection, Handler
from runtime.clock import Clock
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

# Seconds that a client may take to say that it has a reply: RocketMQ's.
PUSH_SECONDS = 10.0
# Bytes of replies that wait for their client's word, and what one costs beside its body. Beyond it: SYSTEM_BUSY.
PUSHING_BYTES_MAX = 64 * 1024 * 1024
# And of those for one client, so that one that hangs costs the others nothing. Beyond it: it was not pushed (1).
PUSHING_BYTES_PER_CLIENT_MAX = 12 * 1024 * 1024
OVERHEAD_BYTES = 1024
# Seconds for which one is kept whose client lost its connection: less than its sender waits for an answer (3).
KEPT_SECONDS = 2.0


# Asks other brokers to push a reply; gives their client's answer, None when the client is nowhere.
Relay = Callable[[Command], "asyncio.Future[Command | None]"]


class ReplyClients(Protocol):
    """What is needed of the clients' table."""

    def reach(self, client_id: str) -> object | None:
        """Return the newest connection of a producer's client."""
        ...

    def lost(self, client_id: str) -> bool:
        """Whether it lost its connection a moment ago."""
        ...

    def when_back(self, client_id: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call when it is back; returns what forgets that."""
        ...


class _Reply:
    """A reply on its way: to its client, and into the log."""

    __slots__ = (
        "absent", "client_id", "connection", "failed", "header", "kept_until", "properties", "pushed", "queue_id",
        "request", "size", "stored", "to",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        request: Command,
        queue_id: int,
        header: SendMessageRequestHeader,
        properties: dict[str, str],
    ) -> None:
        self.header, self.properties = header, properties
        client_id = properties.get(PROPERTY_REPLY_TO_CLIENT, "")
        # Until when it is kept for a client that may come back, by the loop; 0: it was not lost.
        self.kept_until = 0.0
        # The connection that it was pushed to.
        self.to: object | None = None
        self.connection = connection
        self.request = request
        self.queue_id = queue_id
        self.client_id = client_id
        self.size = len(request.body) + request.header_bytes + OVERHEAD_BYTES
        self.pushed = self.absent = False
        # Why it is not with its client, "" when it is.
        self.failed = ""
        # What became of the record, None until that is known.
        self.stored: tuple[PutResult, int] | None = None


class ReplyHandlers:
    """Handlers of replies."""

    def __init__(
        self,
        live: LiveConfig,
        checks: MessageChecks,
        replication: Replication,
        store_host: bytes,
        clients: ReplyClients,
        clock: Clock,
        elsewhere: Elsewhere | None = None,
        relay: Relay | None = None,
    ) -> None:
        """`elsewhere` takes a reply that is neither in this log nor with its client: see SendHandlers."""
        self._live = live
        self._checks = checks
        self._append = replication.append
        self._id_prefix = store_host.hex().upper()
        self._address = format_address(*unpack_host(store_host))
        self._clients = clients
        self._clock = clock
        self._elsewhere = elsewhere
        self._relay = relay
        self.outcomes = dict.fromkeys(("pushed", "absent", "failed"), 0)
        """How often a reply was pushed, its client was not here, or did not take it."""
        self._bytes = 0
        self._bytes_of: dict[str, int] = {}

    @property
    def pending_bytes(self) -> int:
        """What replies take that are neither answered nor refused."""
        return self._bytes

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply_v2}

    def reply(self, connection: Connection, request: Command) -> None:
        """Take a reply in the long form (324)."""
        self._take(connection, request, request.header(SendMessageRequestHeader))

    def reply_v2(self, connection: Connection, request: Command) -> None:
        """Take a reply in the short form (325)."""
        self._take(connection, request, request.header(SendMessageRequestHeaderV2))

    def _take(self, connection: Connection, request: Command, header: SendMessageRequestHeader) -> None:
        try:
            record, waits = self._record(connection, request, header)
            properties = decode_properties(record.properties)
            reply = _Reply(connection, request, record.queue_id, header, properties)
            if self._bytes + reply.size > PUSHING_BYTES_MAX:
                raise CommandError(
                    ResponseCode.SYSTEM_BUSY,
                    f"[OVERLOAD]{self._bytes} bytes of replies wait for clients to take them: try again later",
                )
        except CommandError as error:
            error.ext = self._ext()
            raise
        self._bytes += reply.size
        self._push(reply)
        if not self._live.broker.storeReplyMessageEnable:
            self._stored(reply, PutResult(PutStatus.SERVICE_NOT_AVAILABLE), ResponseCode.SERVICE_NOT_AVAILABLE)
            return
        done = partial(self._stored, reply)
        if request.until:
            self._append(record, done, wait=waits, until=request.until)
        else:
            self._append(record, done, wait=waits)

    def _record(
        self, connection: Connection, request: Command, header: SendMessageRequestHeader
    ) -> tuple[PendingRecord, bool]:
        """Return what is to be stored, and whether its sender waits for the disk; raises CommandError."""
        checks, config = self._checks, self._live.broker
        if request.waited > wait_seconds_max(config):
            raise waited_too_long(connection, request)
        target = checks.target(header, connection)
        queue_id = checks.queue(target, header.queueId)
        text, waits, level, out_ms = checks.properties(header.properties or "")
        traced = "true" if config.traceOn else "false"
        text += f"{PROPERTY_MSG_REGION}\x01{config.regionId}\x02{PROPERTY_TRACE_SWITCH}\x01{traced}\x02"
        properties = text.encode()
        checks.check_size(len(request.body), len(properties))
        record = PendingRecord(
            header.topic,
            queue_id,
            header.flag,
            check_sys_flag(header.sysFlag) | target.sys_flag,
            header.bornTimestamp,
            connection.peer_host,
            header.reconsumeTimes or 0,
            0,
            request.body,
            properties,
        )
        if out_ms:
            return checks.timed(record, out_ms), waits
        return (waiting(record, level) if level else record), waits

    # ---- to the client

    def _push(self, reply: _Reply) -> None:
        client_id = reply.client_id
        if not client_id:
            self._pushed(reply, f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null")
            return
        client = self._clients.reach(client_id)
        if client is None and self._relay is None:
            if not self._keep(reply):
                self._absent(reply)
            return
        reply.to = client
        waits = self._bytes_of.get(client_id, 0) + reply.size
        if waits > PUSHING_BYTES_PER_CLIENT_MAX:
            self._pushed(reply, f"push reply message to {client_id}fail. It has {waits} bytes of replies to answer.")
            return
        try:
            answer = self._submit(client, self._request(reply))
        except RemotingError as error:
            self._not_taken(reply, error)
            return
        self._bytes_of[client_id] = waits
        answer.add_done_callback(partial(self._answered, reply))

    def _keep(self, reply: _Reply) -> bool:
        """Keep a reply for a client that may be back in a moment, and push it then; False when it is not lost."""
        client_id, loop = reply.client_id, asyncio.get_running_loop()
        waits = self._bytes_of.get(client_id, 0) + reply.size
        if waits > PUSHING_BYTES_PER_CLIENT_MAX or not self._clients.lost(client_id):
            return False
        reply.kept_until = reply.kept_until or loop.time() + KEPT_SECONDS
        if loop.time() >= reply.kept_until:
            return False
        self._bytes_of[client_id] = waits

        def back() -> None:
            timer.cancel()
            self._release(reply)
            self._push(reply)

        def gone() -> None:
            forget()
            self._release(reply)
            self._absent(reply)

        timer = loop.call_at(reply.kept_until, gone)
        forget = self._clients.when_back(client_id, back)
        return True

    def _submit(self, client: object | None, request: Command) -> "asyncio.Future[Command | None]":
        """Send a reply to its client, or to where that may be; gives its answer, None when it is nowhere."""
        if client is None and self._relay is not None:
            return self._relay(request)
        return cast("asyncio.Future[Command | None]", cast(Connection, client).submit(request, PUSH_SECONDS))

    def _absent(self, reply: _Reply) -> None:
        reply.absent = True
        self._pushed(reply, f"push reply message fail, channel of <{reply.client_id}> not found.")

    def _request(self, reply: _Reply) -> Command:
        header, properties, now_ms = reply.header, reply.properties, self._clock.now_ms()
        pushed = ReplyMessageRequestHeader(
            producerGroup=header.producerGroup,
            topic=header.topic,
            defaultTopic=header.defaultTopic,
            defaultTopicQueueNums=header.defaultTopicQueueNums,
            queueId=header.queueId,
            sysFlag=header.sysFlag & int(MessageSysFlag.COMPRESSED) | header.sysFlag & 0x700,
            bornTimestamp=header.bornTimestamp,
            flag=header.flag,
            properties=encode_properties({**properties, PROPERTY_PUSH_REPLY_TIME: str(now_ms)}).decode(),
            reconsumeTimes=header.reconsumeTimes,
            unitMode=header.unitMode,
            bornHost=format_address(*unpack_host(reply.connection.peer_host)),
            storeHost=self._address,
            storeTimestamp=now_ms,
        )
        return Command.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, reply.request.body)

    def _answered(self, reply: _Reply, answer: "asyncio.Future[Command | None]") -> None:
        self._release(reply)
        if answer.cancelled():
            self._not_taken(reply, InvokeError("this broker stops"))
        elif (error := answer.exception()) is not None:
            if isinstance(error, ConnectionLost) and self._relay is None:
                # It may have it: who asked takes one reply, however often it comes. Whether it is lost, all know soon.
                asyncio.get_running_loop().call_soon(self._again, reply, error)
            else:
                self._not_taken(reply, error)
        elif (told := answer.result()) is None:
            self._absent(reply)
        elif told.code != ResponseCode.SUCCESS:
            self._not_taken(reply, InvokeError(f"it answered {told.code}: {told.remark}"))
        else:
            self._pushed(reply, "")

    def _again(self, reply: _Reply, error: BaseException) -> None:
        """Push once more to a client whose connection ended under it, now or when it is back."""
        here = self._clients.reach(reply.client_id)
        if here is not None and here is not reply.to and not reply.kept_until:
            # Once is enough.
            reply.kept_until = asyncio.get_running_loop().time()
            self._push(reply)
        elif here is not None or not self._keep(reply):
            self._not_taken(reply, error)

    def _release(self, reply: _Reply) -> None:
        """Count a reply no more among those that its client has to answer."""
        left = self._bytes_of[reply.client_id] - reply.size
        if left:
            self._bytes_of[reply.client_id] = left
        else:
            del self._bytes_of[reply.client_id]

    def _not_taken(self, reply: _Reply, error: BaseException) -> None:
        _log.info("a reply was not pushed to %s: %s", reply.client_id, error)
        self._pushed(reply, f"push reply message to {reply.client_id}fail.")

    # ---- both ends

    def _pushed(self, reply: _Reply, failed: str) -> None:
        reply.pushed, reply.failed = True, failed
        self.outcomes["absent" if reply.absent else "failed" if failed else "pushed"] += 1
        self._end(reply)

    def _stored(self, reply: _Reply, result: PutResult, code: int) -> None:
        reply.stored = result, code
        self._end(reply)

    def _end(self, reply: _Reply) -> None:
        """Answer, once it is known what became of both."""
        if not reply.pushed or reply.stored is None:
            return
        self._bytes -= reply.size
        result, code = reply.stored
        if reply.failed and code == ResponseCode.NOT_LEADER_FOR_QUEUE and self._elsewhere is not None:
            self._elsewhere(reply.connection, reply.request)
            return
        header = SendMessageResponseHeader(msgId="0", queueId=reply.queue_id, queueOffset=0)
        if result.status is PutStatus.PUT_OK:
            header.msgId = f"{self._id_prefix}{result.physical_offset:016X}"
            header.queueOffset = result.queue_offset
        outcome = ResponseCode.SYSTEM_ERROR if reply.failed else ResponseCode.SUCCESS
        answer = Command.response(outcome, reply.failed or None, header=header, ext=self._ext())
        reply.connection.reply(reply.request, answer)

    def _ext(self) -> dict[str, str]:
        """Return the fields that every answer has."""
        config = self._live.broker
        return {PROPERTY_MSG_REGION: config.regionId, PROPERTY_TRACE_SWITCH: "true" if config.traceOn else "false"}
