"""What every body has in common: JSON with RocketMQ's field names, written strictly and read leniently."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec

from remoting import fastjson
from remoting.errors import HeaderError

Data = bytes | bytearray | memoryview
# For each object and array of what only a broker that was asked sends, or a file holds: `"t@g":{0:7},` has so many.
CONTAINER_BYTES_ASKED_MIN = 12


class Body:
    """A request's or response's body. Attribute names are wire names; fields that are None are left out.

    Read leniently: fastjson's dialect, nulls as absent, numbers and booleans as strings, unknown fields ignored.
    """

    __slots__ = ()

    dialect_bytes_max: ClassVar[int | None] = fastjson.DIALECT_BYTES_MAX
    """Longer ones must be strict JSON; None: any, for only a broker that was asked sends it, or a file holds it."""
    container_bytes_min: ClassVar[int] = fastjson.CONTAINER_BYTES_MIN
    """Bytes of it for each object and array in it, at least."""
    queue_keyed: ClassVar[tuple[str, ...]] = ()  # fields that are maps keyed by MessageQueue: never plain JSON

    def encode(self) -> bytes:
        """Return the body's bytes; integer keys are quoted."""
        if self.queue_keyed:
            return fastjson.dumps_object_keyed(self)
        data = msgspec.json.encode(self)
        if b":null" in data:
            data = msgspec.json.encode(without_nulls(msgspec.to_builtins(self, str_keys=True)))
        return data

    @classmethod
    def decode(cls, data: Data) -> Self:
        """Read a body; raises HeaderError when it is not of this kind."""
        fastjson.check_density(data, cls.container_bytes_min)
        try:
            return msgspec.json.decode(data, type=cls, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        return cls.from_object(fastjson.loads(data, cls.dialect_bytes_max, cls.container_bytes_min))

    @classmethod
    def from_object(cls, value: object) -> Self:
        """Make a body of a decoded JSON value, which is changed by it; raises HeaderError."""
        if not isinstance(value, dict):
            raise HeaderError(f"the body is not a {cls.__name__}: an object was expected")
        try:
            fields = cls.repair(without_nulls(value))
            for name in cls.queue_keyed:
                if name in fields:
                    fields[name] = queue_keys(fields[name])
            return msgspec.convert(fields, cls, strict=False, str_keys=True)
        except msgspec.ValidationError as error:
            raise HeaderError(f"the body is not a {cls.__name__}: {error}") from None
        except RecursionError:
            raise HeaderError(f"the body is not a {cls.__name__}: it nests too deep") from None

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Put right what this kind of body is known to come with; overridden where there is something."""
        return fields


class MessageQueue(msgspec.Struct, frozen=True, order=True):
    """One queue of a topic on one broker group; sorts by topic, broker, number."""

    topic: str
    brokerName: str
    queueId: int


class DataVersion(Body, msgspec.Struct):
    """The version of a table: `stateVersion` is the term of who changed it, `timestamp` in ms since the epoch."""

    counter: int = 0
    stateVersion: int = 0
    timestamp: int = 0

    def next(self, now_ms: int, state_version: int | None = None) -> "DataVersion":
        """Return the version after one more change."""
        state = self.stateVersion if state_version is None else state_version
        return DataVersion(self.counter + 1, state, now_ms)


def without_nulls(value: Any) -> Any:
    """Take the object fields that are null out of a decoded JSON value, at any depth; return it."""
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        for item in value.values():
            without_nulls(item)
    elif isinstance(value, list):
        for item in value:
            without_nulls(item)
    return value


def queue_keys(value: object) -> dict[MessageQueue, Any]:
    """Turn a decoded map whose keys stood as objects into one keyed by MessageQueue; raises HeaderError."""
    if not isinstance(value, dict):
        raise HeaderError("a map keyed by message queues was expected")
    return {queue_of(fastjson.object_key(key)): item for key, item in value.items()}


def queue_of(fields: Mapping[str, Any]) -> MessageQueue:
    """Make a MessageQueue of its decoded fields; raises HeaderError."""
    try:
        return msgspec.convert(dict(fields), MessageQueue, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"not a message queue: {error}") from None


def enum_name(value: object, names: tuple[str, ...]) -> object:
    """Return the name of an enum that came as its ordinal (the C++ client's habit); anything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < len(names):
            return names[value]
        raise HeaderError(f"{value} is none of {', '.join(names)}")
    return value
