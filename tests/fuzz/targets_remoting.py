"""Decoders of the remoting protocol: frames, headers, bodies of every code, JSON's dialect, records, the HA port."""

import contextlib
import json
import struct
import zlib
from collections.abc import Callable
from functools import partial
from operator import mul
from pathlib import Path
from random import Random

from remoting.bodies import registry as bodies
from remoting.bodies.registry import Body, RegisterBrokerBody, TopicConfig, TopicConfigTable
from remoting.codec import FRAME_BYTES_MAX, HEADER_BYTES_MAX, decode, encode
from remoting.command import JSON, ROCKETMQ, Command
from remoting.errors import FrameError, HeaderError
from remoting.fastjson import CONTAINER_BYTES_MIN, DIALECT_BYTES_MAX, loads
from remoting.framing import FrameReader
from remoting.haframes import HaFrameReader, ReportReader, head, report
from remoting.headers.registry import REQUEST_HEADERS
from remoting.msgid import parse_offset_msg_id
from remoting.properties import decode_properties, find_property, indexed_properties
from remoting.record import RecordError, decode_records, encode_batch, encode_record, split_batch
from remoting.runs import RUNS, RequestRun, cut_for
from tests.fuzz.bounds import KIB, MIB, Target
from tests.fuzz.samples import dialect, filled, heavy_bodies, is_struct, sample
from tests.parts.odd_sends import odd, usual

# What a loop reads at once.
READ_BYTES = 64 * KIB
# What one connection is served while others wait.
TURN_COMMANDS = 100
# Codes of which whoever asks decides on a body's length: the longest frames are given to these.
ASKED_OF_SERVERS = (
    "CheckClientConfigBody", "DataVersion", "HeartbeatData", "LockBatchBody", "RegisterBrokerBody",
    "SubscriptionGroupConfig", "SubscriptionGroupList", "TopicConfigList", "TopicRouteData",
)  # fmt: skip
_LONGEST_BODY = 15 * MIB
_GOLDEN = Path(__file__).parents[1] / "golden" / "data"
# More values than anything sends, of the kind that bodies nest.
DEEP = (b"[" * 1100 + b"]" * 1100, b'{"a":' * 1100 + b"0" + b"}" * 1100, b"[" * 250_000, b"{" * 250_000)


def _recorded() -> tuple[bytes, ...]:
    """Return some frames that official clients and brokers sent."""
    frames = []
    for path in sorted(_GOLDEN.glob("frames-*.jsonl")):
        frames += [bytes.fromhex(json.loads(line)["frame"]) for line in path.read_text("utf-8").splitlines()]
    return tuple(frame for frame in frames if len(frame) <= 2048)[::7]


def _asked(serialize_type: int) -> tuple[bytes, ...]:
    """Return a request for each code that has a header, all its fields set."""
    found = []
    for code, kind in REQUEST_HEADERS.items():
        ext = {name: value if isinstance(value, str) else json.dumps(value) for name, value in sample(kind).items()}
        command = Command.request(code, ext=ext, body=b"body")
        command.serialize_type = serialize_type
        found.append(encode(command))
    return tuple(found)


def _look_at(command: Command) -> None:
    """Read what a handler would."""
    kind = REQUEST_HEADERS.get(command.code)
    if kind is not None:
        command.header(kind)
    repr(command)
    command.ext.get("a")


def _read_frame(frame: bytes) -> None:
    """Decode one frame as framing hands it over, behind its length word."""
    _look_at(decode(frame[4:]))


def read_stream(data: bytes, made: Callable[[], FrameReader] = FrameReader) -> None:
    """Read a connection's bytes as the loop does, some commands a turn, and look at each as a handler would."""
    reader = made()
    for at in range(0, len(data), READ_BYTES):
        commands = reader.feed(data[at : at + READ_BYTES], TURN_COMMANDS)
        while commands:
            for command in commands:
                with contextlib.suppress(HeaderError):
                    _look_at(command)
            commands = reader.more(TURN_COMMANDS) if reader.unread else []
        if reader.error is not None:
            raise reader.error


def _runs() -> FrameReader:
    reader = FrameReader()
    reader.cuts = cut_for(RUNS)
    return reader


def _read_runs(data: bytes) -> None:
    """Read a connection's bytes with usual sends cut as runs, where that is compiled: the same must come of it."""
    found: list[Command] = []
    runs, plain = _runs(), FrameReader()
    for at in range(0, len(data), READ_BYTES):
        part = data[at : at + READ_BYTES]
        for command in runs.feed(part):
            found += command.commands() if isinstance(command, RequestRun) else [command]
        taken = plain.feed(part)
        both = ([(each.opaque, each.flag, each.ext, bytes(each.body)) for each in all_] for all_ in (found, taken))
        assert next(both) == next(both), "a run is what its frames are"
        found.clear()
        if runs.error is not None:
            assert str(runs.error) == str(plain.error)
            raise runs.error


def with_lengths(frame: bytes) -> bytes:
    """Put a frame's length right, and its header's when the header is JSON."""
    kind = frame[4] if len(frame) > 4 else JSON
    inner = frame[8:]
    stop = inner.rfind(b"}") + 1 if kind == JSON else int.from_bytes(frame[5:8], "big")
    return struct.pack(">II", len(inner) + 4, kind << 24 | min(stop, len(inner))) + inner


def frame_of(header: bytes, kind: int = JSON, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def _many_fields(count: int) -> Callable[[], bytes]:
    return lambda: frame_of(
        b'{"code":14,"extFields":{' + b",".join(b'"%x":"1"' % number for number in range(count)) + b"}}"
    )


def _long_headers() -> tuple[Callable[[], bytes], ...]:
    size = HEADER_BYTES_MAX - 100
    values = (
        b"[" * 300 + b"]" * 300,
        b"[" + b"0," * (size // 2 - 40) + b"0]",
        b"[" + b"{}," * (size // 3 - 40) + b"0]",
    )
    return (
        *(lambda value=value, name=name: frame_of(b'{"code":10,"%b":%b}' % (name, value))
          for value in values for name in (b"remark", b"language", b"flag")),
        *(lambda value=value: frame_of(b'{"code":10,"extFields":{"a":%b}}' % value) for value in values),
        lambda: frame_of(b'{"code":10,"extFields":{"a":"' + b"1" * size + b'","d":"' + b"9" * 99 + b'"}}'),
        lambda: frame_of(b'{"code":' + b"9" * size + b"}"),
        _many_fields(128), _many_fields(5000),
        lambda: frame_of(b'{"code":1,"remark":"' + b"\\u0041" * (size // 6 - 10) + b'"}'),
    )  # fmt: skip


def _binary_header(fields: bytes, remark: bytes = b"") -> bytes:
    fixed = struct.pack(">hBhiii", 14, 0, 0, 1, 0, len(remark)) + remark
    return frame_of(fixed + len(fields).to_bytes(4, "big") + fields, ROCKETMQ)


def _streams() -> tuple[Callable[[], bytes], ...]:
    little = frame_of(b'{"code":0,"opaque":0}')
    return (
        lambda: struct.pack(">II", FRAME_BYTES_MAX, 20) + b'{"code":10,"flag":0}' + bytes(FRAME_BYTES_MAX - 24),
        lambda: frame_of(b'{"code":34,"flag":0}', body=b"[" + b"0," * (2 * MIB) + b"0]"),
        lambda: little * (256 * KIB // len(little)),
        lambda: _binary_header(b"") * 8000,
        lambda: struct.pack(">I", FRAME_BYTES_MAX) + bytes(MIB),
        lambda: struct.pack(">I", FRAME_BYTES_MAX + 1) + bytes(MIB),
        lambda: struct.pack(">II", 4, 0) * 30_000,
    )


def _sends() -> tuple[bytes, ...]:
    dice = Random(1)
    alone = [make(dice, number) for number in range(30) for make in (usual, odd)]
    return (*alone, *(b"".join(usual(dice, number) for number in range(count)) for count in (2, 9)))


def _frames() -> list[Target]:
    bare = (b'{"code":0}', b'{"code":"10","flag":null,"extFields":{"a":1,"b":true}}', b'{"code":1,"language":3}')
    fields = b"".join(struct.pack(">H", 1) + name + struct.pack(">I", 1) + b"1" for name in (b"a", b"b", b"c"))
    wrong = (FrameError, HeaderError)
    return [
        Target("frames.stream", read_stream, wrong, (*_recorded(), *_asked(JSON)[:9]), _streams(),
               with_lengths, bytes_max=512 * KIB, weight=6),
        Target("frames.sends", _read_runs, wrong, _sends(), (lambda: _sends()[-1] * 80,),
               with_lengths, bytes_max=64 * KIB, weight=8),
        Target("header.json", _read_frame, wrong, (*_asked(JSON), *map(frame_of, bare)), _long_headers(),
               with_lengths, weight=8, bytes_max=HEADER_BYTES_MAX + 100),
        Target("header.binary", _read_frame, wrong, (*_asked(ROCKETMQ), _binary_header(fields, b"why")),
               (lambda: _binary_header(bytes(6) * 10_000), lambda: _binary_header(fields * 2500, b"x" * 5000),
                lambda: _binary_header(b"", b"\xc3\xa9" * 32_000)),
               with_lengths, weight=6, bytes_max=HEADER_BYTES_MAX + 100),
    ]  # fmt: skip


def _dialect() -> Target:
    largest = DIALECT_BYTES_MAX
    heavy = [filled(start, item, stop, size)
             for size in (largest, largest + 10, 4 * MIB)
             for start, item, stop in (
                 (b"[", b"0", b""), (b"{{", b"{", b""), (b"[", b"{0:1}", b"]"), (b"{", b'{"a":0}:1', b"}"),
                 (b"{", b"a:1", b"}"), (b'["', b"\\", b""), (b"{", b"\t", b""), (b"[", b'"\t"', b"]"),
                 (b"{a:", b'{"":"",{', b"}"), (b'{"a":"\t', b"\xc3\xa9", b'",b:1}'))]  # fmt: skip
    return Target(
        "json.dialect",
        lambda data: loads(data, largest, CONTAINER_BYTES_MIN),
        (HeaderError,),
        (b'{0:"10.0.0.1:10911",1:"b"}', b'{{"brokerName":"b","queueId":0,"topic":"t"}:{"a":1}}', b'{a:[1,{b:"\t\\""}]}',
         b'[-1.5e3,"\xc3\xa9",null,true]', b'{"a":"b\n"}', b"{-1:{$a_9:[]}}"),
        (*heavy, *(lambda deep=deep: deep for deep in DEEP)),
        bytes_max=DIALECT_BYTES_MAX,
        weight=10,
    )  # fmt: skip


def _bodies() -> list[Target]:
    found = []
    for name in bodies.__all__:
        kind = getattr(bodies, name)
        if not (is_struct(kind) and issubclass(kind, Body)):
            continue
        full = sample(kind)
        heavy = heavy_bodies(kind, DIALECT_BYTES_MAX - 10, kind.container_bytes_min)
        if name in ASKED_OF_SERVERS:
            # One of each list is enough: what an item costs is known by then.
            spread = kind.container_bytes_min
            heavy += (*heavy_bodies(kind, _LONGEST_BODY, spread)[:2], *heavy_bodies(kind, 2 * MIB, spread)[::3])
        deep = tuple(lambda deep=deep: deep for deep in DEEP)
        seeds = (json.dumps(full).encode(), dialect(full), kind().encode(), b"{}", b'{"a":null}')
        found.append(Target(f"body.{name}", kind.decode, (HeaderError,), seeds, (*heavy, *deep), weight=1))
    return found


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part


def _registration_parts() -> tuple[bytes, ...]:
    wrapper = TopicConfigTable(
        topicConfigTable={f"t{n}": TopicConfig(f"t{n}", 4, 4, 6, attributes={"+a": "b"}) for n in range(3)},
        topicQueueMappingInfoMap={"t": {"topic": "t", "totalQueues": 3}},
    )
    whole = zlib.decompress(RegisterBrokerBody(["10.0.0.1:1"], wrapper).encode_compressed())
    version = _sized(b'{"counter":1,"stateVersion":0,"timestamp":3}')
    topic = _sized(b"t 1 1 6 SINGLE_TAG {}")
    return whole, version + bytes(3) + b"\x02" + topic * 2 + _sized(b"[]"), version + bytes(4) + _sized(b"null")


def _inflated(data: bytes) -> int:
    """Return how many bytes a compressed registration comes to, as far as its documented limits let it unfold."""
    limit = min(64 * MIB, max(MIB, 100 * len(data)))
    try:
        return max(len(data), len(zlib.decompressobj().decompress(data, limit)))
    except zlib.error:
        return len(data)


def _registration() -> Target:
    version = _sized(b"{}")
    lines = (b"t 1 1 6 S {}", b"", b"t " + b"9" * 4000 + b" 1 6 S", b't 1 1 6 S {"a":' + b"[" * 900 + b"]" * 900 + b"}")

    def topics(line: bytes, count: int) -> Callable[[], bytes]:
        return lambda: zlib.compress(version + count.to_bytes(4, "big") + _sized(line) * count + _sized(b"[]"))

    def json_part(part: bytes) -> Callable[[], bytes]:
        return lambda: zlib.compress(version + bytes(4) + _sized(part))

    heavy = (
        *(topics(line, 2 * MIB // (len(line) + 4)) for line in lines),
        topics(b"topic-%d 16 16 6 SINGLE_TAG {}" % 12345, 100_000),
        # 8,172 bytes: the dialect, half a MiB of it and more.
        *(json_part(b"[" + b"0," * count) for count in (130_000, 500_000, 4_000_000)),
        json_part(b"[" + b"{}," * 300_000 + b"0]"), json_part(b'["' + b'","' * 200_000 + b'"]'),
        lambda: zlib.compress(version + bytes(4) + _sized(b"[]") + (2000).to_bytes(4, "big")
                              + _sized(b'{topic:"t",a:' + b"[" * 50 + b"]" * 50 + b"}") * 2000),
        *(lambda size=size: zlib.compress(bytes(size), 9) for size in (MIB, 8 * MIB, 64 * MIB, 65 * MIB)),
        lambda: zlib.compress(version + b"\x7f\xff\xff\xff")[:8172],
    )  # fmt: skip
    plain = _registration_parts()
    return Target(
        "registration.compressed", RegisterBrokerBody.decode_compressed, (HeaderError,),
        (*plain, *map(zlib.compress, plain)), heavy, zlib.compress, _inflated, weight=8,
    )  # fmt: skip


def _read_records(data: bytes) -> None:
    for check_crc in (False, True):
        decode_records(data, check_crc=check_crc)


def _read_properties(data: bytes) -> None:
    """Read properties all three ways."""
    decode_properties(data)
    indexed_properties(data)
    for name in (b"TAGS\x01", b"KEYS\x01", b"A\x01"):
        find_property(data, name)


def _read_ha(data: bytes) -> None:
    reader = HaFrameReader(32 * KIB)
    for at in range(0, len(data), READ_BYTES):
        reader.feed(data[at : at + READ_BYTES])


def _records() -> list[Target]:
    pair = b"KEYS\x01k1 k2\x02TAGS\x01a\x02UNIQ_KEY\x01" + b"0A" * 16 + b"\x02DELAY\x013"
    one = encode_record("topic", 3, b"body" * 9, pair, queue_offset=7, born_host=bytes(20))
    other = encode_record("t" * 200, 3, b"", b"", queue_offset=8)
    batch = encode_batch([(0, b"one", pair), (1, b"two", b""), (2, b"x" * 300, b"A\x01B")])
    keys = b"TAGS\x01"
    return [
        Target("records", _read_records, (RecordError,), (one, other, one + other * 2),
               (lambda: other * 6000, lambda: one * 4000), bytes_max=MIB, weight=6),
        Target("records.batch", lambda data: list(split_batch(data)), (RecordError,), (batch,),
               (lambda: encode_batch([(0, b"", b"")]) * 50_000, lambda: batch * 3000), bytes_max=MIB, weight=5),
        # A record holds 32,767 bytes of them.
        Target("properties", _read_properties, (), (pair, pair + b"\x02", b"\x01\x02\x01\x02"),
               tuple(partial(mul, item, 32_767 // len(item))
                     for item in (keys, b"a" + keys, b"\x01", b"\x02", b"A\x01b\x02")),
               bytes_max=32_767, weight=5, tokens=(keys, b"KEYS\x01", b"UNIQ_KEY\x01", b"\x01", b"\x02")),
        Target("ha.frames", _read_ha, (FrameError,), (head(0, 0), head(1 << 40, 9) + b"123456789" + head(9, 0)),
               (lambda: head(0, 0) * 80_000, lambda: (head(5, 32 * KIB) + bytes(32 * KIB)) * 200,
                lambda: head(0, 32 * KIB) + bytes(100)), bytes_max=256 * KIB, weight=5),
        Target("ha.reports", lambda data: ReportReader().feed(data), (), (report(7), report(-1) * 3),
               (lambda: report(1 << 62) * (READ_BYTES // 8),), bytes_max=READ_BYTES, weight=3),
        Target("message.id", lambda data: parse_offset_msg_id(data.decode("utf-8", "replace")), (ValueError,),
               (b"7F00000100002A9F0000000000000007", b"0A" * 28), weight=1),
    ]  # fmt: skip


def targets() -> list[Target]:
    """Return them all."""
    return [*_frames(), _dialect(), *_bodies(), _registration(), *_records()]
