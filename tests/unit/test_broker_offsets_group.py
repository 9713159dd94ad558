"""Consumer offsets of a Raft group: gathered, agreed upon one entry at a time, and never going back for anybody."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import broker.metadata.offset_batches
from broker.leader_only import HOP, HOP_FLAG
from broker.messages.offset_handlers import OffsetHandlers
from broker.metadata.operations import LOST
from raft.protocol.types import Refusal
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.server import Connection
from runtime.clock import ManualClock
from tests.parts.broker_parts import Parts, Peer, broker_parts
from tests.parts.meta_parts import Member, leader


class Someone:
    peer, address = ("10.0.0.9", 1), "10.0.0.9:1"

    def __init__(self) -> None:
        self.closed = False
        self.attachments: dict[str, Any] = {}
        self.answers: list[Command] = []
        self.peer, self.address = ("10.0.0.9", 1), "10.0.0.9:1"
        self.loop = SimpleNamespace(time=lambda: 0.0)

    def reply(self, _request: Command, response: Command) -> None:
        self.answers.append(response)


def test_commits_are_gathered_and_only_the_newest_travels(tmp_path: Path) -> None:
    member = leader(tmp_path)
    for offset in range(1, 100):
        member.offsets.commit("g", "T", 0, offset, 100, None)
        member.offsets.commit("g", "T", 1, offset, 50, None)
    member.turn()
    assert member.proposed == [], "nobody waits for them"
    assert member.offsets.query("g", "T", 0) == -1
    member.wait()
    assert len(member.proposed) == 1
    member.commit()
    assert member.offsets.offsets("g", "T") == {0: 99, 1: 50}


def test_at_most_one_entry_is_on_its_way(tmp_path: Path) -> None:
    member = leader(tmp_path)
    answers: list[tuple[str, int]] = []
    member.offsets.commit("g", "T", 0, 1, 100, None)
    member.offsets.wait("g", "T", 0, lambda code: answers.append(("first", code)))
    member.turn()
    assert len(member.proposed) == 1, "somebody waits: it leaves at once"
    for offset in range(2, 9):
        member.offsets.commit("g", "T", 0, offset, 100, None)
        member.offsets.wait("g", "T", 0, lambda code: answers.append(("second", code)))
        member.wait()
    assert len(member.proposed) == 1
    member.commit()
    assert answers == [("first", 0)]
    member.turn()
    assert len(member.proposed) == 1
    member.commit()
    assert answers == [("first", 0)] + [("second", 0)] * 7
    assert member.offsets.query("g", "T", 0) == 8


def test_a_commit_that_came_meanwhile_is_not_forgotten(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.offsets.commit("g", "T", 0, 1, 100, None)
    member.wait()
    member.offsets.commit("g", "T", 0, 2, 100, None)
    member.wait()
    assert len(member.proposed) == 1
    member.commit()
    member.turn()
    member.commit()
    assert member.offsets.query("g", "T", 0) == 2
    assert not member.offsets.pending("g", "T", 0)


def test_a_commit_that_changes_nothing_costs_no_entry(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.offsets.commit("g", "T", 0, 5, 100, None)
    member.settle()
    member.offsets.commit("g", "T", 0, 5, 100, None)
    member.offsets.commit("g", "T", 0, -1, 100, None)
    assert member.settle() == []


def test_late_commits_and_seeks_are_told_apart_against_what_is_pending(tmp_path: Path) -> None:
    member, before, now = leader(tmp_path), Someone(), Someone()
    member.offsets.commit("g", "T", 0, 5, 100, before)
    member.offsets.commit("g", "T", 0, 50, 100, now)
    member.offsets.commit("g", "T", 0, 8, 100, before)
    member.settle()
    assert member.offsets.query("g", "T", 0) == 50
    member.offsets.commit("g", "T", 0, 20, 100, now)
    member.offsets.commit("g", "T", 0, 30, 100, now)
    member.settle()
    assert member.offsets.query("g", "T", 0) == 30, "back by intention, and on from there"


def test_losing_the_lead_forgets_what_is_not_applied_and_says_so(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.offsets.commit("g", "T", 0, 5, 100, None)
    member.settle()
    codes: list[int] = []
    member.offsets.commit("g", "T", 0, 9, 100, None)
    member.offsets.wait("g", "T", 0, codes.append)
    member.turn()
    member.offsets.commit("g", "T", 0, 11, 100, None)
    member.offsets.wait("g", "T", 0, codes.append)
    member.role.become(None)
    member.proposed.clear()
    assert codes == [ResponseCode.SYSTEM_ERROR] * 2
    assert not member.offsets.pending("g", "T", 0)
    assert member.offsets.query("g", "T", 0) == 5
    assert member.offsets.commit("g", "T", 0, 12, 100, None), "a follower takes none, and refuses none"
    assert member.settle() == []
    member.role.become(9)
    member.settle()
    assert member.offsets.query("g", "T", 0) == 5


def test_what_the_group_refuses_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = leader(tmp_path)
    monkeypatch.setattr("broker.metadata.replicated.PENDING_BYTES_MAX", 10)
    codes: list[int] = []
    member.offsets.commit("g", "T", 0, 9, 100, None)
    member.offsets.wait("g", "T", 0, codes.append)
    member.turn()
    assert codes == [ResponseCode.SYSTEM_BUSY]
    assert not member.offsets.pending("g", "T", 0)


def test_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = leader(tmp_path)
    monkeypatch.setattr(broker.metadata.offset_batches, "GATHERED_MAX", 1)
    monkeypatch.setattr(broker.metadata.offset_batches, "WAITING_MAX", 1)
    member.offsets.commit("g", "T", 0, 1, 100, None)
    member.offsets.commit("g", "T", 0, 2, 100, None)
    _busy(lambda: member.offsets.commit("g", "T", 1, 1, 100, None))
    member.offsets.wait("g", "T", 0, lambda _code: None)
    _busy(lambda: member.offsets.wait("g", "T", 0, lambda _code: None))
    member.settle()
    member.offsets.assign("g", "T", 3, 0)
    _busy(lambda: member.offsets.assign("g", "T", 3, 0))


def _busy(call: Callable[[], object]) -> None:
    with pytest.raises(CommandError) as busy:
        call()
    assert busy.value.code == ResponseCode.SYSTEM_BUSY


def test_a_reset_wins_until_a_pull_was_told_whoever_leads(tmp_path: Path) -> None:
    clock = ManualClock()
    first, second = leader(tmp_path / "a", clock), Member(tmp_path / "b", clock)
    first.offsets.commit("g", "T", 0, 50, 100, None)
    first.offsets.reset("g", "T", 0, 3)
    assert not first.offsets.commit("g", "T", 0, 51, 100, None), "it is of the time before the reset"
    assert not first.offsets.reset_pending("g", "T", 0), "not yet applied"
    entries = [*_first_entries(tmp_path / "c"), *first.settle()]
    for index, payload in enumerate(entries, 2):
        second.meta.apply(index, payload)
    first.role.become(None)
    second.role.become(4)
    second.settle()
    assert second.offsets.query("g", "T", 0) == 3
    second.write()
    second = Member(tmp_path / "b", clock)
    second.role.become(5)
    second.settle()
    assert second.offsets.reset_pending("g", "T", 0), "the files know of it too"
    assert not second.offsets.commit("g", "T", 0, 51, 100, None)
    assert second.offsets.take_reset("g", "T", 0) == 3
    assert second.offsets.take_reset("g", "T", 0) == -1
    assert second.offsets.commit("g", "T", 0, 4, 100, None)
    second.settle()
    assert second.offsets.query("g", "T", 0) == 4
    assert second.offsets._resets == {}, "the commit ends it on every member"


def _first_entries(folder: Path) -> list[bytes]:
    fresh = Member(folder, ManualClock())
    fresh.role.become(3)
    return fresh.settle()


def test_operations_keep_their_order_among_commits(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.offsets.commit("g", "T", 0, 5, 100, None)
    member.offsets.clone("g", "h", "T")
    member.offsets.remove_group("g")
    member.offsets.commit("g", "T", 0, 7, 100, None)
    assert member.offsets.pending("anybody", "anything", 0), "whose offsets these concern is decided when applied"
    member.settle()
    assert member.offsets.offsets("h", "T") == {0: 5}
    assert member.offsets.offsets("g", "T") == {0: 7}
    member.offsets.remove_topic("T")
    member.settle()
    assert member.offsets.pairs() == []


def test_R3_a_file_written_during_a_replay_says_what_is_in_it(tmp_path: Path) -> None:
    member = leader(tmp_path)
    early = member.meta.index
    member.offsets.commit("g", "T", 0, 5, 100, None)
    entries = member.settle()
    member.offsets.clone("g", "h", "T")
    entries += member.settle()
    member.offsets.commit("g", "T", 0, 9, 100, None)
    entries += member.settle()
    member.offsets.file.write_now()
    again = Member(tmp_path, ManualClock())
    again.meta.index = early
    again.meta.apply(early + 1, entries[0])
    again.offsets.file.write_now()
    once_more = Member(tmp_path, ManualClock())
    for index, payload in enumerate(entries, early + 1):
        once_more.meta.apply(index, payload)
    assert once_more.offsets.offsets("h", "T") == {0: 5}, "a copy made again would be of later offsets"


def test_nothing_is_cut_down_to_a_queue_that_the_member_does_not_know_whole(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.offsets.assign("g", "T", 0, 80)
    member.settle()
    assert member.offsets.clamp(lambda _topic, _queue: 0) == 0
    assert member.offsets.query("g", "T", 0) == 80


class Requests:
    """The handlers of 14 and 15 over a real store and a member's tables."""

    def __init__(self, parts: Parts, member: Member) -> None:
        self.member = member
        self.client, self.leased = Someone(), True
        tables = (member.offsets, member.topics, member.groups)
        self.handlers = OffsetHandlers(parts.config, *tables, parts.store, parts.clients, lease=lambda: self.leased)
        parts.join(cast("Peer", self.client), "c", "g", "T")

    def query(self) -> int | None:
        header = QueryConsumerOffsetRequestHeader(consumerGroup="g", topic="T", queueId=0)
        return self._offset(self._ask(self.handlers.query, RequestCode.QUERY_CONSUMER_OFFSET, header))

    def commit(
        self, offset: int, *, oneway: bool = False, by: Someone | None = None, hop: bool = False
    ) -> Command | None:
        """Commit as the client, or as a member (`by`) that passes it on (`hop`)."""
        header = UpdateConsumerOffsetRequestHeader(consumerGroup="g", topic="T", queueId=0, commitOffset=offset)
        return self._ask(
            self.handlers.update, RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=oneway, by=by, hop=hop
        )

    def _ask(
        self,
        handler: Any,
        code: int,
        header: Any,
        *,
        oneway: bool = False,
        by: Someone | None = None,
        hop: bool = False,
    ) -> Command | None:
        made = Command.request(code, header, oneway=oneway)
        flag = made.flag | HOP_FLAG if hop else made.flag
        answer = handler(cast(Connection, by or self.client), Command(code=code, flag=flag, raw_ext=dict(made.ext)))
        assert not isinstance(answer, Awaitable)
        return cast("Command | None", answer)

    def answers(self) -> list[tuple[int, int | None]]:
        found = [(answer.code, self._offset(answer)) for answer in self.client.answers]
        self.client.answers.clear()
        return found

    @staticmethod
    def _offset(answer: Command | None) -> int | None:
        if answer is None or answer.code != ResponseCode.SUCCESS or "offset" not in answer.ext:
            return None
        return answer.header(QueryConsumerOffsetResponseHeader).offset


@pytest.fixture
async def requests(tmp_path: Path) -> AsyncIterator[Requests]:
    async with broker_parts(tmp_path) as parts:
        member = leader(tmp_path / "member")
        member.topics.create_for_send("T", "TBW102", 1)
        member.settle()
        for _ in range(20):
            parts.put("T", 0)
        yield Requests(parts, member)


async def test_a_commit_that_asks_is_answered_when_it_is_applied(requests: Requests) -> None:
    assert requests.commit(7) is None
    assert requests.answers() == []
    requests.member.turn()
    requests.member.commit()
    assert requests.answers() == [(ResponseCode.SUCCESS, None)]
    again = requests.commit(7)
    assert again is not None, "it is applied already"
    assert again.code == ResponseCode.SUCCESS


async def test_a_query_that_waited_is_answered_by_who_leads_still(requests: Requests) -> None:
    assert requests.commit(7, oneway=True) is not None
    assert requests.query() is None
    requests.leased = False
    requests.member.settle()
    [answer] = requests.client.answers
    assert (answer.code, answer.ext.get(HOP)) == (ResponseCode.SERVICE_NOT_AVAILABLE, "1")


async def test_a_oneway_commit_waits_for_nobody(requests: Requests) -> None:
    assert requests.commit(7, oneway=True) is not None
    requests.member.turn()
    assert requests.member.proposed != [], "the group itself was created"
    requests.member.settle()
    assert requests.query() == 7


async def test_a_client_goes_back_by_whatever_member_it_asks(requests: Requests) -> None:
    """What was acknowledged holds: the leader knows a client's own connection, and none of those behind a member."""
    member = Someone()
    for offset, by, hop in ((15, None, False), (9, member, True), (4, None, False)):
        requests.commit(offset, oneway=True, by=by, hop=hop)
        requests.member.settle()
        assert requests.query() == offset


async def test_an_administrator_goes_back_by_whatever_member_is_asked(
    requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    tool, member = Someone(), Someone()
    member.loop.time = lambda: 10.0
    requests.commit(15, oneway=True)
    requests.member.settle()
    with caplog.at_level("INFO", "audit"):
        for offset, by, hop in ((9, tool, False), (4, member, True)):
            assert requests.commit(offset, by=by, hop=hop) is None, "answered when it is applied"
            assert len(caplog.messages) == len(by.answers) == 0
            requests.member.settle()
            assert [answer.code for answer in by.answers] == [ResponseCode.SUCCESS]
            assert requests.query() == offset
            (line,) = caplog.messages
            assert line.endswith(f"commitOffset={offset}: done (it was {15 if by is tool else 9})")
            caplog.clear()


async def test_a_query_waits_for_what_is_on_its_way(requests: Requests) -> None:
    requests.commit(7, oneway=True)
    assert requests.query() is None
    requests.member.turn()
    assert requests.query() is None
    requests.member.commit()
    assert requests.answers() == [(ResponseCode.SUCCESS, 7)] * 2
    assert requests.query() == 7


async def test_no_answer_counts_on_what_a_deposed_leader_proposed(requests: Requests) -> None:
    requests.commit(7)
    requests.member.settle()
    requests.answers()
    requests.commit(9)
    requests.query()
    requests.member.turn()
    requests.member.role.become(None)
    assert requests.answers() == [(ResponseCode.SYSTEM_ERROR, None)] * 2
    assert requests.query() == 7


async def test_saving_waits_for_everything_and_fails_with_the_lead(tmp_path: Path) -> None:
    member = leader(tmp_path)
    await member.offsets.save()
    member.offsets.commit("g", "T", 0, 1, 10, None)
    saving = asyncio.ensure_future(member.offsets.save())
    await asyncio.sleep(0)
    assert not saving.done()
    member.settle()
    await saving
    member.offsets.commit("g", "T", 0, 2, 10, None)
    saving = asyncio.ensure_future(member.offsets.save())
    await asyncio.sleep(0)
    member.refusal = Refusal.NOT_LEADER
    member.turn()
    with pytest.raises(CommandError, match=LOST[:30]):
        await saving
