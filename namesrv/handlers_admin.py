"""What administrators ask of a NameServer: topic lists, write permissions, KV and server configuration, epochs."""

import logging
from collections.abc import Mapping

import msgspec

from namesrv import lists
from namesrv.config import LiveNamesrvConfig
from namesrv.handlers import NamesrvHandler
from namesrv.kv import KVConfig
from namesrv.routes import RouteTable
from remoting.bodies.registry import KVTable, TopicList
from remoting.codes import NamesrvCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.fastjson import read_strictly
from remoting.headers.registry import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from remoting.server import Connection
from runtime.config import ConfigError, parse_properties

_log = logging.getLogger(__name__)


# Bytes of a body of ours: a name.
BODY_BYTES_MAX = 4096
# Bytes of a change of settings, as brokers take them too.
CONFIG_BYTES_MAX = 256 * 1024


class _Named(msgspec.Struct, frozen=True):
    """The body of REMEMBERED and FORGET."""

    broker: str


class EpochHandlers:
    """What is remembered of broker names."""

    def __init__(self, table: RouteTable) -> None:
        self._epochs = table.epochs

    def table(self) -> Mapping[int, NamesrvHandler]:
        """Return request code → handler."""
        return {NamesrvCode.REMEMBERED: self.remembered, NamesrvCode.FORGET: self.forget}

    def remembered(self, _connection: Connection, request: Command) -> Command:
        """9121: the highest epoch of a name, and who belonged to it."""
        known = self._epochs.of(_name(request))
        members = {str(broker_id): address for broker_id, address in known.members.items()}
        answer = {"epoch": known.version, "holder": known.holder, "members": members}
        return Command.response(ResponseCode.SUCCESS, body=msgspec.json.encode(answer))

    def forget(self, _connection: Connection, request: Command) -> Command:
        """9122: forget a name, which begins again with other stores."""
        name = _name(request)
        known = self._epochs.forget(name)
        _log.warning("what was known of the broker name %s is forgotten, its epoch too", name)
        return Command.response(ResponseCode.SUCCESS, body=msgspec.json.encode({"known": known}))


def _name(request: Command) -> str:
    try:
        if len(request.body) > BODY_BYTES_MAX:
            raise msgspec.ValidationError(f"more than {BODY_BYTES_MAX} bytes")
        return read_strictly(request.body, _Named).broker
    except msgspec.DecodeError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body is not what is due: {error}") from None


class TopicHandlers:
    """Topic lists and write permissions."""

    def __init__(self, table: RouteTable, config: LiveNamesrvConfig) -> None:
        self._table = table
        self._config = config

    def table(self) -> Mapping[int, NamesrvHandler]:
        """Return request code → handler."""
        return {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.unit_subscription_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.unit_subscription_only_topics,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
        }

    def all_topics(self, _connection: Connection, _request: Command) -> Command:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206."""
        _allowed(self._config.now.enableAllTopicList)
        return _answer(lists.all_topics(self._table))

    def topics_of_cluster(self, _connection: Connection, request: Command) -> Command:
        """GET_TOPICS_BY_CLUSTER 224."""
        _allowed(self._config.now.enableTopicList)
        return _answer(lists.topics_of_cluster(self._table, request.header(GetTopicsByClusterRequestHeader).cluster))

    def system_topics(self, _connection: Connection, _request: Command) -> Command:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS 304."""
        return _answer(lists.system_topics(self._table))

    def unit_topics(self, _connection: Connection, _request: Command) -> Command:
        """GET_UNIT_TOPIC_LIST 311."""
        _allowed(self._config.now.enableTopicList)
        return _answer(lists.unit_topics(self._table))

    def unit_subscription_topics(self, _connection: Connection, _request: Command) -> Command:
        """GET_HAS_UNIT_SUB_TOPIC_LIST 312."""
        _allowed(self._config.now.enableTopicList)
        return _answer(lists.unit_subscription_topics(self._table))

    def unit_subscription_only_topics(self, _connection: Connection, _request: Command) -> Command:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST 313."""
        _allowed(self._config.now.enableTopicList)
        return _answer(lists.unit_subscription_only_topics(self._table))

    def wipe_write_perm(self, connection: Connection, request: Command) -> Command:
        """WIPE_WRITE_PERM_OF_BROKER 205."""
        name = request.header(WipeWritePermOfBrokerRequestHeader).brokerName
        count = self._table.set_writable(name, writable=False)
        _log.info("write permission wiped from %s topics of %s, asked by %s", count, name, connection.peer)
        return Command.response(ResponseCode.SUCCESS, header=WipeWritePermOfBrokerResponseHeader(wipeTopicCount=count))

    def add_write_perm(self, connection: Connection, request: Command) -> Command:
        """ADD_WRITE_PERM_OF_BROKER 327."""
        name = request.header(AddWritePermOfBrokerRequestHeader).brokerName
        count = self._table.set_writable(name, writable=True)
        _log.info("write permission given to %s topics of %s, asked by %s", count, name, connection.peer)
        return Command.response(ResponseCode.SUCCESS, header=AddWritePermOfBrokerResponseHeader(addTopicCount=count))


class ConfigHandlers:
    """The KV configuration, and the server's own."""

    def __init__(self, kv: KVConfig, config: LiveNamesrvConfig) -> None:
        self._kv = kv
        self._config = config

    def table(self) -> Mapping[int, NamesrvHandler]:
        """Return request code → handler."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.namespace,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    async def put(self, _connection: Connection, request: Command) -> Command:
        """PUT_KV_CONFIG 100: answered when it is on the disk."""
        header = request.header(PutKVConfigRequestHeader)
        await self._kv.put(header.namespace, header.key, header.value)
        return Command.response(ResponseCode.SUCCESS)

    def get(self, _connection: Connection, request: Command) -> Command:
        """GET_KV_CONFIG 101."""
        header = request.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace} Key: {header.key}"
            )
        return Command.response(ResponseCode.SUCCESS, header=GetKVConfigResponseHeader(value=value))

    async def delete(self, _connection: Connection, request: Command) -> Command:
        """DELETE_KV_CONFIG 102."""
        header = request.header(DeleteKVConfigRequestHeader)
        await self._kv.delete(header.namespace, header.key)
        return Command.response(ResponseCode.SUCCESS)

    def namespace(self, _connection: Connection, request: Command) -> Command:
        """GET_KVLIST_BY_NAMESPACE 219."""
        name = request.header(GetKVListByNamespaceRequestHeader).namespace
        entries = self._kv.namespace(name)
        if not entries:
            raise CommandError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {name}")
        return Command.response(ResponseCode.SUCCESS, body=KVTable(entries).encode())

    def update_config(self, connection: Connection, request: Command) -> Command:
        """UPDATE_NAMESRV_CONFIG 318: the body is key=value lines; unknown keys are ignored."""
        if len(request.body) > CONFIG_BYTES_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"the configuration takes {len(request.body)} bytes of {CONFIG_BYTES_MAX}",
            )
        try:
            values = parse_properties(bytes(request.body).decode())
        except UnicodeDecodeError:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the configuration is not UTF-8") from None
        if values.keys() & self._config.now.black_list():
            raise CommandError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            unknown = self._config.update(values)
        except ConfigError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        _log.info("configuration changed by %s: %s, unknown: %s", connection.peer, sorted(values), unknown)
        return Command.response(ResponseCode.SUCCESS)

    def get_config(self, _connection: Connection, _request: Command) -> Command:
        """GET_NAMESRV_CONFIG 319."""
        return Command.response(ResponseCode.SUCCESS, body=self._config.text().encode())


def _allowed(enabled: bool) -> None:
    if not enabled:
        raise CommandError(ResponseCode.SYSTEM_ERROR, "disable")


def _answer(topics: TopicList) -> Command:
    return Command.response(ResponseCode.SUCCESS, body=topics.encode())
