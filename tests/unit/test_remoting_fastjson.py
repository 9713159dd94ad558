"""The reader of fastjson's dialect and the writer of maps keyed by objects."""

import contextlib
import time
import tracemalloc

import msgspec
import pytest

from remoting.bodies.registry import MessageQueue
from remoting.errors import HeaderError
from remoting.fastjson import (
    CONTAINER_BYTES_MIN,
    DIALECT_BYTES_MAX,
    dumps_object_keyed,
    loads,
    object_key,
    read_strictly,
)


def test_strict_json_is_read() -> None:
    assert loads(b'{"a":[1,2.5,null,true],"b":"\\u4f60"}') == {"a": [1, 2.5, None, True], "b": "你"}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bare_integer_keys_become_the_strings_of_quoted_ones(kind: type[bytes]) -> None:
    assert loads(kind(b'{0:"a:1",-1:"b" , "2":{3:4}}\n')) == {"0": "a:1", "-1": "b", "2": {"3": 4}}


def test_an_object_as_key_becomes_its_text() -> None:
    (key,) = loads('{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:7}}')["offsetTable"]
    assert object_key(key) == {"brokerName": "b", "queueId": 0, "topic": "t"}


def test_an_object_key_may_also_come_as_a_string() -> None:
    assert object_key('{"topic":"t","queueId":1}') == {"topic": "t", "queueId": 1}


@pytest.mark.parametrize("key", ["plain", "{broken", "[1]", "", 7])
def test_what_is_no_object_key_is_refused(key: object) -> None:
    with pytest.raises(HeaderError):
        object_key(key)


def test_everything_else_of_json_is_read_by_hand_too() -> None:
    text = '{1:[],2:{},3:[1,-2,3.5e2,null,false],"\\"x\\n":"a\\\\b\\u00e9", name : true}'
    assert loads(text) == {
        "1": [],
        "2": {},
        "3": [1, -2, 350.0, None, False],
        '"x\n': "a\\bé",
        "name": True,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  \n",
        b"{",
        b'{1:"open}',
        b"{1:2",
        b"{1:2,}",
        b"{1 2}",
        b"[1,]",
        b"{1:nothing}",
        b"{:1}",
        b"{1:2} 3",
        b'{1:"\\q"}',
        b'{1:"\\ud800"}',
        b"\xff\xfe{1:2}",
        b"{{1:{}}:3}",
        b"{1:" + b"9" * 500 + b"}",
    ],
)
def test_what_is_neither_is_a_header_error(data: bytes) -> None:
    with pytest.raises(HeaderError):
        loads(data)


def test_depth_is_bounded() -> None:
    assert loads("{1:" + "[" * 500 + "]" * 500 + "}")["1"] is not None
    with pytest.raises(HeaderError, match="depth"):
        loads("{1:" + "[" * 2000 + "]" * 2000 + "}")


def test_what_looks_like_a_key_in_a_string_is_none() -> None:
    assert loads('{1:"{2:3,a:4}{}: \\"{5:6\\""}') == {"1": '{2:3,a:4}{}: "{5:6"'}
    assert loads('{1:"tab\tand\nline"}') == {"1": "tab\tand\nline"}
    (key,) = loads('{{"brokerName":"}:{","topic":"\\"{"} :1}')
    assert object_key(key) == {"brokerName": "}:{", "topic": '"{'}


def test_the_dialect_is_read_up_to_a_bound_and_JSON_beyond_it() -> None:
    long = b"[" + b"0," * (DIALECT_BYTES_MAX // 2) + b"0]"
    assert len(loads(long, DIALECT_BYTES_MAX)) == DIALECT_BYTES_MAX // 2 + 1
    with pytest.raises(HeaderError, match=f"a body of {len(long) + 5} bytes that is not JSON"):
        loads(b"{1:%b}" % long[:-1] + b"0]", DIALECT_BYTES_MAX)
    assert loads(b"{1:%b}" % long)


WORST = {
    "no end": b"[" + b"0," * 120_000,
    "no end of a heartbeat": b'{"clientID":[' + b"0," * 120_000,
    "keys": b"{" + b"0:1," * 60_000,
    "names": b"{" + b"a" * 250_000,
    "objects": b"{" + b"{}:1," * 50_000,
    "braces": b"{" * 250_000,
    "braces and blanks": b"{ " * 125_000,
    "half a string": b'{"' + b'\\"{' * 80_000,
    "strings": b"{1:" + b'"",' * 80_000,
    "quotes": b'"' * 250_000,
    "tabs": b'{1:"' + b"\t" * 250_000 + b'"}',
    "controls": b'{1:"' + b"\x01" * 250_000 + b'"}',
    "escapes": b'{1:"' + b"\\\\" * 125_000,
    "blanks": b"{" + b" " * 250_000,
    "depth": b"{1:" + b"[" * 250_000,
}


@pytest.mark.parametrize("data", WORST.values(), ids=WORST.keys())
def test_the_worst_costs_no_more_than_its_bytes(data: bytes) -> None:
    """1 ms a KiB, and 32 times the bytes and a MiB."""
    began = time.process_time()
    with contextlib.suppress(HeaderError):
        loads(data, DIALECT_BYTES_MAX)
    assert time.process_time() - began <= len(data) / 1024 / 1000
    tracemalloc.start()
    try:
        with contextlib.suppress(HeaderError):
            loads(data, DIALECT_BYTES_MAX)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 32 * len(data) + (1 << 20)


def test_maps_keyed_by_queues_are_written_with_bare_objects_as_keys() -> None:
    table = {MessageQueue("t", "b", 0): {"min": 1}, MessageQueue("t", "b", 1): {"min": 2}}
    data = dumps_object_keyed({"offsetTable": table, "tps": 0.5, "gone": None})
    assert data == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"min":1},'
        b'{"brokerName":"b","queueId":1,"topic":"t"}:{"min":2}},"tps":0.5}'
    )


def test_the_writer_takes_lists_empty_things_and_integer_keys() -> None:
    assert dumps_object_keyed({"a": [], "b": {}, "c": [1, "x"], 4: (MessageQueue("t", "b", 2),)}) == (
        b'{"a":[],"b":{},"c":[1,"x"],"4":[{"topic":"t","brokerName":"b","queueId":2}]}'
    )


def test_what_is_nearly_all_objects_is_refused_from_8_KiB_on() -> None:
    little, much = "[" + "{}," * 2600 + "0]", "[" + "{}," * 2800 + "0]"
    assert len(loads(little, None, CONTAINER_BYTES_MIN)) == 2601
    for text in (much, much.encode(), memoryview(much.encode())):
        with pytest.raises(HeaderError, match="too many"):
            loads(text, None, CONTAINER_BYTES_MIN)
    apart = "[" + ("{}" + " " * 22 + ",") * 5000 + "0]"
    assert len(loads(apart, None, CONTAINER_BYTES_MIN)) == 5001


def test_a_file_of_ours_may_be_nearly_all_objects() -> None:
    offsets = "{" + ",".join(f'"a{number}@b":{{0:0}}' for number in range(20_000)) + "}"
    assert len(loads(offsets)) == 20_000


@pytest.mark.parametrize(
    ("data", "why"),
    [(b'{"a":"\xff"}', "UTF-8"), (b'{"x":' + b"[" * 2000, "too deep"), (b"{", "truncated"), (b"[]", "array")],
)
def test_one_error_for_all_that_is_not_strict(data: bytes, why: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=why):
        read_strictly(data, Little)


def test_strict_json_is_read_as_its_type() -> None:
    assert read_strictly(memoryview(b'{"a":"b","x":1}'), Little) == Little("b")


class Little(msgspec.Struct):
    a: str = ""
