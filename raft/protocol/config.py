"""Who belongs to a group: the content of CONFIG entries, and the rules by which one list of members follows another.

A CONFIG entry carries the whole list (R9): members with their store ids (R6), the group's identity, and where its log
begins (R1). Encoded as a CBOR array: version, group id, base position, base index, base term, base digest, classic,
members, each an array id, address, store id, voter.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import cbor2

from raft.protocol.fields import FieldError, blob, flag, number, sequence, text, unpack

# First field of the encoding; another one is refused by name, never guessed at.
CONFIG_VERSION = 1
# Bytes of a group id and of a store id: random, so that two of them never meet.
ID_BYTES = 16
# Members of one group, learners included; a CONFIG entry of so many is below 4 KiB.
MEMBERS_MAX = 31
# Characters of an address "host:port": a host name has at most 253.
ADDRESS_CHARS_MAX = 260
# Bytes that are looked at as a CONFIG payload.
CONFIG_BYTES_MAX = 16 * 1024
# Values in it: a row of four for each member, and what stands around them.
_ITEMS_MAX = 20 + 5 * MEMBERS_MAX
_CRC_MAX = (1 << 32) - 1

# "n" and a number, as in RocketMQ's dLegerPeers; the number gives the broker id (R15).
_MEMBER_ID = re.compile(r"n(0|[1-9][0-9]{0,2})")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]]+):([0-9]{1,5})")


class ConfigRefused(ValueError):
    """A CONFIG payload, or a list of members, cannot be used; the text says why."""


def member_number(member_id: str) -> int:
    """Return the number in a member's id, 0 to 999: "n2" is 2; ConfigRefused when it is no such id."""
    found = _MEMBER_ID.fullmatch(member_id)
    if found is None:
        raise ConfigRefused(f'{member_id!r} is no member id: write "n" and a number from 0 to 999, as in "n0"')
    return int(found[1])


def check_address(address: str) -> str:
    """Return an address that is "host:port" (an IPv6 host in brackets); ConfigRefused when it is not."""
    found = _ADDRESS.fullmatch(address) if len(address) <= ADDRESS_CHARS_MAX else None
    if found is None or not 0 < int(found[1]) < 65536:
        raise ConfigRefused(f'{address[:80]!r} is no address: write "host:port", as in "10.0.0.1:40911"')
    return address


class Member(NamedTuple):
    """One member: a voter, or a learner that receives the log and counts for nothing."""

    id: str
    address: str
    """Where its peer port is, "host:port"."""
    store_id: bytes
    """The random id of its disk: the same name with another disk is another member (R6)."""
    voter: bool = True


@lru_cache(maxsize=64)
def _voters(members: tuple[Member, ...]) -> tuple[str, ...]:
    """Who votes; asked for each send that is answered."""
    return tuple(member.id for member in members if member.voter)


class GroupConfig(NamedTuple):
    """The content of one CONFIG entry. Immutable; every change gives a new one."""

    group_id: bytes
    members: tuple[Member, ...]
    """In the order of their numbers."""
    base_position: int = 0
    """Bytes of the log that stood there before the group's first entry."""
    base_index: int = 0
    base_term: int = 0
    base_digest: int = 0
    """CRC over what stands before base_position, so that another log's bytes are not taken for it."""
    classic: bool = False
    """The group has ended: from here on this is a single broker's log (R2)."""

    @property
    def base(self) -> tuple[int, int, int]:
        """What the group's log begins behind: index, position, and the CRC over the bytes."""
        return self.base_index, self.base_position, self.base_digest

    @property
    def voters(self) -> tuple[str, ...]:
        """Ids of those who vote and count."""
        return _voters(self.members)

    @property
    def learners(self) -> tuple[str, ...]:
        """Ids of those who only receive."""
        return tuple(member.id for member in self.members if not member.voter)

    def member(self, member_id: str) -> Member | None:
        """Return the member of that id, None when there is none."""
        for member in self.members:
            if member.id == member_id:
                return member
        return None

    def is_voter(self, member_id: str) -> bool:
        """Whether that id votes and counts."""
        member = self.member(member_id)
        return member is not None and member.voter

    @property
    def majority_size(self) -> int:
        """How many voters are a majority."""
        return len(self.voters) // 2 + 1

    def majority(self, ids: Iterable[str]) -> bool:
        """Whether these are a majority: each voter counts once, everybody else not at all (R9)."""
        return len(set(ids) & set(self.voters)) >= self.majority_size

    def with_learner(self, member: Member) -> "GroupConfig":
        """Return the list with one more member, who learns first; ConfigRefused when the id is taken."""
        if self.member(member.id) is not None:
            raise ConfigRefused(f"{member.id} is a member already; remove it first, then add it again")
        return self._changed([*self.members, member._replace(voter=False)])

    def promoted(self, member_id: str) -> "GroupConfig":
        """Return the list in which a learner votes; ConfigRefused when it is none."""
        member = self._known(member_id)
        if member.voter:
            raise ConfigRefused(f"{member_id} votes already")
        return self._changed([m._replace(voter=True) if m.id == member_id else m for m in self.members])

    def without(self, member_id: str) -> "GroupConfig":
        """Return the list without a member; ConfigRefused when it is none, or the last that votes."""
        self._known(member_id)
        rest = [m for m in self.members if m.id != member_id]
        if not any(m.voter for m in rest):
            raise ConfigRefused(f"{member_id} is the last member that votes; to end the group, let it leave instead")
        return self._changed(rest)

    def left(self) -> "GroupConfig":
        """Return the last list of the group, which ends it (R2); ConfigRefused while it has more than one member."""
        if len(self.members) != 1:
            others = ", ".join(member.id for member in self.members)
            raise ConfigRefused(f"a group of {others} cannot be left: remove all members but one first")
        return self._replace(classic=True)

    def encode(self) -> bytes:
        """Return the payload of a CONFIG entry; ConfigRefused when it could not be decoded again."""
        self.check()
        members = [[m.id, m.address, m.store_id, m.voter] for m in self.members]
        base = (self.base_position, self.base_index, self.base_term, self.base_digest)
        return cbor2.dumps([CONFIG_VERSION, self.group_id, *base, self.classic, members])

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "GroupConfig":
        """Read the payload of a CONFIG entry; ConfigRefused when anything in it cannot be."""
        try:
            return cls._decode(data)
        except FieldError as error:
            raise ConfigRefused(f"a CONFIG entry cannot be read: {error}") from error

    @classmethod
    def _decode(cls, data: bytes | memoryview) -> "GroupConfig":
        if len(data) > CONFIG_BYTES_MAX:
            raise FieldError(f"{len(data)} bytes, {CONFIG_BYTES_MAX} are allowed")
        version, group_id, position, index, term, digest, classic, rows = unpack(data, _ITEMS_MAX, 8)
        if version != CONFIG_VERSION:
            raise FieldError(f"it is of version {version!a}, this program knows {CONFIG_VERSION}; upgrade this member")
        members = []
        for row in sequence(rows, "members", MEMBERS_MAX):
            if type(row) is not list or len(row) != 4:
                raise FieldError("a member is no list of id, address, store id and voter")
            members.append(
                Member(
                    text(row[0], "member id", 4),
                    text(row[1], "member address", ADDRESS_CHARS_MAX),
                    blob(row[2], "store id", ID_BYTES, ID_BYTES),
                    flag(row[3], "voter"),
                )
            )
        config = cls(
            blob(group_id, "group id", ID_BYTES, ID_BYTES),
            tuple(members),
            number(position, "base position"),
            number(index, "base index"),
            number(term, "base term"),
            number(digest, "base digest", 0, _CRC_MAX),
            flag(classic, "classic"),
        )
        config.check()
        return config

    def check(self) -> None:
        """Raise ConfigRefused unless this is a list that a group can live by."""
        for member in self.members:
            member_number(member.id)
            check_address(member.address)
            if len(member.store_id) != ID_BYTES:
                raise ConfigRefused(f"the store id of {member.id} has {len(member.store_id)} bytes, not {ID_BYTES}")
        numbers = [member_number(member.id) for member in self.members]
        if numbers != sorted(set(numbers)):
            raise ConfigRefused("the members do not stand once each in the order of their numbers")
        if len({member.store_id for member in self.members}) != len(self.members):
            raise ConfigRefused("two members have one store id: a store folder was copied")
        if not self.voters:
            raise ConfigRefused("nobody votes")
        if len(self.members) > MEMBERS_MAX:
            raise ConfigRefused(f"{len(self.members)} members, {MEMBERS_MAX} are allowed")
        if self.classic and len(self.members) != 1:
            raise ConfigRefused("a group of several members is marked as ended")
        if len(self.group_id) != ID_BYTES:
            raise ConfigRefused(f"the group id has {len(self.group_id)} bytes, not {ID_BYTES}")

    def _known(self, member_id: str) -> Member:
        member = self.member(member_id)
        if member is None:
            raise ConfigRefused(f"{member_id} is no member; members are {', '.join(m.id for m in self.members)}")
        return member

    def _changed(self, members: list[Member]) -> "GroupConfig":
        changed = self._replace(members=tuple(sorted(members, key=lambda member: member_number(member.id))))
        changed.check()
        return changed


def check_step(old: GroupConfig, new: GroupConfig) -> str | None:
    """Return why `new` may not follow `old` in one group's log, None when it may: one node at a time (R9).

    Two lists that differ by one voter share a member in all their majorities; with two voters they need not.
    """
    if old.classic:
        return "the group has ended; joining again begins a group of its own"
    if new._replace(members=old.members, classic=False) != old:
        return "the group id or the base changed; they stay as long as the group lives"
    if new.classic:
        return None if new.members == old.members and len(old.members) == 1 else "only a group of one member can end"
    before = {member.id: member for member in old.members}
    after = {member.id: member for member in new.members}
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if len(changed) > 1:
        return f"{', '.join(changed)} change at once; change one member at a time"
    for name in changed:
        was, becomes = before.get(name), after.get(name)
        if was is None and becomes is not None and becomes.voter:
            return f"{name} is new and votes at once; add it as a learner, promote it when it has the log"
        if was is not None and becomes is not None and was.store_id != becomes.store_id:
            return f"{name} comes with another disk; remove it, then add it again as a learner"
        if was is not None and becomes is not None and was.voter and not becomes.voter:
            return f"{name} cannot turn from voter to learner; remove it, then add it again"
    return None
