"""Bodies about topics and where they live: topic configuration, registration, routes, lists."""

import struct
import zlib
from typing import Any, Self

import msgspec
import orjson

from remoting import fastjson
from remoting.bodies.base import Body, Data, DataVersion
from remoting.errors import HeaderError

# A compressed registration may unfold to so many bytes, and to so many times its own; more is a HeaderError. A million
# topics need 60 MiB, and 16 times what they were compressed to; the first MiB is allowed whatever it came from.
INFLATED_BYTES_MAX = 64 * 1024 * 1024
INFLATED_RATIO_MAX = 100
_INFLATED_BYTES_FREE = 1024 * 1024
# Topics of one registration: the shortest lines would make five times as many of the bytes above.
TOPICS_MAX = 1_000_000
_LENGTH = struct.Struct(">i")


class TopicConfig(Body, msgspec.Struct):
    """One topic as a broker keeps it. `perm` is codes.Perm; `attributes` are RocketMQ's key=value strings."""

    topicName: str = ""
    readQueueNums: int = 16
    writeQueueNums: int = 16
    perm: int = 6
    topicFilterType: str = "SINGLE_TAG"
    topicSysFlag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Name a filter type that came as its ordinal, attribute values as strings."""
        kind = fields.get("topicFilterType")
        if isinstance(kind, int):
            fields["topicFilterType"] = "MULTI_TAG" if kind == 1 else "SINGLE_TAG"
        if isinstance(attributes := fields.get("attributes"), dict):
            fields["attributes"] = {
                key: value if isinstance(value, str) else fastjson.dumps_object_keyed(value).decode()
                for key, value in attributes.items()
            }
        return fields


class TopicConfigTable(Body, msgspec.Struct):
    """All topics of a broker and their version (code 21's answer, topics.json, the heart of a registration).

    The mapping fields are about static topics; None leaves one out.
    """

    dataVersion: DataVersion = msgspec.field(default_factory=DataVersion)
    mappingDataVersion: DataVersion | None = msgspec.field(default_factory=DataVersion)
    topicConfigTable: dict[str, TopicConfig] = {}
    topicQueueMappingDetailMap: dict[str, Any] | None = msgspec.field(default_factory=dict)
    topicQueueMappingInfoMap: dict[str, Any] | None = msgspec.field(default_factory=dict)

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Repair every topic."""
        table = fields.get("topicConfigTable")
        if isinstance(table, dict):
            fields["topicConfigTable"] = {
                name: TopicConfig.repair(config) if isinstance(config, dict) else config
                for name, config in table.items()
            }
        return fields


class TopicConfigAndMapping(TopicConfig):
    """Code 351's answer: one topic, and its queue mapping where it is a static topic."""

    topicQueueMappingDetail: dict[str, Any] | None = None


class TopicConfigList(Body, msgspec.Struct):
    """Code 18's body."""

    topicConfigList: list[TopicConfig] = []


class QueueData(Body, msgspec.Struct, frozen=True):
    """A topic's queues on one broker group, as routes show them. Immutable, so that equal ones can be shared."""

    brokerName: str = ""
    perm: int = 0
    readQueueNums: int = 0
    topicSysFlag: int = 0
    writeQueueNums: int = 0


class BrokerData(Body, msgspec.Struct):
    """One broker group: address by broker id; 0 is who takes writes."""

    brokerAddrs: dict[int, str] = {}
    brokerName: str = ""
    cluster: str = ""
    enableActingMaster: bool = False
    zoneName: str | None = None


class TopicRouteData(Body, msgspec.Struct):
    """Where a topic lives. `orderTopicConf` is "broker:queues;…"; `filterServerTable` is address → filter servers."""

    brokerDatas: list[BrokerData] = []
    filterServerTable: dict[str, list[str]] = {}
    orderTopicConf: str | None = None
    queueDatas: list[QueueData] = []
    topicQueueMappingByBroker: dict[str, Any] | None = None


class ClusterInfo(Body, msgspec.Struct):
    """Code 106's answer: group name → group, cluster name → group names."""

    brokerAddrTable: dict[str, BrokerData] = {}
    clusterAddrTable: dict[str, list[str]] = {}


class BrokerMemberGroup(Body, msgspec.Struct):
    """The members of one broker group."""

    brokerAddrs: dict[int, str] = {}
    brokerName: str = ""
    cluster: str = ""


class BrokerMemberGroupBody(Body, msgspec.Struct):
    """Code 901's answer."""

    brokerMemberGroup: BrokerMemberGroup = msgspec.field(default_factory=BrokerMemberGroup)


class TopicList(Body, msgspec.Struct):
    """A list of names; `brokerAddr` stands in code 304's answer alone."""

    brokerAddr: str | None = None
    topicList: list[str] = []


class KVTable(Body, msgspec.Struct):
    """Names and texts: KV configuration, runtime information."""

    table: dict[str, str] = {}


class RegisterBrokerBody(Body, msgspec.Struct):
    """What a broker registers: its topics and its filter servers."""

    filterServerList: list[str] = []
    topicConfigSerializeWrapper: TopicConfigTable = msgspec.field(default_factory=TopicConfigTable)

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Repair the topics."""
        if isinstance(wrapper := fields.get("topicConfigSerializeWrapper"), dict):
            fields["topicConfigSerializeWrapper"] = TopicConfigTable.repair(wrapper)
        return fields

    def encode_compressed(self) -> bytes:
        """Return the compressed form: one zlib stream of length-prefixed parts (topicSysFlag and order get lost)."""
        wrapper = self.topicConfigSerializeWrapper
        topics = [_topic_line(config) for config in wrapper.topicConfigTable.values()]
        mappings = list((wrapper.topicQueueMappingInfoMap or {}).values())
        parts = [_sized(wrapper.dataVersion.encode()), _LENGTH.pack(len(topics))]
        parts.extend(_sized(topic) for topic in topics)
        parts.append(_sized(msgspec.json.encode(self.filterServerList)))
        parts.append(_LENGTH.pack(len(mappings)))
        parts.extend(_sized(fastjson.dumps_object_keyed(mapping)) for mapping in mappings)
        return zlib.compress(b"".join(parts))

    @classmethod
    def decode_compressed(cls, data: Data, topics_max: int = TOPICS_MAX) -> Self:
        """Read the compressed form; the mappings at the end may be absent (before 5.0).

        HeaderError when it cannot be read, or holds more topics.
        """
        servers, wrapper = _read_parts(_inflate(data), topics_max)
        return cls(filterServerList=servers, topicConfigSerializeWrapper=wrapper)


def _topic_line(config: TopicConfig) -> bytes:
    attributes = msgspec.json.encode(config.attributes).decode()
    return (
        f"{config.topicName} {config.readQueueNums} {config.writeQueueNums} {config.perm} "
        f"{config.topicFilterType} {attributes}"
    ).encode()


def _sized(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


def _inflate(data: Data) -> bytes:
    limit = min(INFLATED_BYTES_MAX, max(_INFLATED_BYTES_FREE, INFLATED_RATIO_MAX * len(data)))
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, limit)
    except zlib.error as error:
        raise HeaderError(f"the compressed registration cannot be inflated: {error}") from None
    if not inflater.eof:
        over = len(plain) >= limit
        raise HeaderError(
            f"the compressed registration of {len(data)} bytes unfolds to more than {limit}"
            if over
            else "the compressed registration is cut short"
        )
    return plain


class _Parts:
    """Length-prefixed parts, read one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._dialect_left = fastjson.DIALECT_BYTES_MAX

    def more(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        if self._at + 4 > len(self._data):
            raise HeaderError("the compressed registration is cut short")
        (value,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += 4
        if not 0 <= value <= len(self._data):
            raise HeaderError(f"the compressed registration holds the length {value}")
        return int(value)

    def part(self) -> bytes:
        size = self.number()
        end = self._at + size
        if end > len(self._data):
            raise HeaderError("the compressed registration is cut short")
        part = self._data[self._at : end]
        self._at = end
        return part

    def json(self) -> Any:
        """Read a part as JSON; in all parts together so much of fastjson's dialect as one body may be."""
        part = self.part()
        fastjson.check_density(part)
        try:
            return orjson.loads(part)
        except orjson.JSONDecodeError:
            value = fastjson.loads(part, self._dialect_left)
            self._dialect_left -= len(part)
            return value


def _read_parts(data: bytes, topics_max: int) -> tuple[list[str], TopicConfigTable]:
    parts = _Parts(data)
    version = DataVersion.decode(parts.part())
    if (count := parts.number()) > topics_max:
        raise HeaderError(f"the compressed registration holds {count} topics, {topics_max} is the limit")
    configs = [_topic_of(parts.part()) for _ in range(count)]
    servers = parts.json() or []
    if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
        raise HeaderError("the list of filter servers is not a list of texts")
    mappings: dict[str, Any] = {}
    if parts.more():
        for _ in range(parts.number()):
            mapping = parts.json()
            if not isinstance(mapping, dict) or not isinstance(mapping.get("topic"), str):
                raise HeaderError("a queue mapping names no topic")
            mappings[mapping["topic"]] = mapping
    wrapper = TopicConfigTable(
        dataVersion=version,
        topicConfigTable={config.topicName: config for config in configs},
        topicQueueMappingInfoMap=mappings,
    )
    return servers, wrapper


def _topic_of(line: bytes) -> TopicConfig:
    try:
        fields = line.decode().split(" ", 5)
        config = TopicConfig(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), fields[4])
    except (UnicodeDecodeError, ValueError, IndexError):
        raise HeaderError(f"not a topic: {line[:120]!r}") from None
    if len(fields) > 5 and fields[5] not in {"", "{}", "null"}:
        try:
            attributes = orjson.loads(fields[5])
        except orjson.JSONDecodeError:
            attributes = None
        if not isinstance(attributes, dict):
            raise HeaderError(f"not a topic: {line[:120]!r}")
        config.attributes = {str(key): str(value) for key, value in attributes.items()}
    return config
