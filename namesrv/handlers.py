"""What brokers and clients ask of a NameServer: registration, liveness, routes.

Each method is a Handler: it takes the connection and the request and returns the answer at once.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from namesrv.config import LiveNamesrvConfig
from namesrv.kv import ORDER_TOPIC_CONFIG, KVConfig
from namesrv.lists import cluster_info, member_group, within_zone
from namesrv.routes import Address, BrokerRegistration, RouteTable
from remoting.bodies.registry import BrokerMemberGroupBody, DataVersion, KVTable, RegisterBrokerBody, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import (
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from remoting.server import Connection
from runtime.clock import Clock
from runtime.crc import crc32

_log = logging.getLogger(__name__)

NamesrvHandler = Callable[[Connection, Command], Command | Awaitable[Command]]

# Where every client's user is sent when a topic has no route; part of RocketMQ's own remark.
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# A broker's name for the part of the data centre that it stands in, and a client's wish to stay within one.
ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"
# bodyCrc32 is a Java int that is never negative.
CRC_MASK = 0x7FFFFFFF


class RouteHandlers:
    """Registration and routes."""

    def __init__(self, table: RouteTable, kv: KVConfig, config: LiveNamesrvConfig, clock: Clock) -> None:
        self._table = table
        self._kv = kv
        self._config = config
        self._clock = clock
        self._started = clock.monotonic()

    def table(self) -> Mapping[int, NamesrvHandler]:
        """Return request code → handler."""
        return {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.member_group,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
        }

    def not_ready(self) -> str | None:
        """Return why routes are not given yet, None when they are: with needWaitForService brokers come first."""
        config = self._config.now
        waited = self._clock.monotonic() - self._started
        if config.needWaitForService and waited < config.waitSecondsForService:
            return f"name server not ready: brokers have {config.waitSecondsForService - waited:.0f} s more to register"
        return None

    def register_broker(self, connection: Connection, request: Command) -> Command:
        """REGISTER_BROKER 103."""
        header = request.header(RegisterBrokerRequestHeader)
        if header.bodyCrc32 and crc32(request.body) & CRC_MASK != header.bodyCrc32:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        most = self._config.now.topicsPerBrokerMax
        body = _registration_body(request, most, compressed=header.compressed)
        wrapper = body.topicConfigSerializeWrapper
        config = self._config.now
        registered = self._table.register(
            BrokerRegistration(
                cluster=header.clusterName,
                broker_name=header.brokerName,
                broker_id=header.brokerId,
                address=header.brokerAddr,
                ha_address=header.haServerAddr,
                version=wrapper.dataVersion,
                topics=wrapper.topicConfigTable,
                mappings=wrapper.topicQueueMappingInfoMap or {},
                filter_servers=tuple(body.filterServerList),
                silence_ms=header.heartbeatTimeoutMillis,
                acting_master=header.enableActingMaster,
                zone=request.ext.get(ZONE_NAME),
                link=connection,
            ),
            delete_missing=config.deleteTopicWithBrokerRegistration,
        )
        order = self._kv.namespace(ORDER_TOPIC_CONFIG) if config.returnOrderTopicConfigToBroker else {}
        return Command.response(
            ResponseCode.SUCCESS,
            header=RegisterBrokerResponseHeader(
                haServerAddr=registered.ha_address or None, masterAddr=registered.master_address or None
            ),
            body=KVTable(order).encode() if order else b"",
        )

    def unregister_broker(self, _connection: Connection, request: Command) -> Command:
        """UNREGISTER_BROKER 104."""
        header = request.header(UnRegisterBrokerRequestHeader)
        self._table.unregister(Address(header.clusterName, header.brokerAddr), header.brokerName)
        _log.info("broker %s at %s unregistered", header.brokerName, header.brokerAddr)
        return Command.response(ResponseCode.SUCCESS)

    def query_data_version(self, connection: Connection, request: Command) -> Command:
        """QUERY_DATA_VERSION 322."""
        header = request.header(QueryDataVersionRequestHeader)
        changed, version = self._table.query_version(
            Address(header.clusterName, header.brokerAddr),
            header.brokerName,
            header.brokerId,
            DataVersion.decode(request.body),
            connection,
        )
        return Command.response(
            ResponseCode.SUCCESS,
            header=QueryDataVersionResponseHeader(changed=changed),
            body=b"" if version is None else version.encode(),
        )

    def heartbeat(self, connection: Connection, request: Command) -> Command:
        """BROKER_HEARTBEAT 904."""
        header = request.header(BrokerHeartbeatRequestHeader)
        self._table.heartbeat(Address(header.clusterName, header.brokerAddr), connection)
        return Command.response(ResponseCode.SUCCESS)

    def route(self, _connection: Connection, request: Command) -> Command:
        """GET_ROUTEINFO_BY_TOPIC 105; written as strict JSON whatever the header says, which every client reads."""
        header = request.header(GetRouteInfoRequestHeader)
        if (reason := self.not_ready()) is not None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, reason)
        route = self._table.route(header.topic, acting_masters=self._config.now.supportActingMaster)
        if route is None:
            return Command.response(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}{FAQ}",
            )
        if self._config.now.orderMessageEnable:
            route.orderTopicConf = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
        ext = request.ext
        if ext.get(ZONE_MODE, "").lower() == "true" and (zone := ext.get(ZONE_NAME, "")).strip():
            route = within_zone(route, zone)
        return Command.response(ResponseCode.SUCCESS, body=route.encode())

    def cluster_info(self, _connection: Connection, _request: Command) -> Command:
        """GET_BROKER_CLUSTER_INFO 106."""
        return Command.response(ResponseCode.SUCCESS, body=cluster_info(self._table).encode())

    def member_group(self, _connection: Connection, request: Command) -> Command:
        """GET_BROKER_MEMBER_GROUP 901."""
        header = request.header(GetBrokerMemberGroupRequestHeader)
        group = member_group(self._table, header.clusterName, header.brokerName)
        return Command.response(ResponseCode.SUCCESS, body=BrokerMemberGroupBody(group).encode())

    def register_topic(self, _connection: Connection, request: Command) -> Command:
        """REGISTER_TOPIC_IN_NAMESRV 217: the body is a route whose queues are taken."""
        header = request.header(RegisterTopicRequestHeader)
        self._table.register_topic(header.topic, TopicRouteData.decode(request.body).queueDatas)
        return Command.response(ResponseCode.SUCCESS)

    def delete_topic(self, _connection: Connection, request: Command) -> Command:
        """DELETE_TOPIC_IN_NAMESRV 216."""
        header = request.header(DeleteTopicFromNamesrvRequestHeader)
        self._table.delete_topic(header.topic, header.clusterName or None)
        return Command.response(ResponseCode.SUCCESS)


def _registration_body(request: Command, topics_max: int, *, compressed: bool) -> RegisterBrokerBody:
    data: Any = request.body
    if not data:
        return RegisterBrokerBody()
    return RegisterBrokerBody.decode_compressed(data, topics_max) if compressed else RegisterBrokerBody.decode(data)
