"""Request frames from templates, and just enough reading of answers: what a load generator does per message.

A template is encoded once; only the opaque (seven digits, so that no length changes) and, for pulls, queue and offset
are filled in. Frame layout: int32 length, int32 header length with the serialize type (0, JSON) in its top byte,
header, body. remoting/codec.py reads and writes the same, but decodes everything, which is what costs.
"""

import re
import struct
import time

import orjson

from remoting.codes import VERSION, PullSysFlag, RequestCode
from remoting.properties import PROPERTY_UNIQ_KEY, PROPERTY_WAIT, encode_properties
from remoting.record import encode_batch
from remoting.signing import ACCESS_KEY, SIGNATURE, Credentials, signature

OPAQUE_MIN = 1_000_000
OPAQUE_COUNT = 8_000_000  # seven digits each; far more than can be in flight
CONSUMER_GROUP = "bench_consumer"
QUEUES = 8  # what a broker gives to a topic that it creates for a send
LENGTHS = struct.Struct(">ii")

_OPAQUE = re.compile(rb'"opaque":(\d+)')
_CODE = re.compile(rb'"code":(\d+)')
_NEXT = re.compile(rb'"nextBeginOffset":"?(\d+)')
_MARK = b"7654321"


class BadAnswer(Exception):
    """The peer does not speak as a RocketMQ broker does."""


# (opaque, code, header): a plain tuple, because one is made for every message that is measured.
Answer = tuple[int, int, bytes]


def next_offset(answer: Answer) -> int:
    """Return nextBeginOffset of a pull's answer; raises BadAnswer when there is none."""
    found = _NEXT.search(answer[2])
    if found is None:
        raise BadAnswer(f"a pull was answered without nextBeginOffset: {answer[2]!r}")
    return int(found[1])


class Template:
    """A whole frame with a hole of seven digits for the opaque."""

    def __init__(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        header = orjson.dumps(
            {
                "code": int(code),
                "language": "JAVA",
                "version": VERSION,
                "opaque": int(_MARK),
                "flag": 0,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": fields,
            }
        )
        frame = LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body
        before, mark, after = frame.partition(b'"opaque":' + _MARK)
        assert mark, "orjson writes headers without blanks"
        self.pattern = before.replace(b"%", b"%%") + b'"opaque":%d' + after.replace(b"%", b"%%")

    def fill(self, opaque: int) -> bytes:
        """Return the frame with its opaque, which has seven digits."""
        return self.pattern % opaque


def send_templates(topic: str, size: int, credentials: Credentials | None = None) -> list[Template]:
    """Return one send (310) per queue, with a body of `size` bytes, signed by `credentials` if there are any.

    A signature does not cover the opaque: each is signed once, and the load does not do the work that is measured.
    """
    body = body_of(size)
    return [send_template(topic, queue_id, body, credentials) for queue_id in range(QUEUES)]


def send_template(topic: str, queue_id: int, body: bytes, credentials: Credentials | None = None) -> Template:
    """Return a send (310) of `body` to one queue of a topic, signed by `credentials` if there are any."""
    properties = encode_properties({PROPERTY_UNIQ_KEY: "0" * 32, PROPERTY_WAIT: "true"}).decode()
    fields = _signed(_send_fields(topic, queue_id, properties), body, credentials)
    return Template(RequestCode.SEND_MESSAGE_V2, fields, body)


def batch_templates(topic: str, size: int, count: int) -> list[Template]:
    """Return one batch (320) per queue, of `count` messages with bodies of `size` bytes.

    As a Java client sends it: each message has a unique key of its own, the batch all of them.
    """
    body, keys = body_of(size), [f"{number:032X}" for number in range(count)]
    whole = encode_batch(
        [(0, body, encode_properties({PROPERTY_UNIQ_KEY: key, PROPERTY_WAIT: "true"})) for key in keys]
    )
    outer = encode_properties({PROPERTY_UNIQ_KEY: ",".join(keys), PROPERTY_WAIT: "true"}).decode()
    return [
        Template(RequestCode.SEND_BATCH_MESSAGE, {**_send_fields(topic, queue_id, outer), "m": "true"}, whole)
        for queue_id in range(QUEUES)
    ]


def body_of(size: int) -> bytes:
    """Return a body of `size` bytes."""
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def _send_fields(topic: str, queue_id: int, properties: str) -> dict[str, str]:
    """Return the custom fields of a send with the short names of V2."""
    return {
        "a": "bench_producer",
        "b": topic,
        "c": "TBW102",
        "d": str(QUEUES),
        "e": str(queue_id),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
    }


def _signed(fields: dict[str, str], body: bytes, credentials: Credentials | None) -> dict[str, str]:
    """Return the custom fields of a request with those of a user who signs it, or as they are."""
    if credentials is None:
        return fields
    named = {**fields, ACCESS_KEY: credentials.access_key}
    return {**named, SIGNATURE: signature(credentials.secret_key, named, body)}


def pull_template(
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    credentials: Credentials | None = None,
    *,
    group: str = CONSUMER_GROUP,
    suspend_ms: int = 0,
) -> Template:
    """Return a pull (11) of at most `count` messages, signed as a send is.

    It is answered at once; with `suspend_ms` it waits so long for a message where there is none.
    """
    flags = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if suspend_ms else PullSysFlag(0))
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": str(int(flags)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
    }
    return Template(RequestCode.PULL_MESSAGE, _signed(fields, b"", credentials))


class AnswerReader:
    """Cuts a stream of bytes into answers; keeps the unfinished rest."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Answer]:
        """Return the answers that are whole now; raises BadAnswer."""
        data = self._rest + data if self._rest else data
        answers: list[Answer] = []
        position, end = 0, len(data)
        while end - position >= LENGTHS.size:
            length, head_length = LENGTHS.unpack_from(data, position)
            head_length &= 0xFFFFFF
            after = position + 4 + length
            if after > end:
                break
            head = data[position + 8 : position + 8 + head_length]
            opaque, code = _OPAQUE.search(head), _CODE.search(head)
            if opaque is None or code is None:
                raise BadAnswer(f"an answer has no JSON header: {head[:80]!r}")
            answers.append((int(opaque[1]), int(code[1]), head))
            position = after
        self._rest = data[position:]
        return answers
