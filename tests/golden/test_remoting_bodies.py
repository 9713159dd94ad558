"""Bodies that RocketMQ 5.5.0, its Java client and the C++ client put on the wire, read and written again."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remoting.bodies import registry as bodies
from remoting.bodies.registry import Body
from remoting.fastjson import loads

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("frames-*.jsonl"))

# (request code, is it the response) → the body's kind.
KINDS: dict[tuple[int, bool], type[Body]] = {
    (34, False): bodies.HeartbeatData,
    (38, True): bodies.ConsumerIdList,
    (41, False): bodies.LockBatchBody,
    (41, True): bodies.LockBatchResponseBody,
    (42, False): bodies.LockBatchBody,
    (46, False): bodies.CheckClientConfigBody,
    (103, False): bodies.RegisterBrokerBody,
    (105, True): bodies.TopicRouteData,
    (106, True): bodies.ClusterInfo,
    (201, True): bodies.SubscriptionGroupTable,
    (21, True): bodies.TopicConfigTable,
    (43, True): bodies.ConsumerOffsetTable,
    (45, True): bodies.DelayOffsetTable,
    (322, False): bodies.DataVersion,
    (322, True): bodies.DataVersion,
}


class Recorded(NamedTuple):
    file: str
    code: int
    is_response: bool
    header: dict[str, Any]
    body: bytes


def recorded() -> Iterator[Recorded]:
    for path in FILES:
        for line in path.read_text().splitlines():
            frame = json.loads(line)
            data = bytes.fromhex(frame["frame"])
            word = int.from_bytes(data[4:8], "big")
            end = 8 + (word & 0xFFFFFF)
            header = json.loads(data[8:end]) if word >> 24 == 0 else {}
            if data[end:]:
                yield Recorded(path.stem, frame["requestCode"], frame["isResponse"], header, data[end:])


def of_kind(kind: type[Body]) -> list[Recorded]:
    return [frame for frame in recorded() if KINDS.get((frame.code, frame.is_response)) is kind]


def test_the_recordings_hold_every_kind_that_they_should() -> None:
    seen = {(frame.code, frame.is_response) for frame in recorded()}
    assert {(34, False), (38, True), (41, False), (41, True), (103, False), (105, True), (106, True)} <= seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_reading_and_writing_again_gives_the_same_meaning(path: Path) -> None:
    count = 0
    for frame in recorded():
        kind = KINDS.get((frame.code, frame.is_response))
        if frame.file != path.stem or kind is None:
            continue
        body = kind.decode(frame.body)
        assert kind.decode(body.encode()) == body
        if "cpp" not in path.stem or frame.code != 34:
            # Nothing that stood there is lost or changed; heartbeats of the C++ client get names for their ordinals.
            assert contained(loads(frame.body), loads(body.encode())), frame
        count += 1
    assert count > 3


def test_the_route_is_written_exactly_as_rocketmq_writes_it_for_strict_clients() -> None:
    strict = [frame for frame in of_kind(bodies.TopicRouteData) if b'{"0":' in frame.body]
    assert strict
    for frame in strict:
        assert bodies.TopicRouteData.decode(frame.body).encode() == frame.body


def test_the_route_with_bare_keys_says_the_same() -> None:
    bare = [frame for frame in of_kind(bodies.TopicRouteData) if b"{0:" in frame.body]
    assert bare
    for frame in bare:
        assert bodies.TopicRouteData.decode(frame.body).encode() == frame.body.replace(b"{0:", b'{"0":')


def test_the_crc_of_a_registration_is_that_of_its_body() -> None:
    registrations = [frame for frame in of_kind(bodies.RegisterBrokerBody) if frame.header]
    assert registrations
    for frame in registrations:
        assert zlib.crc32(frame.body) & 0x7FFFFFFF == int(frame.header["extFields"]["bodyCrc32"])


def test_the_first_registration_names_the_system_topics() -> None:
    first = next(frame for frame in of_kind(bodies.RegisterBrokerBody) if frame.file == "frames-single-JSON")
    topics = bodies.RegisterBrokerBody.decode(first.body).topicConfigSerializeWrapper.topicConfigTable
    assert topics["BenchmarkTest"].writeQueueNums == 1024
    assert topics["TBW102"].perm == 7
    assert all(name == config.topicName for name, config in topics.items())


def test_the_cpp_clients_heartbeat_is_understood() -> None:
    heartbeats = [f for f in of_kind(bodies.HeartbeatData) if "cpp" in f.file and b'"consumeType":1' in f.body]
    assert heartbeats
    for frame in heartbeats:
        (consumer,) = bodies.HeartbeatData.decode(frame.body).consumerDataSet
        assert consumer.consumeType == "CONSUME_PASSIVELY"
        assert consumer.messageModel == "CLUSTERING"
        assert consumer.consumeFromWhere == "CONSUME_FROM_LAST_OFFSET"
        assert all(subscription.subVersion > 10**12 for subscription in consumer.subscriptionDataSet)


def contained(part: Any, whole: Any) -> bool:
    """Tell whether every field of `part` stands in `whole` with the same meaning."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contained(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(contained, part, whole))
    return bool(part == whole)
