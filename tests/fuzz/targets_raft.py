"""Decoders of what members of a group say to one another: CBOR, frames, handshake, messages, manifests, entries."""

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any

import cbor2

from broker.metadata.meta_entry import decode as decode_meta
from broker.metadata.meta_entry import deleted_topics
from broker.metadata.meta_entry import encode as encode_meta
from broker.metadata.operations import Table, Verb
from broker.metadata.table_file import MetadataError
from raft.network.handshake import Acceptor, Dialler, HandshakeRefused, Identity
from raft.protocol.config import ConfigRefused, GroupConfig, Member
from raft.protocol.hello import Hello, HelloError
from raft.protocol.messages import FIELDS, HEAD_BYTES_MAX, MessageError, MessageKind, RaftMessage, decode, encode_head
from raft.protocol.types import EntryType, Mark
from raft.protocol.wire import FRAME_BYTES_MAX, GREETING_BYTES_MAX, RaftFrameReader, WireError, frame
from raft.snapshot.protocol import CopiedFile, Manifest, MetadataFile, ResetMismatch
from remoting.record import RecordError, encode_record
from runtime.cbor import CborError, read_cbor
from store.controlrecord import Control, ControlError, chained, decode_control, encode_control
from store.log.dispatch import DELAY_LEVELS_MS
from store.log.logscan import check_record
from store.raftlog.covered_records import CoveredReader, check_covered
from store.slave.recordreader import RecordReader
from tests.fuzz.bounds import KIB, MIB, Target
from tests.parts.raft_hellos import grouped, hello

# Words of CBOR: containers, lengths of 8 bytes, tags, numbers without end, floats, what has no length.
WORDS = (
    b"\x80", b"\x81", b"\xa0", b"\xa1\x00", b"\x9b" + b"\xff" * 8, b"\x5b" + b"\x7f" * 8, b"\x9a\x00\x01\x00\x00",
    b"\xc2\x58\x40" + b"\xff" * 64, b"\xc3\x41\x01", b"\xd8\x23\x63a+b", b"\xd8\x1c\x81\xd8\x1d\x00", b"\xc0\x61a",
    b"\xfb" + b"\x7f" * 8, b"\xf9\x7e\x00", b"\x9f", b"\xbf", b"\xff", b"\xf4", b"\xf5", b"\xf6", b"\x1b" + b"\xff" * 8,
    b"\x3b" + b"\xff" * 8, b"\x40", b"\x60", b"\x61\xff", b"\xd9\x01\x02\x80", b"\xc4\x82\x1a\x7f\xff\xff\xff\x01",
)  # fmt: skip
# Of records: flags of hosts, magics, separators of properties.
_RECORD_WORDS = (b"\x10", b"\x20", b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\x00", b"TAGS\x01", b"\x02")
SECRET = (b"secret of sixteen",)
NONCE = bytes(32)


@cache
def _bombs(size: int) -> tuple[bytes, ...]:
    """Return CBOR of at most so many bytes that costs a reader of the whole format far more than them."""
    pattern = b"(a?){40}" * ((size - 20) // 8)
    return (
        # Tag 35: a regular expression, which is compiled. 712 bytes of it stopped a leader for 1.65 s.
        b"\xd8\x23" + cbor2.dumps("(" * 100 + "a?" * 254 + ")" * 100)[: size - 2],
        b"\xd8\x23" + cbor2.dumps(pattern.decode()),
        # A kind, a step, a version that is a number of a kilobyte.
        b"\x81\xc2" + cbor2.dumps(b"\xff" * (size - 8)),
        cbor2.dumps({"t": 1 << 8 * (size - 60)}),
        # Decimal fractions, shared values, what contains itself, an item that says it has 2^63 of them.
        b"\xc4\x82\x1b" + b"\x7f" * 8 + b"\x01", b"\xd8\x1c\x81\xd8\x1d\x00", b"\x9b" + b"\xff" * 8,
        b"\x81" * (size - 1) + b"\x00", b"\x9f" * size, b"\xc1" * (size - 1) + b"\x00",
        cbor2.dumps([0] * (size - 9)), cbor2.dumps([[]] * (size - 9)), cbor2.dumps([{}] * (size - 9)),
        cbor2.dumps([""] * (size - 9)), cbor2.dumps(dict.fromkeys(range(size // 5), 0))[:size],
        cbor2.dumps("é" * (size // 2 - 9)), cbor2.dumps([b""] * (size - 9)),
    )  # fmt: skip


def _lazily(found: tuple[bytes, ...]) -> tuple[Callable[[], bytes], ...]:
    return tuple(lambda each=each: each for each in found)


def _identity(number: int) -> Identity:
    return Identity("RaftNode00", f"n{number}", SECRET, lambda: hello(number).encode())


def _dialler() -> Dialler:
    dialler = Dialler(_identity(2), "n1", "messages", NONCE)
    dialler.open()
    return dialler


def _acceptor() -> Acceptor:
    return Acceptor(_identity(1), NONCE, lambda _peer, _hello: None)


def _accepted(data: bytes) -> None:
    """Give bytes to the accepting side as the first frame, and as the third."""
    with contextlib.suppress(HandshakeRefused):
        _acceptor().take(data)
    acceptor = _acceptor()
    acceptor.take(_dialler_opening())
    acceptor.take(data)


def _dialler_opening() -> bytes:
    return Dialler(_identity(2), "n1", "messages", NONCE).open()


def _handshake() -> list[Target]:
    dialler, acceptor = Dialler(_identity(2), "n1", "messages", NONCE), _acceptor()
    first = dialler.open()
    second = acceptor.take(first).reply
    third = dialler.take(second).reply
    fourth = acceptor.take(third).reply
    refusal = HandshakeRefused("no").farewell

    def dialled(data: bytes) -> None:
        _dialler().take(data)

    bombs = _lazily((*(bomb for size in (712, 4200, 16 * KIB - 8) for bomb in _bombs(size)), *_bombs(300)))
    return [
        Target("raft.handshake.accept", _accepted, (HandshakeRefused,), (first, third, refusal), bombs,
               bytes_max=GREETING_BYTES_MAX, weight=6, tokens=WORDS),
        Target("raft.handshake.dial", dialled, (HandshakeRefused,), (second, fourth, refusal), bombs,
               bytes_max=GREETING_BYTES_MAX, weight=4, tokens=WORDS),
    ]  # fmt: skip


def _value(name: str) -> Any:
    known: dict[str, Any] = {
        "hello": b"h", "entries": [[5, 2, 900, 3], [6, 2, 903, 4]], "ok": True, "granted": False, "transfer": True,
        "sure": True, "why": "why", "name": "commitlog/", "group_id": bytes(16), "first": 5,
    }  # fmt: skip
    return known.get(name, 7)


def _messages() -> tuple[bytes, ...]:
    found = []
    for kind, fields in FIELDS.items():
        payload = (b"abc", b"defg") if any(name == "entries" for name, _ in fields) else ()
        found.append(encode_head(RaftMessage(kind, {name: _value(name) for name, _ in fields}, payload)))
    return tuple(found)


def _read_frames(limit: int) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        """Receive bytes as the loop does, and decode each message."""
        reader = RaftFrameReader(limit)
        at = 0
        while at < len(data):
            room = reader.buffer()
            part = data[at : at + min(len(room), 64 * KIB)]
            room[: len(part)] = part
            at += len(part)
            for head, payload in reader.filled(len(part)):
                decode(head, payload)
            if reader.error is not None:
                raise reader.error

    return read


def _claimed(data: bytes) -> int:
    """Return the bytes of a stream, and of the frame that it leaves unfinished: a member may have them reserved.

    They are address space until they come (calloc), and who has not proved who he is may say 16 KiB.
    """
    at = 0
    while at + 4 <= len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    return at if len(data) < at <= len(data) + FRAME_BYTES_MAX else len(data)


def _framed(head: bytes, payload: bytes = b"") -> bytes:
    return b"".join(map(bytes, frame(head, (payload,) if payload else ())[0]))


def _reframed(data: bytes) -> bytes:
    """Put a frame's length right."""
    return (len(data) - 4).to_bytes(4, "big") + data[4:] if len(data) > 4 else data


def _wire() -> list[Target]:
    heads = _messages()
    payloads = {MessageKind.APPEND: b"abcdefg", MessageKind.ADOPT: b"abcdefg", MessageKind.REPAIR_REPLY: b"abcdefg"}
    frames = tuple(_framed(head, payloads.get(kind, b"")) for kind, head in zip(FIELDS, heads, strict=True))
    rows = [[5 + n, 2, 100 * n, 100] for n in range(1024)]
    fields = {"term": 2, "seq": 1, "prev_index": 4, "prev_term": 2, "commit": 4, "entries": rows}
    longest = encode_head(RaftMessage(MessageKind.APPEND, fields, (b"x" * 100,) * 1024))
    heavy: tuple[Callable[[], bytes], ...] = (
        lambda: _framed(longest, b"x" * 102_400),
        lambda: bytes(4) * 50_000,
        lambda: FRAME_BYTES_MAX.to_bytes(4, "big") + b"\x00\x05" + bytes(MIB),
        lambda: (FRAME_BYTES_MAX + 1).to_bytes(4, "big") + bytes(MIB),
        lambda: _framed(cbor2.dumps([2, 1, 1, 1, 1, 1, [[5, 2, 9, 15 * MIB]]]), bytes(15 * MIB)),
        *(lambda bomb=bomb: _framed(bomb) for bomb in _bombs(HEAD_BYTES_MAX)),
        lambda: frames[1] * 5000,
    )
    bombs = _lazily((*_bombs(712), *_bombs(4200), *_bombs(HEAD_BYTES_MAX)))
    return [
        Target("raft.messages", lambda data: decode(data, b"abcdefg"), (MessageError,), heads, bombs,
               bytes_max=HEAD_BYTES_MAX, weight=8, tokens=WORDS),
        Target("raft.frames.member", _read_frames(FRAME_BYTES_MAX), (WireError, MessageError), frames, heavy,
               _reframed, _claimed, bytes_max=512 * KIB, weight=5, tokens=WORDS),
        Target("raft.frames.stranger", _read_frames(GREETING_BYTES_MAX), (WireError, MessageError), frames, heavy,
               _reframed, bytes_max=64 * KIB, weight=3, tokens=WORDS),
    ]  # fmt: skip


def _config() -> GroupConfig:
    members = tuple(Member(f"n{n}", f"host-{n}:{40911 + n}", bytes([n]) * 16, n != 2) for n in range(3))
    return GroupConfig(b"G" * 16, members, 100, 3, 2, 77)


def _manifest(files: int) -> Manifest:
    size = 1 << 20
    copied = tuple(CopiedFile(n * size, size) for n in range(files))
    metadata = tuple(MetadataFile(f"t{n}.json", 10, n) for n in range(3))
    return Manifest(_config().encode(), Mark(9, 2, files * size, 5), size, copied, metadata)


def _plain() -> list[Target]:
    hellos = (hello(0).encode(), grouped(2, peer_ids=("n0", "n1"), broker_address="10.0.0.1:10911").encode())
    config = _config().encode()
    mixed = cbor2.dumps([1, -1, b"ab", "text", True, None, {"a": [1 << 40], 7: "é"}, [[], {}]])
    manifests = (_manifest(1).encode(), _manifest(3).encode())
    bombs = _bombs(8000)
    return [
        Target("cbor", lambda data: read_cbor(data, len(data)), (CborError,), (mixed, config, *hellos),
               _lazily((*_bombs(712), *bombs, *_bombs(128 * KIB)[-6:])), bytes_max=MIB, weight=10, tokens=WORDS),
        Target("raft.hello", Hello.decode, (HelloError,), hellos, _lazily(bombs),
               bytes_max=9000, weight=5, tokens=WORDS),
        Target("raft.config", GroupConfig.decode, (ConfigRefused,), (config,), _lazily((*bombs, *_bombs(16_000))),
               bytes_max=17_000, weight=5, tokens=WORDS),
        # The longest there is: a million log files.
        Target("raft.manifest", Manifest.decode, (ResetMismatch,), manifests,
               (*_lazily((*bombs, *_bombs(256 * KIB)[-6:])), lambda: _manifest(60_000).encode()),
               bytes_max=MIB, weight=5, tokens=WORDS),
    ]  # fmt: skip


def _read_meta(data: bytes) -> None:
    """Read an entry as a member does that applies it, and as one that looks what it deletes."""
    deleted_topics(data)
    decode_meta(data)


def _meta() -> Target:
    version = [1, 2, 3]
    operations = [
        [Verb.PUT, Table.TOPICS, version, [["t", 4, 4, 6, "SINGLE_TAG", 0, False, {"a": "b"}]]],
        [Verb.DELETE, Table.TOPICS, version, ["t", "u"]],
        [Verb.COMMIT, Table.OFFSETS, version, [["t@g", 0, 5, False], ["t@g", 1, 5, True]]],
        [Verb.CLONE, Table.OFFSETS, version, "a", "b", "t"],
        [Verb.CLEAR, Table.GROUPS, version],
    ]
    seeds = (encode_meta(operations), *(encode_meta([each]) for each in operations), cbor2.dumps([1, [2, 1, 0]]))
    large = (
        *(lambda bomb=bomb: b"\x82\x01" + bomb for bomb in _bombs(256 * KIB)[-6:]),
        lambda: encode_meta([[Verb.COMMIT, Table.OFFSETS, version, [["t@g", n, 5, False] for n in range(60_000)]]]),
    )
    return Target("raft.meta", _read_meta, (MetadataError,), seeds, (*_lazily(_bombs(8000)), *large),
                  bytes_max=MIB, weight=6, tokens=WORDS)  # fmt: skip


def _read_log(data: bytes) -> None:
    """Take a master's bytes as a slave does; each record is looked at as recovery and repair do."""
    taken = RecordReader(DELAY_LEVELS_MS).read(data, 0, 8 * MIB)
    view = memoryview(data)
    for record in taken.batch:
        at = record.physical_offset
        assert not isinstance(check_record(view, at, at, check_crc=True), str), "both take it, or neither"


def _read_covered(data: bytes) -> None:
    """Take an entry's records as a follower does; the first two bytes say how many it claims."""
    count, covered = int.from_bytes(data[:2], "big"), data[2:]
    check_covered(memoryview(covered), 0, count)
    reader = CoveredReader(DELAY_LEVELS_MS)
    # Names are learnt by the first look.
    plain = reader._read(covered, 0, count)
    assert reader.read(covered, 0, count) == plain, "compiled and in Python the same"


def _read_uncovered(data: bytes) -> None:
    """Do so with records that nobody has checked."""
    reader = CoveredReader(DELAY_LEVELS_MS)
    reader._learn(b"topic")
    reader.read(data[2:], 0, int.from_bytes(data[:2], "big"))


def _read_control(data: bytes) -> None:
    """Read a control record that recovery has looked at."""
    view = memoryview(data)
    if not isinstance(check_record(view, 0, 0, check_crc=False), str):
        decode_control(view)


def _log() -> list[Target]:
    pair = b"KEYS\x01k\x02TAGS\x01a\x02"
    first = encode_record("topic", 3, b"body" * 9, pair, store_timestamp=5)
    second = encode_record("%RETRY%g", 3, b"", b"", physical_offset=len(first), queue_offset=8)
    control = chained(Control(5, 0, 0, 9, EntryType.CONFIG, 0, 2, 1, 0, 0, 0, 4, 5, 0, _config().encode()), 7)
    encoded = encode_control(control, bytes(8))

    def many(size: int) -> Callable[[], bytes]:
        return lambda: b"".join(encode_record("t", 0, b"", b"", physical_offset=at) for at in range(0, size - 94, 94))

    return [
        Target("slave.log", _read_log, (RecordError,), (first, first + second, encoded),
               (many(256 * KIB), many(3 * MIB)), bytes_max=256 * KIB, weight=6,
               tokens=_RECORD_WORDS),
        Target("raft.covered", _read_covered, (RecordError,), (b"\0\x01" + first, b"\0\x02" + first + second, b"\0\0"),
               (lambda: b"\x0a\xe6" + many(256 * KIB)(),), bytes_max=256 * KIB, weight=6, tokens=_RECORD_WORDS),
        Target("raft.uncovered", _read_uncovered, (RecordError,), (b"\0\x01" + first, b"\0\x02" + first + second),
               bytes_max=64 * KIB, weight=6, tokens=_RECORD_WORDS),
        Target("raft.control", _read_control, (ControlError,), (encoded, first), weight=3),
    ]  # fmt: skip


def targets() -> list[Target]:
    """Return them all."""
    return [*_handshake(), *_wire(), *_plain(), _meta(), *_log()]
