"""broker/messages/pull.py at a member of a group: what a follower serves, passes on or leaves open (rule R14)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.messages.pull import PullHandlers
from broker.messages.pull_checks import PullTicket
from remoting.codes import ResponseCode
from remoting.record import decode_records
from remoting.server import Reply
from tests.parts.pulling import Setting, pulling, turn


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with pulling(tmp_path) as made:
        yield made


async def test_R14_a_follower_serves_what_it_has(setting: Setting) -> None:
    setting.parts.put("T", 0, b"0")
    setting.role.leads = False
    setting.pull(0)
    assert (setting.last.code, setting.last.ext["suggestWhichBrokerId"]) == (0, "0")
    setting.pull(1, suspend_ms=60_000)
    assert setting.pulls.parked == 1
    setting.parts.put("T", 0, b"1")
    await turn()
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"1"]
    assert not setting.forwarded


async def test_slaveReadEnable_decides_whether_a_follower_answers_itself(setting: Setting) -> None:
    setting.parts.put("T", 0, b"0")
    setting.role.leads = False
    setting.role.leader_address = "10.0.0.1:10911"
    setting.pull(0, suspend_ms=20_000)
    (hold, failed) = setting.forwarded[0]
    assert (hold, failed.code, failed.ext["nextBeginOffset"]) == (20.0, 19, "0")
    assert setting.consumer.answers == []
    setting.parts.config.update({"slaveReadEnable": "true"})
    setting.pull(0)
    assert setting.last.code == 0
    setting.parts.config.update({"slaveReadEnable": "false"})
    setting.role.leader_address = None
    setting.pull(0)
    assert setting.last.code == 0, "nobody leads: what is committed here may be read"
    assert len(setting.forwarded) == 1


@pytest.mark.parametrize("offset", [-1, 5, 2**40])
async def test_R14_a_follower_never_calls_an_offset_wrong(setting: Setting, offset: int) -> None:
    setting.parts.put("T", 0)
    setting.role.leads = False
    setting.pull(offset, suspend_ms=20_000)
    (hold, failed) = setting.forwarded[0]
    assert hold == 20.0
    assert failed.code == ResponseCode.PULL_NOT_FOUND
    assert failed.ext["nextBeginOffset"] == str(offset)
    assert failed.ext["suggestWhichBrokerId"] == "0"
    assert setting.consumer.answers == []
    assert setting.pulls.parked == 0


class Judges(PullHandlers):
    """A planted bug: whoever is asked thinks that it knows the queue's end."""

    def _may_judge(self) -> bool:
        return True


async def test_R14_planted_a_follower_that_moves_consumers_is_caught(tmp_path: Path) -> None:
    async with pulling(tmp_path, Judges) as setting:
        setting.parts.put("T", 0)
        setting.role.leads = False
        setting.pull(5)
        assert setting.last.code == ResponseCode.PULL_OFFSET_MOVED
        assert not setting.forwarded


async def test_R14_of_an_unknown_queue_only_the_leader_knows_the_offsets(setting: Setting) -> None:
    setting.role.leads = False
    setting.pull(7)
    assert len(setting.forwarded) == 1
    setting.pull(0, suspend_ms=60_000)
    assert setting.pulls.parked == 1


async def test_R14_who_is_parked_when_the_role_changes_is_told_to_ask_again(setting: Setting) -> None:
    setting.parts.put("T", 0)
    setting.pull(1, suspend_ms=60_000)
    setting.parts.store.delete_topic("T")
    setting.role.leads = False
    setting.pulls.wake_all()
    assert (setting.last.code, setting.last.ext["nextBeginOffset"]) == (19, "1")
    setting.pull(0, suspend_ms=60_000)
    assert setting.pulls.parked == 1


async def test_R14_of_what_a_parked_pull_asks_for_only_the_leader_says_that_it_is_gone(setting: Setting) -> None:
    setting.pull(0, suspend_ms=60_000)
    setting.parts.topics.delete("T")
    setting.role.leads = False
    setting.pulls.wake_all()
    assert (setting.last.code, setting.last.ext["nextBeginOffset"]) == (19, "0")


class Refuses(PullHandlers):
    """A planted bug: whoever is asked thinks that it knows what there is no more."""

    def _again(self, ticket: PullTicket) -> Reply:
        return self._serve(self._checks.ticket(ticket.owner, ticket.request, ticket.header), may_park=False)


async def test_R14_planted_a_follower_that_refuses_what_it_had_parked_is_caught(tmp_path: Path) -> None:
    async with pulling(tmp_path, Refuses) as setting:
        setting.pull(0, suspend_ms=60_000)
        setting.parts.topics.delete("T")
        setting.role.leads = False
        setting.pulls.wake_all()
        assert setting.last.code == ResponseCode.TOPIC_NOT_EXIST


async def test_R14_a_leader_that_may_be_replaced_answers_as_a_follower(setting: Setting) -> None:
    setting.parts.put("T", 0)
    setting.role.leased = False
    setting.pull(0)
    assert setting.last.code == 0
    setting.pull(9)
    assert (setting.last.code, setting.last.ext["nextBeginOffset"]) == (19, "9")
    # Not at once, or its client would ask again and again until the lease is there, or lost.
    setting.pull(9, suspend_ms=60_000)
    assert setting.pulls.parked == 1
    setting.role.leased = True
    setting.pulls.wake_all()
    assert setting.last.code == 21
    assert not setting.forwarded


async def test_R14_what_a_follower_would_refuse_the_leader_decides(setting: Setting) -> None:
    setting.role.leads = False
    setting.pull(0, topic="Nope")
    setting.pull(0, consumerGroup="New")
    setting.pull(0, tags=None)
    assert [failed.code for _hold, failed in setting.forwarded] == [19, 19, 19]
    assert setting.parts.groups.get("New") is None


async def test_a_follower_stores_no_offsets_and_gives_no_resets(setting: Setting) -> None:
    setting.parts.put("T", 0)
    setting.parts.offsets.reset("G", "T", 0, 0)
    setting.role.leads = False
    setting.pull(1, sysFlag=5, commitOffset=1)
    assert setting.last.code == 19
    assert setting.parts.offsets.query("G", "T", 0) == 0
    setting.role.leads = True
    setting.pull(1)
    assert (setting.last.code, setting.last.remark) == (21, "OFFSET_RESET")
