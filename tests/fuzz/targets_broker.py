"""Decoders of what servers and clients are asked beside bodies: orders, settings, filters, packed bodies."""

import contextlib
import random
import zlib
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import lz4.frame
import msgspec
import zstandard

from broker.admin.broker import _read_values
from broker.filters.sql import SqlFilter
from broker.filters.tokens import SQL_CHARS_MAX, SqlError
from broker.master_slave.digests import Digests
from broker.master_slave.fencing import deposed_body
from broker.master_slave.ha_followers import Followers
from broker.master_slave.ha_secret import NONCE_BYTES, MasterProof, ProofRefused, SlaveProof
from broker.master_slave.offset_return import ReturnRequest
from broker.master_slave.promotion import _fields
from broker.messages.send_checks import MessageChecks
from broker.messages.tag_filter import EXPRESSION_CHARS_MAX, ExpressionError, tag_codes
from broker.metadata.feed import _request
from broker.metadata.topic_attributes import parse_changes
from broker.pop.records import BatchAckBody, read_handle, read_record
from broker.raft_group.admin import _field
from broker.settings.config import BrokerConfig, LiveConfig
from broker.settings.conversion_orders import ToClassic, ToRaft, decoded
from broker.transactions.records import over, read_half
from client.api import decode_messages
from client.compression import Codec, CompressionError, compress, compressed_flag, decompress, unpacked_bytes_max
from namesrv.handlers_admin import _name
from remoting.command import Command
from remoting.errors import CommandError, HeaderError
from remoting.fastjson import read_strictly
from remoting.properties import encode_properties
from remoting.record import RecordError, encode_record
from remoting.topics import check_group, check_topic
from runtime.clock import ManualClock
from runtime.config import parse_properties
from store.config import StoreConfig
from tests.fuzz.bounds import KIB, MIB, Target
from tests.fuzz.samples import filled

_KINDS = {"zlib": Codec.ZLIB, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def _came_to(kind: str, data: bytes) -> int:
    """Return how many bytes a packed body comes to before it ends, is damaged, or is longer than it may be."""
    unpack: Callable[[bytes], bytes]
    if kind == "zlib":
        unpack = zlib.decompressobj().decompress
    elif kind == "lz4":
        unpack = lz4.frame.LZ4FrameDecompressor().decompress
    else:
        unpack = zstandard.ZstdDecompressor(max_window_size=64 * MIB).decompressobj().decompress
    found = 0
    try:
        for at in range(0, len(data), 64):
            found += len(unpack(data[at : at + 64]))
            if found > unpacked_bytes_max(len(data)):
                break
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError):
        pass
    return max(len(data), min(found, unpacked_bytes_max(len(data))))


def _zstd_of_runs(count: int) -> bytes:
    """Return blocks of one byte each that is said to stand there 131,072 times: four bytes for 128 KiB."""
    block, last = (131_072 << 3 | 2).to_bytes(3, "little"), (131_072 << 3 | 3).to_bytes(3, "little")
    return zstandard.FRAME_HEADER + b"\x00" + bytes([(26 - 10) << 3]) + (block + b"x") * (count - 1) + last + b"x"


def _packed_target(name: str, codec: Codec) -> Target:
    plain = (b"body " * 200, random.Random(1).randbytes(3000), b"", b"x")
    seeds = (*plain, *(compress(each, codec) for each in plain))

    def zeros(size: int) -> bytes:
        return compress(bytes(size), codec)

    sizes = (MIB, 4 * MIB, 16 * MIB, 17 * MIB, 70 * MIB, 200 * MIB)
    heavy: list[Callable[[], bytes]] = [partial(zeros, size) for size in sizes]
    heavy += [partial(_zstd_of_runs, count) for count in (3, 31, 600, 4000)] if codec is Codec.ZSTD else []
    heavy.append(lambda: compress(random.Random(2).randbytes(15 * MIB), codec))
    return Target(
        f"compressed.{name}", partial(decompress, sys_flag=compressed_flag(codec)), (CompressionError,), seeds,
        tuple(heavy), partial(compress, codec=codec), partial(_came_to, name), weight=4,
    )  # fmt: skip


def _packed() -> list[Target]:
    return [_packed_target(name, codec) for name, codec in _KINDS.items()]


def _pulled() -> Target:
    """Make the target of what a consumer reads: records, of which the bodies are packed."""
    records = tuple(
        encode_record("t", 0, compress(b"body" * 100, codec), b"A\x01b", sys_flag=compressed_flag(codec))
        for codec in Codec
    )

    def bombs(codec: Codec, size: int) -> Callable[[], bytes]:
        body = compress(bytes(size), codec)
        return lambda: encode_record("t", 0, body, b"", sys_flag=compressed_flag(codec)) * 3

    return Target(
        "pulled", lambda data: decode_messages(data, "b"), (HeaderError,), (*records, b"".join(records)),
        tuple(bombs(codec, 300 * KIB) for codec in Codec),
        unfolded=lambda data: len(data) + MIB, weight=3,
    )  # fmt: skip


def _asked(read: Callable[[Command], object]) -> Callable[[bytes], object]:
    return lambda body: read(Command.request(1, body=body))


def _read_ranges(request: Command) -> None:
    """Read what a slave wants digests of, as a master does that has files of a GiB."""
    master = cast(Any, SimpleNamespace(_log=SimpleNamespace(file_bytes=1 << 30)))
    Digests._ranges(master, request)


def _orders() -> list[Target]:
    wrong = (CommandError,)
    orders: tuple[tuple[str, Callable[[Command], object], tuple[type[Exception], ...], bytes], ...] = (
        ("deposed", lambda request: deposed_body(request, "b"), wrong, b'{"broker":"b","by":"10.0.0.1:1","epoch":5}'),
        ("to-raft", lambda request: decoded(request, ToRaft), wrong,
         b'{"peers":"n0-h:1;n1-h:2","self":"n0","check":true}'),
        ("to-classic", lambda request: decoded(request, ToClassic), wrong,
         b'{"role":"SLAVE","brokerId":1,"master":"h:1"}'),
        ("promotion", _fields, wrong, b'{"force":true,"others":["a"]}'),
        ("raft-member", lambda request: _field(request, "id"), wrong, b'{"id":"n1"}'),
        ("news", _request, wrong, b'{"seen":5,"wait_ms":100}'),
        ("forget", _name, wrong, b'{"broker":"b"}'),
        ("follower", lambda request: Followers(lambda: 0.0).asked(request.body, "h"), (),
         b'{"brokerId":1,"address":"h:1","nonce":"n"}'),
        ("returned", lambda request: read_strictly(request.body, ReturnRequest), (msgspec.DecodeError,),
         b'{"mark":"m","offsets":{"t@g":{"0":5}}}'),
        ("ranges", _read_ranges, wrong, b'{"ranges":[[0,5],[7,9]]}'),
    )  # fmt: skip
    deep = (
        b'{"a":' + b"[" * 1500,
        b'{"a":' + b"[" * 1011,
        b"[" * 2000,
        b'{"a":' * 2000,
        b'{"broker":' + b"[" * 1500,
        b'{"a":' * 1023 + b"0" + b"}" * 1023,
    )
    heavy = (*(lambda each=each: each for each in deep), filled(b'{"a":[', b"{}", b"]}", 4090),
             filled(b"[", b"0", b"]", 15 * MIB), lambda: b'{"broker":"' + b"\xff" * 4000 + b'"}')  # fmt: skip
    return [Target(f"order.{name}", _asked(read), refuses, (seed, b"{}"), heavy, weight=1)
            for name, read, refuses, seed in orders]  # fmt: skip


def _checks() -> MessageChecks:
    live = LiveConfig(BrokerConfig(), StoreConfig())
    return MessageChecks(live, cast(Any, None), lambda _group, _by: None, ManualClock(), lambda below: below - 1)


def _texts() -> list[Target]:
    checks = _checks()

    def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda data: read(data.decode("utf-8", "replace"))

    def names(name: str) -> None:
        check_topic(name)
        check_group(name)

    settings = b"# comment\nflushDiskType=ASYNC_FLUSH\nbrokerName : a\\\n  b\nx\n"
    lines = (b"a\\\n", b"a=b\n", b"\n", b"#\n", b"a\\\\\n", b"\\\n", b"a=" + b"\\\n", b"\xc3\xa9=1\r")
    long = tuple(
        lambda line=line, size=size: line * (size // len(line)) for line in lines for size in (255 * KIB, 512 * KIB)
    )
    attributes = b"+message.type=FIFO,-queue.type"
    properties = encode_properties({"DELAY": "3", "WAIT": "false", "A": "b", "__RMQ.TRANSIENT.x": "1", "CLUSTER": "c"})
    most = 32_767
    half = encode_record(
        "RMQ_SYS_TRANS_HALF_TOPIC", 0, b"body", b"REAL_TOPIC\x01T\x02REAL_QID\x011\x02TRANSACTION_CHECK_TIMES\x013\x02"
    )
    ops = encode_record("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"1,22,333,", b"TAGS\x01d\x02")
    return [
        Target("settings", text(parse_properties), (), (settings,), (*long, lambda: settings * 20_000),
               bytes_max=MIB, weight=4, tokens=(b"\\\n", b"=", b":", b"#", b"\n", b"\r", b"\x85", b" ")),
        Target("settings.request", _asked(_read_values), (CommandError,), (settings,), long, bytes_max=300 * KIB,
               weight=3, tokens=(b"\\\n", b"=", b":", b"#", b"\n", b"\0")),
        Target("tags", text(tag_codes), (ExpressionError,), (b"TagA || TagB", b"*", b"||", "é || ü".encode()),
               (lambda: b"||" * (EXPRESSION_CHARS_MAX // 2), lambda: b"a||" * (EXPRESSION_CHARS_MAX // 3),
                lambda: b"|" * MIB, lambda: b"\x00 " * 2000),
               weight=3, tokens=(b"||", b"|", b" ", b"*", b"\xf0\x9f\x98\x80")),
        Target("attributes", text(parse_changes), (CommandError,), (attributes,),
               (lambda: b"+a=b," * 800, lambda: b",".join(b"-%d" % n for n in range(800)), lambda: b"," * 4096),
               weight=2, tokens=(b"+", b"-", b"=", b",")),
        Target("names", text(names), (), (b"topic-1", b"%RETRY%group", b"a b"), (lambda: b"a" * MIB,), weight=1),
        Target("send.properties", lambda data: checks.properties(data.decode("utf-8", "replace")), (CommandError,),
               (properties, properties + b"TRAN_MSG\x01true\x02"),
               (lambda: b"A\x01b\x02" * (most // 4), lambda: b"DELAY\x01" + b"9" * (most - 10), lambda: b"\x02" * most,
                lambda: b"__RMQ.TRANSIENT.\x01\x02" * (most // 18)), bytes_max=most, weight=3,
               tokens=(b"\x01", b"\x02", b"DELAY\x01", b"TIMER_DELAY_MS\x01", b"\x02WAIT\x01f")),
        Target("transactions.half", read_half, (RecordError,), (half,), weight=3,
               tokens=(b"REAL_TOPIC\x01", b"\x02REAL_QID\x01", b"TRANSACTION_CHECK_TIMES\x01")),
        Target("transactions.op", lambda data: list(over(data)), (RecordError,), (ops,),
               (lambda: encode_record("O", 0, b"7," * MIB, b"TAGS\x01d\x02"),), weight=2, tokens=(b",", b"9" * 19)),
    ]  # fmt: skip


def _sql() -> list[Target]:
    """Make the targets of SQL92 filters: of their texts, and of the properties that they are evaluated over."""

    def text(data: bytes) -> None:
        SqlFilter(data.decode("utf-8", "replace")).matches(message)

    message = encode_properties({"a": "5", "region": "eu", "TAGS": "TagA"})
    long = tuple(
        lambda piece=piece, end=end: (piece * (SQL_CHARS_MAX // len(piece) + 1))[: SQL_CHARS_MAX - len(end)] + end
        for piece, end in (
            (b"a=1OR ", b"a"), (b"a OR ", b"a"), (b"a AND NOT b OR ", b"a"), (b"a IN('','','')OR ", b"a"), (b"(", b"a"),
            (b"NOT ", b"a"), (b"-", b"1"), (b"a=", b"a"), (b"'", b""), (b"''", b""), (b"/*", b""), (b"*/", b""),
            (b"0", b""), (b"9", b""), (b"9.", b""), (b"1e", b""), (b" ", b"a"), (b"/**/", b"a"), (b"--\n", b"a"),
            (b"a CONTAINS 'x'OR ", b"a"), (b"a BETWEEN 1 AND 2OR ", b"a"), (b"a IS NOT NULL OR ", b"a"), (b"a\n", b""),
        )
    )  # fmt: skip
    searched = b"a IN('" + b"','".join([b"x" * 8] * 350) + b"')"
    either = SqlFilter(
        "a > 5 OR b < 1.5 OR c = 5000000000 OR d = TRUE OR e CONTAINS 'x' OR f IN ('x') OR a < b OR g IS NULL"
    )
    values = (
        b"5",
        b"1" * 9000,
        b" " * 9000 + b"5",
        b"0" * 9000 + b".5",
        b"0x" + b"1" * 9000,
        b"1e" + b"9" * 9000,
        b".",
    )
    most = tuple(
        lambda name=name, value=value: b"g\x01y\x02" + name + b"\x01" + value + b"\x02"
        for name in (b"a", b"b", b"c", b"d", b"e") for value in values
    )  # fmt: skip
    return [
        Target("sql", text, (SqlError,),
               (b"price > 10 AND region = 'eu'", b"a BETWEEN 3 AND 6 AND TAGS IN ('TagA') AND name IS NOT NULL",
                b"NOT (a NOT IN ('x', 'it''s') OR -b >= +1.5e3) /* c */ -- d", b"a <> TRUE"),
               (*long, lambda: searched, lambda: b"a" * MIB), weight=3,
               tokens=(b" AND ", b" OR ", b"NOT ", b"(", b")", b"'", b"''", b" IN (", b" BETWEEN ", b" IS NULL", b"--",
                       b"/*", b"*/", b"1.", b"e9", b"0", b"=", b"<>", b" CONTAINS 'x'", b"\n")),
        Target("sql.message", either.matches, (), (message, b"a\x01x\x02b\x012\x02", b"g\x01\x02c\x015000000000"),
               (*most, lambda: b"A\x01b\x02" * (32_767 // 4), lambda: b"\x02" * 32_767, lambda: b"\x01" * 32_767),
               bytes_max=32_767, weight=2, tokens=(b"\x01", b"\x02", b"a\x01", b"\x02b\x01", b"NaN", b"0x1p", b"\xff")),
    ]  # fmt: skip


def _proofs() -> list[Target]:
    """Make the targets of what comes to the HA port before the first report, and of what a slave is answered."""
    known, nonce = (b"a secret of a pair", b"another one"), bytes(NONCE_BYTES)

    def master(data: bytes) -> None:
        """Take it at once, and as it trickles in."""
        with contextlib.suppress(ProofRefused):
            MasterProof(known, nonce).take(data)
        proof = MasterProof(known, nonce)
        for at in range(0, min(len(data), KIB), 7):
            proof.take(data[at : at + 7])
            if proof.done:
                break

    slave = SlaveProof(known, nonce)
    hello = slave.open()
    answer, _ = MasterProof(known, nonce).take(hello)
    proof = slave.take(answer)
    return [
        Target("ha.proof.master", master, (ProofRefused,), (hello, hello + proof, hello + proof + bytes(8)),
               (lambda: hello * 20_000, lambda: bytes(MIB)), weight=2),
        Target("ha.proof.slave", lambda data: SlaveProof(known, nonce).take(data), (ProofRefused,), (answer,),
               (lambda: answer * 10_000,), weight=2),
    ]  # fmt: skip


def _pops() -> list[Target]:
    def batch(data: bytes) -> None:
        for each in msgspec.json.decode(data, type=BatchAckBody).acks:
            each.offsets()

    def handle(data: bytes) -> None:
        read_handle(data.decode("utf-8", "replace"))

    entry = b'{"b":"Bg==","c":"G","it":6000,"pt":1795380096990,"q":0,"r":"0","rq":5,"so":0,"t":"T"}'
    body = b'{"acks":[' + entry + b'],"brokerName":"b"}'
    point = (
        b'{"bm":0,"bn":"b","c":"G","d":[0,1],"it":1,"n":2,"pt":1,"q":0,"reviveTime":2,"ro":0,"so":0,"sp":false,"t":"T"}'
    )
    said = {b"ck": point, b"bAck": b'{"ao":-1,"aol":[1,2],"bn":"b","c":"G","pt":1,"q":0,"so":0,"t":"T"}'}
    records = tuple(encode_record("R", 0, each, b"TAGS\x01" + tag + b"\x02") for tag, each in said.items())
    long = b'{"so":0,"pt":1,"it":1,"q":0,"t":"T","c":"G","d":[' + b"0," * MIB + b"0]}"
    wide = entry.replace(b"Bg==", b"//8A" + b"A" * 5000)
    return [
        Target("pop.batch", batch, (msgspec.MsgspecError, ValueError), (body,),
               (filled(b'{"acks":[', entry, b"]}", MIB), filled(b'{"acks":[', wide, b"]}", MIB)), weight=3),
        Target("pop.handle", handle, (ValueError,), (b"0 1795380096990 6000 5 0 broker-a 0 0",),
               (lambda: b"0 " * 30_000, lambda: b"9" * 60_000 + b" 1 1 1 0 b 0"), bytes_max=64 * KIB, weight=2),
        Target("pop.record", lambda data: read_record(memoryview(data), 0, 0), (RecordError,), records,
               (lambda: encode_record("R", 0, long, b"TAGS\x01ck\x02"),), weight=3),
    ]  # fmt: skip


def targets() -> list[Target]:
    """Return them all."""
    return [*_pops(), *_proofs(), *_packed(), _pulled(), *_orders(), *_texts(), *_sql()]
