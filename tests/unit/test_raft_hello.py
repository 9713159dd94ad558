"""raft/protocol/hello.py: what two members tell each other, and when they must not go on."""

from typing import Any

import cbor2
import pytest

from raft.protocol.config import GroupConfig, Member
from raft.protocol.hello import Hello, HelloError, judge
from raft.protocol.messages import HELLO_BYTES_MAX
from tests.parts.raft_hellos import GROUP_ID, grouped, hello, store_id

CONFIG = GroupConfig(GROUP_ID, tuple(Member(f"n{i}", f"10.0.0.{i}:40911", store_id(i)) for i in range(3)))


def test_a_hello_survives_its_encoding() -> None:
    full = grouped(
        2, base_index=3, base_position=4096, base_digest=7, features=("a", "b"), broker_address="b:10911",
        peer_ids=("n0", "n1", "n2"), last_index=(1 << 62) - 1,
    )  # fmt: skip
    for one in (hello(0), grouped(1), full):
        assert Hello.decode(one.encode()) == one
        assert Hello.decode(memoryview(one.encode())) == one


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("group", 7, "group is no text"),
        ("group", "g" * 128, "group has 128 characters"),
        ("group", "a\nb", "cannot be printed"),
        ("self_id", "m0", "no member id"),
        ("store_id", b"short", "store_id has 5 bytes"),
        ("group_id", b"short", "group_id has 5 bytes"),
        ("group_id", GROUP_ID, "has_log and group_id"),
        ("last_index", -1, "last_index is -1"),
        ("last_term", "1", "last_term is no integer"),
        ("last_term", 1.0, "not CBOR of ours"),
        ("base_index", 1 << 62, "base_index"),
        ("base_position", (1 << 64) - 1, "base_position is far outside"),
        ("base_position", 1 << 70, "not CBOR of ours"),
        ("empty", 1, "empty is neither"),
        ("has_log", None, "has_log is neither"),
        ("has_log", True, "empty and has_log"),
        ("log_file_bytes", 0, "log_file_bytes is 0"),
        ("flush_sync", "yes", "flush_sync is neither"),
        ("clock_ms", 1 << 54, "clock_ms"),
        ("version", 0, "version is 0"),
        ("version_oldest", 1 << 16, "version_oldest"),
        ("features", "abc", "features is no list"),
        ("features", ["f"] * 65, "features has 65 items"),
        ("features", ["f" * 33], "features has 33 characters"),
        ("broker_address", "h" * 261, "broker_address"),
        ("base_digest", 1 << 32, "base_digest"),
        ("config_index", True, "config_index is no integer"),
        ("peer_ids", ["n0"] * 65, "peer_ids has 65 items"),
        ("peer_ids", [1], "peer_ids is no text"),
    ],
)
def test_every_field_of_a_hello_is_checked(field: str, value: object, text: str) -> None:
    fields: list[Any] = [list(v) if isinstance(v, tuple) else v for v in hello(0)]
    assert Hello.decode(cbor2.dumps(fields)) == hello(0)
    fields[Hello._fields.index(field)] = value
    with pytest.raises(HelloError, match=text):
        Hello.decode(cbor2.dumps(fields))


@pytest.mark.parametrize(
    "data", [b"", b"\xff", cbor2.dumps([1]), cbor2.dumps({}), hello(0).encode() + b"\0", bytes(HELLO_BYTES_MAX + 1)]
)
def test_bytes_that_are_no_hello(data: bytes) -> None:
    with pytest.raises(HelloError):
        Hello.decode(data)


def test_members_that_agree_are_linked() -> None:
    assert judge(hello(0), hello(1), None) is None
    assert judge(grouped(0), grouped(1), CONFIG) is None
    assert judge(grouped(0), hello(1), CONFIG) is None
    assert judge(hello(1), grouped(0), None) is None
    assert judge(grouped(0), hello(7), CONFIG) is None, "a stranger may be about to be added"


def test_R1_another_group_is_refused_and_so_is_another_base() -> None:
    assert "log of another group" in (judge(grouped(0), grouped(1, group_id=b"H" * 16), CONFIG) or "")
    for base in ({"base_index": 1}, {"base_position": 4096}, {"base_digest": 5}):
        assert "log begins at" in (judge(grouped(0), grouped(1, **base), CONFIG) or "")


def test_R6_a_member_with_another_disk_is_refused() -> None:
    wiped = hello(1, store_id=store_id(1, disk=1))
    why = judge(grouped(0), wiped, CONFIG) or ""
    assert "n1 comes with another disk" in why
    assert "add it again as a learner" in why
    assert "another disk" in (judge(grouped(0), grouped(1, store_id=store_id(1, disk=1)), CONFIG) or "")
    assert judge(hello(0), wiped, None) is None, "without a CONFIG nobody is expected"


def test_R6_who_was_added_again_is_heard_by_those_who_do_not_know_it_yet() -> None:
    again = grouped(1, store_id=store_id(1, disk=1), config_index=8)
    assert judge(grouped(0, config_index=7), again, CONFIG) is None
    assert "another disk" in (judge(grouped(0, config_index=8), again, CONFIG) or "")


def test_R6_a_copied_folder_is_found() -> None:
    assert "is a copy of the other" in (judge(grouped(0), grouped(1, store_id=store_id(0)), CONFIG) or "")


def test_R15_versions_must_overlap_and_features_may_differ() -> None:
    old, new = hello(0, features=("a",)), hello(1, version=2, features=("a", "b"))
    assert judge(old, new, None) is None
    assert judge(new, old, None) is None
    for own, other in ((old, new._replace(version_oldest=2)), (new._replace(version_oldest=2), old)):
        assert "upgrade in steps" in (judge(own, other, None) or "")


def test_R17_members_that_disagree_are_refused() -> None:
    assert "mappedFileSizeCommitLog=4096" in (judge(hello(0), hello(1, log_file_bytes=4096), None) or "")
    why = judge(hello(0), hello(1, flush_sync=False), None) or ""
    assert "n1 has flushDiskType=ASYNC_FLUSH, this member SYNC_FLUSH" in why


def test_names_that_are_taken_or_strange_are_refused() -> None:
    assert "dLegerGroup" in (judge(hello(0), hello(1, group="Other"), None) or "")
    assert "dLegerSelfId" in (judge(hello(0), hello(0, store_id=store_id(1)), None) or "")
