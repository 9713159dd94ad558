"""Whatever bytes come as a body: the body, or a HeaderError; nothing else, and soon."""

import contextlib
import json
import zlib

from hypothesis import given
from hypothesis import strategies as st

from remoting.bodies import registry as bodies
from remoting.bodies.registry import Body, MessageQueue
from remoting.errors import HeaderError
from remoting.fastjson import dumps_object_keyed, loads

KINDS: list[type[Body]] = [
    kind
    for name in bodies.__all__
    if isinstance(kind := getattr(bodies, name), type) and issubclass(kind, Body) and kind is not Body
]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
# Pieces that fastjson's dialect is made of, so that the reader by hand is reached deep inside.
PIECES = st.sampled_from(
    ["{", "}", "[", "]", ":", ",", '"', "0", "-1", "1.5e3", "null", "true", '"a"', "\\", "{{", " ", "é"]
)
GARBAGE = st.binary(max_size=200) | st.lists(PIECES, max_size=40).map(lambda pieces: "".join(pieces).encode())


def decoded(kind: type[Body], data: bytes) -> Body | None:
    try:
        return kind.decode(data)
    except HeaderError:
        return None


@given(data=GARBAGE)
def test_garbage_is_a_header_error(data: bytes) -> None:
    for kind in KINDS[:: len(KINDS) // 8]:
        decoded(kind, data)


@given(data=st.data())
def test_json_that_fits_or_not(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    fields = getattr(kind, "__struct_fields__", ())
    value = data.draw(st.dictionaries(st.sampled_from(fields), VALUES) if fields else VALUES)
    body = decoded(kind, json.dumps(value).encode())
    if body is not None:
        # Nulls go at the first writing and defaults stand in for them; from then on nothing changes any more.
        settled = kind.decode(body.encode())
        assert kind.decode(settled.encode()) == settled


@given(data=GARBAGE, wrapped=st.booleans())
def test_garbage_as_a_compressed_registration(data: bytes, wrapped: bool) -> None:
    with contextlib.suppress(HeaderError):
        bodies.RegisterBrokerBody.decode_compressed(zlib.compress(data) if wrapped else data)


QUEUES = st.builds(MessageQueue, st.text(max_size=5), st.text(max_size=5), st.integers(0, 2**31 - 1))


@given(table=st.dictionaries(QUEUES, st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_maps_keyed_by_queues_survive(table: dict[MessageQueue, int]) -> None:
    body = bodies.ResetOffsetBody(table)
    assert bodies.ResetOffsetBody.decode(body.encode()) == body


@given(table=st.dictionaries(st.integers(-(2**31), 2**31), st.text(max_size=5), max_size=5))
def test_bare_integer_keys_read_as_the_quoted_ones(table: dict[int, str]) -> None:
    bare = "{" + ",".join(f"{key}:{json.dumps(text)}" for key, text in table.items()) + "}"
    assert loads(bare) == loads(dumps_object_keyed(table))
