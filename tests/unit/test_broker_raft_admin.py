"""broker/raft_group/admin.py: who is asked, what is answered when, and in which words it is refused."""

import asyncio
from typing import Any, cast

import orjson
import pytest

from broker.raft_group import admin as raft_admin
from broker.raft_group.admin import RaftHandlers
from broker.raft_group.role import GroupRole
from raft.protocol.config import ConfigRefused, GroupConfig, Member
from raft.protocol.types import Fate, OnFate, Refusal
from remoting.codes import RaftCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection
from tests.parts.raft_parts import SetNode

NOBODY = cast(Connection, None)
THREE = GroupConfig(b"g" * 16, tuple(Member(f"n{n}", f"127.0.0.1:{40911 + n}", bytes([n]) * 16) for n in range(3)))


class Group(SetNode):
    """A member's part in the group: takes what is proposed, and says what the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.role = GroupRole("n0")
        self.admin = RaftHandlers(self, self.role)
        self.config = THREE
        self.serving, self.term, self.leader_id = True, 4, "n0"
        self.asked: list[tuple[str, ...]] = []
        self.fates: list[OnFate] = []
        self.outcome: Refusal | Fate | Exception | None = None
        self.role.introduced("n1", "10.0.0.1:10911")
        self.role.attach(self)

    def has_lease(self) -> bool:
        return self.serving

    @property
    def node(self) -> "Group":
        return self

    def status(self) -> dict[str, Any]:
        return {"term": self.term}

    def follow(self, leader: str | None) -> None:
        self.serving, self.leader_id = False, leader
        self.role.refresh()

    def _take(self, *asked: str, fate: OnFate | None = None) -> Refusal | None:
        self.asked.append(asked)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if isinstance(self.outcome, Refusal):
            return self.outcome
        if fate is not None:
            self.fates.append(fate)
        return None

    def transfer(self, to: str | None) -> Refusal | None:
        return self._take("transfer", to or "anybody")

    def remove(self, member_id: str, on_fate: OnFate) -> Refusal | None:
        return self._take("remove", member_id, fate=on_fate)

    def leave(self, on_fate: OnFate) -> Refusal | None:
        return self._take("leave", fate=on_fate)

    async def add_learner(self, member_id: str, address: str) -> Refusal | Fate:
        self.asked.append(("add", member_id, address))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is None:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")
        return self.outcome


def request(code: RaftCode, body: bytes | None = None, **fields: str) -> Command:
    return Command(code=int(code), body=orjson.dumps(fields) if body is None else body)


async def ask(group: Group, code: RaftCode, body: bytes | None = None, **fields: str) -> Any:
    """What is answered, as JSON; or (code, remark) of a refusal."""
    handler = cast(Any, group.admin.table()[code])
    try:
        answer = handler(NOBODY, request(code, body, **fields))
        if not isinstance(answer, Command):
            answer = await answer
    except CommandError as error:
        return error.code, error.remark
    assert answer.code == ResponseCode.SUCCESS
    return orjson.loads(answer.body)


async def settled(group: Group, fate: Fate, code: RaftCode, **fields: str) -> Any:
    asking = asyncio.create_task(ask(group, code, None, **fields))
    while not group.fates:
        await asyncio.sleep(0)
    group.fates.pop()(fate)
    return await asking


CHANGES = [(RaftCode.REMOVE_PEER, {"id": "n1"}, ("remove", "n1")), (RaftCode.LEAVE, {}, ("leave",))]


async def test_the_status_is_everybodys() -> None:
    group = Group()
    group.follow(None)
    assert await ask(group, RaftCode.STATUS) == {"term": 4}


@pytest.mark.parametrize(("code", "fields", "asked"), CHANGES)
async def test_R9_a_change_is_answered_when_its_fate_is_known(
    code: RaftCode, fields: dict[str, str], asked: tuple[str, ...]
) -> None:
    group = Group()
    assert await settled(group, Fate.COMMITTED, code, **fields) == {"term": 4}
    assert group.asked == [asked]
    lost = await settled(group, Fate.OVERWRITTEN, code, **fields)
    assert (lost[0], "not done: this member lost the lead" in lost[1]) == (ResponseCode.SYSTEM_ERROR, True)
    unknown = await settled(group, Fate.UNKNOWN, code, **fields)
    assert (unknown[0], "outcome unknown" in unknown[1]) == (ResponseCode.SYSTEM_ERROR, True)


async def test_what_takes_too_long_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_admin, "PATIENCE_SECONDS", 0.01)
    group = Group()
    assert "outcome unknown: not agreed upon within 0.01 s" in (await ask(group, RaftCode.LEAVE))[1]
    # The fate comes when nobody waits any more.
    group.fates.pop()(Fate.COMMITTED)
    assert "outcome unknown: nobody else leads after 0.01 s" in (await ask(group, RaftCode.TRANSFER_LEADER))[1]
    # Nothing is proposed before the new member was met, so that is known not to be done.
    added = await ask(group, RaftCode.ADD_PEER, id="n3", address="127.0.0.1:40914")
    assert "n3" in added[1]


@pytest.mark.parametrize("refusal", list(Refusal))
async def test_a_refusal_is_put_into_words(refusal: Refusal) -> None:
    group = Group()
    group.outcome = refusal
    for code, fields in (
        (RaftCode.TRANSFER_LEADER, {}),
        (RaftCode.REMOVE_PEER, {"id": "n1"}),
        (RaftCode.LEAVE, {}),
        (RaftCode.ADD_PEER, {"id": "n3", "address": "127.0.0.1:40914"}),
    ):
        answer = await ask(group, code, None, **fields)
        assert answer[0] == ResponseCode.SYSTEM_ERROR
        assert answer[1].startswith("[RAFT] not done: ")


async def test_what_the_list_of_members_does_not_allow_is_an_invalid_parameter() -> None:
    group = Group()
    group.outcome = ConfigRefused("n9 is no member")
    for code, fields in ((RaftCode.REMOVE_PEER, {"id": "n9"}), (RaftCode.TRANSFER_LEADER, {"to": "n9"})):
        assert await ask(group, code, None, **fields) == (ResponseCode.INVALID_PARAMETER, "n9 is no member")


@pytest.mark.parametrize(("leader", "known"), [("n1", "n1 leads, at 10.0.0.1:10911"), (None, "no leader is known")])
async def test_a_follower_says_who_leads(leader: str | None, known: str) -> None:
    group = Group()
    group.follow(leader)
    for code in (RaftCode.TRANSFER_LEADER, RaftCode.REMOVE_PEER, RaftCode.LEAVE, RaftCode.ADD_PEER):
        answer = await ask(group, code, None, id="n3", address="127.0.0.1:40914")
        assert answer == (ResponseCode.SYSTEM_ERROR, f"[RAFT] this member does not lead; {known}")
    assert group.asked == []


async def test_a_transfer_is_answered_when_somebody_else_leads() -> None:
    group = Group()
    asking = asyncio.create_task(ask(group, RaftCode.TRANSFER_LEADER, to="n1"))
    while not group.asked:
        await asyncio.sleep(0)
    group.follow(None)
    await asyncio.sleep(0)
    assert not asking.done()
    group.follow("n1")
    assert await asking == {"leader": "n1", "address": "10.0.0.1:10911"}
    assert group.asked == [("transfer", "n1")]


@pytest.mark.parametrize(
    ("body", "word"),
    [(b"{", "no JSON"), (b"[]", "'id'"), (b'{"id":7}', "'id'"), (b"", "'id'"), (b'{"id":""}', "'id'")],
)
async def test_a_body_that_makes_no_sense_costs_one_clear_error(body: bytes, word: str) -> None:
    group = Group()
    code, remark = await ask(group, RaftCode.REMOVE_PEER, body)
    assert (code, word in remark) == (ResponseCode.INVALID_PARAMETER, True)
    code, remark = await ask(group, RaftCode.REMOVE_PEER, b" " * (raft_admin.BODY_BYTES_MAX + 1))
    assert (code, "'id'" in remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_an_address_is_looked_at_before_anybody_is_met() -> None:
    group = Group()
    for fields in ({"id": "n3", "address": "nowhere"}, {"id": "three", "address": "127.0.0.1:1"}):
        assert (await ask(group, RaftCode.ADD_PEER, None, **fields))[0] == ResponseCode.INVALID_PARAMETER
    assert group.asked == []
    group.outcome = Fate.COMMITTED
    assert await ask(group, RaftCode.ADD_PEER, id="n3", address="127.0.0.1:40914") == {"term": 4}
    assert group.asked == [("add", "n3", "127.0.0.1:40914")]
    group.outcome = TimeoutError()
    assert "n3" in (await ask(group, RaftCode.ADD_PEER, id="n3", address="127.0.0.1:40914"))[1]
