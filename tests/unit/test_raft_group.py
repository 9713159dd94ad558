"""raft/protocol/config.py: the list of members, how it travels, and one change at a time."""

import re
from collections.abc import Callable

import cbor2
import pytest

from raft.protocol.config import (
    CONFIG_BYTES_MAX,
    MEMBERS_MAX,
    ConfigRefused,
    GroupConfig,
    Member,
    check_address,
    check_step,
    member_number,
)

GROUP_ID = b"G" * 16


def member(number: int, *, voter: bool = True, disk: int = 0) -> Member:
    return Member(f"n{number}", f"10.0.0.{number}:40911", bytes([number, disk]) * 8, voter)


def group(*members: Member, classic: bool = False) -> GroupConfig:
    return GroupConfig(GROUP_ID, members, 4096, 17, 3, 0xDEADBEEF, classic)


THREE = group(member(0), member(1), member(2))


def test_a_config_survives_its_encoding() -> None:
    for config in (
        THREE,
        GroupConfig(GROUP_ID, (member(5),)),
        group(member(0), member(3, voter=False)),
        group(member(7), classic=True),
        group(*(member(i) for i in range(MEMBERS_MAX))),
    ):
        assert GroupConfig.decode(config.encode()) == config
        assert GroupConfig.decode(memoryview(config.encode())) == config
        assert len(config.encode()) < 4096


def test_voters_learners_and_members() -> None:
    config = group(member(0), member(1, voter=False), member(2))
    assert (config.voters, config.learners) == (("n0", "n2"), ("n1",))
    assert config.member("n1") == member(1, voter=False)
    assert config.member("n9") is None
    assert [config.is_voter(name) for name in ("n0", "n1", "n9")] == [True, False, False]


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority_sizes(voters: int, needed: int) -> None:
    config = group(*(member(i) for i in range(voters)))
    assert config.majority_size == needed
    assert config.majority([f"n{i}" for i in range(needed)])
    assert not config.majority([f"n{i}" for i in range(needed - 1)])


def test_R9_a_voter_counts_once_and_others_not_at_all() -> None:
    config = group(member(0), member(1), member(2), member(3, voter=False))
    assert not config.majority(["n0", "n0", "n0"])
    assert not config.majority(["n0", "n3", "n4"])
    assert config.majority(["n0", "n3", "n2"])


def test_R9_a_member_learns_then_votes_then_goes() -> None:
    learning = THREE.with_learner(member(3, voter=True))
    assert learning.learners == ("n3",)
    voting = learning.promoted("n3")
    assert voting.voters == ("n0", "n1", "n2", "n3")
    gone = voting.without("n0")
    assert gone.voters == ("n1", "n2", "n3")
    for old, new in ((THREE, learning), (learning, voting), (voting, gone), (THREE, THREE), (learning, THREE)):
        assert check_step(old, new) is None
    assert group(member(2)).with_learner(member(1)).members == (member(1, voter=False), member(2))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c.with_learner(member(1)), "n1 is a member already"),
        (lambda c: c.with_learner(Member("n4", "a:1", member(1).store_id)), "folder was copied"),
        (lambda c: c.with_learner(Member("x4", "a:1", b"x" * 16)), "no member id"),
        (lambda c: c.with_learner(Member("n4", "a", b"x" * 16)), "no address"),
        (lambda c: c.with_learner(Member("n4", "a:1", b"x")), "1 bytes"),
        (lambda c: c.promoted("n1"), "votes already"),
        (lambda c: c.promoted("n9"), "no member; members are n0, n1, n2"),
        (lambda c: c.without("n9"), "no member"),
        (lambda _: group(member(0), member(1, voter=False)).without("n0"), "last member that votes"),
        (lambda c: c.left(), "remove all members but one"),
    ],
)
def test_changes_that_cannot_be(change: Callable[[GroupConfig], GroupConfig], text: str) -> None:
    with pytest.raises(ConfigRefused, match=text):
        change(THREE)


def test_the_number_of_members_has_a_limit() -> None:
    config = group(*(member(i) for i in range(MEMBERS_MAX)))
    with pytest.raises(ConfigRefused, match="31 are allowed"):
        config.with_learner(member(MEMBERS_MAX))


def test_R2_a_group_of_one_can_be_left_and_nothing_follows() -> None:
    one = group(member(0))
    left = one.left()
    assert left.classic
    assert check_step(one, left) is None
    assert GroupConfig.decode(left.encode()).classic
    assert "has ended" in (check_step(left, one) or "")
    two = group(member(0), member(1, voter=False))
    assert "only a group of one" in (check_step(two, left) or "")


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (group(member(0), member(1), member(2), member(3)), "votes at once"),
        (group(member(0)), "n1, n2 change at once"),
        (group(member(1), member(2), member(3, voter=False)), "n0, n3 change at once"),
        (group(member(0), member(1), member(2, disk=1)), "another disk"),
        (group(member(0), member(1), member(2, voter=False)), "cannot turn from voter"),
        (THREE._replace(group_id=b"H" * 16), "group id or the base"),
        (THREE._replace(base_position=4097), "group id or the base"),
        (THREE._replace(base_index=18), "group id or the base"),
        (THREE._replace(base_digest=1), "group id or the base"),
    ],
)
def test_R9_one_member_at_a_time(new: GroupConfig, text: str) -> None:
    assert text in (check_step(THREE, new) or "")


def test_a_member_may_move_to_another_address() -> None:
    moved = THREE._replace(members=(member(0), member(1), member(2)._replace(address="10.0.9.9:1")))
    assert check_step(THREE, moved) is None


GOOD = [1, GROUP_ID, 0, 0, 0, 0, False, [["n0", "a:1", b"s" * 16, True]]]


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (0, 2, "version 2.*upgrade"),
        (0, "1", "version"),
        (1, b"short", "group id has 5 bytes"),
        (1, "G" * 16, "group id is no byte string"),
        (2, -1, "base position is -1"),
        (3, 1 << 62, "base index"),
        (4, True, "base term is no integer"),
        (5, 1 << 32, "base digest"),
        (6, 0, "classic is neither"),
        (7, {}, "members is no list"),
        (7, [], "nobody votes"),
        (7, ["n0"], "a member is no list"),
        (7, [["n0", "a:1", b"s" * 16]], "a member is no list"),
        (7, [["n00", "a:1", b"s" * 16, True]], "no member id"),
        (7, [["n0000", "a:1", b"s" * 16, True]], "5 characters"),
        (7, [["n0", "a:0", b"s" * 16, True]], "no address"),
        (7, [["n0", "a:1", b"s" * 15, True]], "15 bytes"),
        (7, [["n0", "a:1", b"s" * 16, 1]], "voter is neither"),
        (7, [["n0", "a:1", b"s" * 16, False]], "nobody votes"),
        (7, [["n1", "a:1", b"s" * 16, True], ["n0", "b:1", b"t" * 16, True]], "order of their numbers"),
        (7, [["n0", "a:1", b"s" * 16, True], ["n0", "b:1", b"t" * 16, True]], "order of their numbers"),
        (7, [["n0", "a:1", b"s" * 16, True], ["n1", "b:1", b"s" * 16, True]], "folder was copied"),
        (7, [[f"n{i}", "a:1", bytes([i]) * 16, True] for i in range(32)], "32 items"),
    ],
)
def test_every_field_of_a_config_is_checked(place: int, value: object, text: str) -> None:
    assert GroupConfig.decode(cbor2.dumps(GOOD)).voters == ("n0",)
    with pytest.raises(ConfigRefused, match=text):
        GroupConfig.decode(cbor2.dumps([*GOOD[:place], value, *GOOD[place + 1 :]]))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 9, cbor2.dumps(GOOD[:-1]), cbor2.dumps(GOOD) + b"\0"])
def test_bytes_that_are_no_config(data: bytes) -> None:
    with pytest.raises(ConfigRefused, match="cannot be read"):
        GroupConfig.decode(data)


def test_a_config_that_is_too_long_is_not_looked_at() -> None:
    with pytest.raises(ConfigRefused, match=re.escape(f"{CONFIG_BYTES_MAX} are allowed")):
        GroupConfig.decode(bytes(CONFIG_BYTES_MAX + 1))


def test_what_could_not_be_decoded_is_not_encoded() -> None:
    with pytest.raises(ConfigRefused, match="ended"):
        group(member(0), member(1), classic=True).encode()
    with pytest.raises(ConfigRefused, match="group id has 3"):
        GroupConfig(b"abc", (member(0),)).encode()


def test_ids_and_addresses() -> None:
    assert [member_number(name) for name in ("n0", "n7", "n999")] == [0, 7, 999]
    for wrong in ("", "n", "n1000", "n-1", "N0", "n0 ", "n\u0663", "0"):
        with pytest.raises(ConfigRefused, match="no member id"):
            member_number(wrong)
    for right in ("a:1", "10.0.0.1:65535", "[::1]:40911", "[fe80::1%eth0]:1", "broker-a.example.com:40911"):
        assert check_address(right) == right
    for wrong in ("", "a", ":1", "a:", "a:0", "a:65536", "::1:40911", "a b:1", "a:\u0661", "h" * 260 + ":1"):
        with pytest.raises(ConfigRefused, match="no address"):
            check_address(wrong)
