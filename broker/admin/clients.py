"""Connected clients: 203, 204 and 328 list them, 307, 309 and 223 are passed on to them."""

import asyncio
import logging

from broker.clients import GroupClient
from broker.context import Tables
from broker.reply import WELL, ok
from broker.settings.config import LiveConfig
from remoting.address import format_address
from remoting.bodies.registry import (
    ConnectionInfo,
    ConsumerConnection,
    ConsumerStatusBody,
    MessageQueue,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from remoting.codes import LanguageCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, HeaderError, InvokeError, InvokeTimeout
from remoting.headers.registry import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from remoting.msgid import parse_offset_msg_id
from remoting.server import Connection, Handler
from store.errors import RecordDamaged
from store.messagestore import MessageStore

_log = logging.getLogger(__name__)

# Seconds that a client may take to answer what is passed on to it.
CLIENT_TIMEOUT_S = 10.0
# Clients asked by one request 223; those beyond are left out of the answer.
CLIENTS_ASKED_MAX = 1000
# The first version (V3_1_8_SNAPSHOT) whose clients understand 307 and 309.
_VERSION_MIN = 62


class AdminClients:
    """Handlers about connected clients."""

    def __init__(self, config: LiveConfig, tables: Tables, store: MessageStore) -> None:
        self._config = config
        self._clients, self._topics, self._groups = tables.clients, tables.topics, tables.groups
        self._store = store

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    def consumers(self, _connection: Connection, request: Command) -> Command:
        """203: the members of a consumer group and what it subscribes to."""
        name = request.header(GetConsumerConnectionListRequestHeader).consumerGroup
        group = self._clients.consumer_group(name)
        if group is None or not group.members:
            raise CommandError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connectionSet=[_connection_info(member) for member in group.members.values()],
            consumeFromWhere=group.consume_from_where,
            consumeType=group.consume_type,
            messageModel=group.message_model,
            subscriptionTable=dict(group.subscriptions),
        )
        return ok(None, body.encode())

    def producers(self, _connection: Connection, request: Command) -> Command:
        """204: the members of a producer group."""
        name = request.header(GetProducerConnectionListRequestHeader).producerGroup
        members = self._clients.producers(name)
        if not members:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return ok(None, ProducerConnection([_connection_info(member) for member in members]).encode())

    def all_producers(self, _connection: Connection, _request: Command) -> Command:
        """328: all producers by group."""
        table = {
            group: [
                ProducerInfo(
                    clientId=member.client_id,
                    language=_language(member),
                    lastUpdateTimestamp=member.seen_ms,
                    # The form in which Java shows a socket's address.
                    remoteIP=f"/{format_address(*member.connection.peer)}",
                    version=member.version,
                )
                for member in members
            ]
            for group, members in self._clients.producer_groups().items()
        }
        return ok(None, ProducerTableInfo(data=table).encode())

    async def running_info(self, _connection: Connection, request: Command) -> Command:
        """307: what a consumer is doing, told by itself."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        return await self._pass_on(request, header.consumerGroup, header.clientId, dict(request.ext), request.body)

    async def consume_directly(self, _connection: Connection, request: Command) -> Command:
        """309: one message is consumed by one consumer at once, and the outcome told."""
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        topic, group = self._topics.get(header.topic or ""), self._groups.get(header.consumerGroup)
        ext = {
            **request.ext,
            "brokerName": self._config.broker.name(),
            "topicSysFlag": str(0 if topic is None else topic.topicSysFlag),
            "groupSysFlag": str(0 if group is None else group.groupSysFlag),
        }
        body: bytes | memoryview = request.body
        if header.msgId:
            body = self._record(header.msgId)
        return await self._pass_on(request, header.consumerGroup, header.clientId or "", ext, body)

    async def status(self, _connection: Connection, request: Command) -> Command:
        """223: how far each consumer of a group has come in a topic, told by themselves (221)."""
        header = request.header(GetConsumerStatusRequestHeader)
        members = self._clients.connections(header.group)
        if header.clientAddr:
            members = [member for member in members if member.client_id == header.clientAddr]
        if not members:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        asked = members[:CLIENTS_ASKED_MAX]
        tables = await asyncio.gather(*(_ask_status(member, header) for member in asked))
        found = {member.client_id: table for member, table in zip(asked, tables, strict=True) if table is not None}
        return Command.response(ResponseCode.SUCCESS, WELL, None, ConsumerStatusBody(consumerTable=found).encode())

    def _record(self, msg_id: str) -> memoryview:
        try:
            _, offset = parse_offset_msg_id(msg_id)
        except ValueError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        try:
            record = self._store.record_at(offset)
        except RecordDamaged as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if record is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return record

    async def _pass_on(
        self, request: Command, group: str, client_id: str, ext: dict[str, str], body: bytes | memoryview
    ) -> Command:
        member = self._clients.find(group, client_id)
        if member is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if member.version < _VERSION_MIN:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        try:
            answer = await member.connection.invoke(
                Command.request(request.code, None, body, ext=ext), CLIENT_TIMEOUT_S
            )
        except InvokeTimeout as error:
            raise CommandError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
            ) from None
        except InvokeError as error:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from None
        return Command.response(answer.code, answer.remark, None, answer.body, answer.ext)


async def _ask_status(member: GroupClient, header: GetConsumerStatusRequestHeader) -> dict[MessageQueue, int] | None:
    request = Command.request(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        GetConsumerStatusRequestHeader(topic=header.topic, group=header.group),
    )
    try:
        answer: Command = await member.connection.invoke(request, CLIENT_TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS:
            return ConsumerStatusBody.decode(answer.body).messageQueueTable
        _log.warning("client %s answered %d: %s", member.client_id, answer.code, answer.remark)
    except (InvokeError, HeaderError) as error:
        _log.warning("client %s does not tell its status: %s", member.client_id, error)
    return None


def _language(member: GroupClient) -> str:
    known = member.language in LanguageCode._value2member_map_
    return LanguageCode(member.language).name if known else LanguageCode.OTHER.name


def _connection_info(member: GroupClient) -> ConnectionInfo:
    return ConnectionInfo(
        clientAddr=format_address(*member.connection.peer),
        clientId=member.client_id,
        language=_language(member),
        version=member.version,
    )
