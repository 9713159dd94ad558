"""Values that a typed body takes, made from its annotations: one with every field set, and ones dear to read."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

_DEPTH_MAX = 5
# What costs a reader most for each byte of it.
DEAR = ("{}", "[]", '""', "0", "null", "1.5", '{"":0}', '"\u00e9"', "[[]]")


def sample(kind: type, *, depth: int = 0) -> Any:
    """Return a JSON value that fits, every field and one item of each list in it."""
    return _of(inspect.type_info(kind), depth)


def _of(info: inspect.Type, depth: int) -> Any:
    if isinstance(info, inspect.StructType):
        return {} if depth > _DEPTH_MAX else {each.encode_name: _of(each.type, depth + 1) for each in info.fields}
    if isinstance(info, inspect.DictType):
        return {_key(info.key_type): _of(info.value_type, depth + 1)}
    if isinstance(info, inspect.CollectionType):
        return [_of(info.item_type, depth + 1)]
    if isinstance(info, inspect.UnionType):
        return _of(next(each for each in info.types if not isinstance(each, inspect.NoneType)), depth)
    if isinstance(info, inspect.BoolType):
        return True
    if isinstance(info, inspect.IntType):
        return 7
    if isinstance(info, inspect.FloatType):
        return 1.5
    return "text é"


def _key(info: inspect.Type) -> str:
    if isinstance(info, inspect.IntType):
        return "3"
    return '{"brokerName":"b","queueId":0,"topic":"t"}' if isinstance(info, inspect.StructType) else "name@group"


def dialect(value: Any) -> bytes:
    """Return a value as fastjson writes it: numbers and objects bare where they are keys."""
    if isinstance(value, dict):
        inner = b",".join(
            (key.encode() if key.isdecimal() or key.startswith("{") else json.dumps(key).encode())
            + b":"
            + dialect(each)
            for key, each in value.items()
        )
        return b"{" + inner + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(dialect, value)) + b"]"
    return json.dumps(value).encode()


def filled(start: bytes, item: bytes, stop: bytes, size: int) -> Callable[[], bytes]:
    """Return what makes `start item,item,… stop` of some `size` bytes."""

    def made() -> bytes:
        times = max(1, (size - len(start) - len(stop)) // (len(item) + 1))
        return start + b",".join([item] * times) + stop

    return made


def containers(kind: type) -> Iterator[tuple[bytes, bytes]]:
    """Yield (start, stop) of JSON texts of this kind, between which a list's items stand, one pair for each list.

    For a map the items need names of their own, so that they are made by `named`.
    """
    info = inspect.type_info(kind)
    if isinstance(info, inspect.StructType):
        for each in info.fields:
            kinds = each.type.types if isinstance(each.type, inspect.UnionType) else (each.type,)
            start = b'{"' + each.encode_name.encode() + b'":'
            for one in kinds:
                if isinstance(one, inspect.CollectionType):
                    yield start + b"[", b"]}"
                elif isinstance(one, inspect.DictType):
                    yield start + b"{", b"}}"


def named(start: bytes, item: bytes, stop: bytes, size: int) -> Callable[[], bytes]:
    """Return what makes `start "0":item,"1":item,… stop` of some `size` bytes."""

    def made() -> bytes:
        times = max(1, (size - len(start) - len(stop)) // (len(item) + 8))
        return start + b",".join([b'"%x":%b' % (number, item) for number in range(times)]) + stop

    return made


def heavy_bodies(kind: type, size: int, spread: int) -> tuple[Callable[[], bytes], ...]:
    """Return what makes bodies of `size` bytes of which each list, and each map, is full of what is dear.

    `spread`: bytes that each object and array of a body has at least; so much apart they stand here a second time.
    """
    found: list[Callable[[], bytes]] = [filled(b"[", b"0", b"]", size)]
    for start, stop in containers(kind):
        make = filled if start.endswith(b"[") else named
        found += [make(start, item.encode(), stop, size) for item in DEAR]
        apart = [item.ljust(spread * max(1, item.count("{") + item.count("["))) for item in DEAR if item[0] in "[{"]
        found += [make(start, item.encode(), stop, size) for item in apart]
    return tuple(found)


def is_struct(kind: object) -> bool:
    """Tell whether this is a class whose fields are known."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
