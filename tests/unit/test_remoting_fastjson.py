"""The reader of fastjson's dialect and the writer of maps keyed by objects."""

import pytest

from remoting.bodies import MessageQueue
from remoting.errors import HeaderError
from remoting.fastjson import DEPTH_MAX, dumps_object_keyed, loads, object_key


def test_strict_json_is_read() -> None:
    assert loads(b'{"a":[1,2.5,null,true],"b":"\\u4f60"}') == {"a": [1, 2.5, None, True], "b": "你"}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bare_integer_keys_become_the_strings_of_quoted_ones(kind: type[bytes]) -> None:
    assert loads(kind(b'{0:"a:1",-1:"b" , "2":{3:4}}\n')) == {"0": "a:1", "-1": "b", "2": {"3": 4}}


def test_an_object_as_key_becomes_its_sorted_pairs() -> None:
    key = (("brokerName", "b"), ("queueId", 0), ("topic", "t"))
    assert loads('{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:7}}') == {"offsetTable": {key: 7}}
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
        b"{{1:[2]}:3}",
        b"{1:" + b"9" * 500 + b"}",
    ],
)
def test_what_is_neither_is_a_header_error(data: bytes) -> None:
    with pytest.raises(HeaderError):
        loads(data)


def test_depth_is_bounded() -> None:
    inside = "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)
    assert loads("{1:" + inside + "}")["1"] is not None
    with pytest.raises(HeaderError, match="nests deeper"):
        loads("{1:" + "[" * 100_000)


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
