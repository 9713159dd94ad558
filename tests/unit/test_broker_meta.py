"""broker/metadata/replicated.py: changes go through the log, are gathered, split and taken back."""

import asyncio
from pathlib import Path

import pytest

import broker.metadata.replicated
from broker.metadata.meta_entry import encode
from broker.metadata.operations import LOST, Table, Verb
from broker.metadata.queue_starts import StartEvents
from broker.metadata.table_file import MetadataError
from raft.protocol.types import Fate, Refusal
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.clock import ManualClock
from tests.parts.meta_parts import Member, leader


def test_the_changes_of_one_turn_are_one_entry(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.topics.create_for_send("A", "TBW102", 4)
    member.topics.create_for_send("B", "TBW102", 4)
    member.groups.find("g")
    assert member.proposed == []
    member.turn()
    assert len(member.proposed) == 1


def test_what_a_turns_messages_need_is_proposed_before_them(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.topics.create_for_send("A", "TBW102", 4)
    assert member.meta.flush(), "everything is in the log"
    assert len(member.proposed) == 1
    member.turn()
    assert len(member.proposed) == 1, "nothing is proposed twice"


def test_the_leader_shows_a_change_at_once_and_applies_it_later(tmp_path: Path) -> None:
    member = leader(tmp_path)
    before = member.state()
    created = member.topics.create_for_send("T", "TBW102", 4)
    group = member.groups.find("g")
    assert created is not None
    assert member.topics.get("T") is created
    assert member.state() == before
    member.turn()
    member.commit()
    assert "T" in member.state()["topics.json"]["topicConfigTable"]
    assert member.topics.get("T") is created, "who remembers a topic need not look again"
    assert member.groups.get("g") is group
    assert member.shown()["topics.json"] == member.state()["topics.json"]


def test_followers_change_only_by_what_is_applied(tmp_path: Path) -> None:
    first, second = leader(tmp_path / "a"), Member(tmp_path / "b", ManualClock())
    assert second.topics.create_for_send("T", "TBW102", 4) is None
    assert second.topics.create_for_retry("%RETRY%g", 1).topicName == "%RETRY%g"
    assert second.groups.find("g") == SubscriptionGroupConfig(groupName="g"), "as the leader would make it"
    assert second.topics.get("%RETRY%g") is None
    assert second.groups.get("g") is None
    assert second.topics.adopt({"lost": [0]}) == []
    with pytest.raises(CommandError, match="only the leader"):
        second.topics.update(TopicConfig("T"))
    with pytest.raises(CommandError, match="only the leader"):
        second.groups.update(SubscriptionGroupConfig("g"))
    first.topics.update(TopicConfig("T", 3, 3))
    first.turn()
    for payload in first.commit():
        second.meta.apply(second.meta.index + 1, payload)
    assert second.topics.get("T") == TopicConfig("T", 3, 3)
    assert second.state()["topics.json"]["dataVersion"] == first.state()["topics.json"]["dataVersion"]


def test_losing_the_lead_takes_back_what_is_not_applied(tmp_path: Path) -> None:
    changes: list[int] = []
    member = leader(tmp_path, on_topics=lambda: changes.append(1))
    member.topics.update(TopicConfig("kept"))
    member.groups.update(SubscriptionGroupConfig("kept"))
    member.settle()
    before, shown = member.state(), member.shown()
    changes.clear()
    member.topics.update(TopicConfig("new"), TopicConfig("kept", 1, 1))
    member.topics.delete("kept")
    member.groups.set_readable("kept", "T", readable=False)
    member.groups.delete("kept")
    member.turn()
    assert member.topics.get("kept") is None
    member.role.become(None)
    assert (member.state(), member.shown()) == (before, shown)
    assert member.topics.tables is not None
    assert member.topics.get("kept") == TopicConfig("kept")
    assert member.groups.readable("kept", "T")
    assert changes, "the NameServers are told again"


def test_what_was_taken_back_is_applied_after_all_when_the_group_kept_it(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.topics.update(TopicConfig("T"))
    member.turn()
    payload, _ = member.proposed.pop()
    member.role.become(None)
    assert member.topics.get("T") is None
    member.meta.apply(member.meta.index + 1, payload)
    assert member.topics.get("T") == TopicConfig("T")
    assert member.shown()["topics.json"] == member.state()["topics.json"]


@pytest.mark.parametrize("fate", [Fate.OVERWRITTEN, Fate.UNKNOWN])
async def test_an_administrator_is_told_when_the_fate_is_in_doubt(tmp_path: Path, fate: Fate) -> None:
    member = leader(tmp_path)
    member.topics.update(TopicConfig("T"))
    saving = asyncio.ensure_future(member.topics.save())
    await asyncio.sleep(0)
    member.turn()
    member.proposed[0][1](fate)
    with pytest.raises(CommandError, match="ask the new leader") as told:
        await saving
    assert (told.value.code, told.value.remark) == (ResponseCode.SYSTEM_ERROR, LOST)
    assert member.topics.get("T") is None


async def test_an_administrator_is_answered_when_the_change_is_applied(tmp_path: Path) -> None:
    member = leader(tmp_path)
    await member.topics.save()
    member.topics.update(TopicConfig("T"))
    member.groups.update(SubscriptionGroupConfig("g"))
    member.offsets.assign("g", "T", 0, 1)
    savings = [asyncio.ensure_future(table.save()) for table in (member.topics, member.groups, member.offsets)]
    await asyncio.sleep(0)
    member.turn()
    assert not any(saving.done() for saving in savings)
    member.commit()
    await asyncio.gather(*savings)


def test_R15_a_new_leader_gives_the_tables_a_version_of_its_term(tmp_path: Path) -> None:
    member = leader(tmp_path, term=3)
    version = member.topics.data_version
    assert version.stateVersion == 3
    member.role.become(None)
    member.role.become(7)
    assert member.topics.data_version.stateVersion == 7
    assert member.topics.data_version.counter > version.counter
    member.settle()
    member.meta.apply(member.meta.index + 1, encode([[int(Verb.PUT), int(Table.TOPICS), [99, 1, 5], []]]))
    assert member.topics.data_version.stateVersion == 7, "it never falls"


def test_the_first_leader_puts_the_whole_tables_into_the_log(tmp_path: Path) -> None:
    clock = ManualClock()
    founder = Member(tmp_path / "a", clock)
    founder.topics._applied.table["old"] = founder.topics._view.table["old"] = TopicConfig("old")
    founder.offsets._table["old@g"] = {0: 5}
    founder.delay.offsets[3] = 9
    founder.starts._starts["old"] = {0: 4}
    founder.starts.log_start = 4096
    founder.role.become(2)
    entries = founder.settle()
    other = Member(tmp_path / "b", clock)
    other.topics._applied.table["stray"] = other.topics._view.table["stray"] = TopicConfig("stray")
    for payload in entries:
        other.meta.apply(other.meta.index + 1, payload)
    assert other.state() == founder.state()
    assert other.topics.get("stray") is None
    assert other.offsets.query("g", "old", 0) == 5
    founder.role.become(None)
    founder.role.become(3)
    founder.turn()
    assert len(founder.proposed[0][0]) < 100, "once only: then just a version"


def test_large_changes_are_split_over_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.metadata.replicated, "ENTRY_BYTES_MAX", 2000)
    monkeypatch.setattr("broker.metadata.meta_entry.OPERATION_BYTES_MAX", 1000)
    member = leader(tmp_path)
    member.topics.update(*[TopicConfig(f"topic-{number:04d}") for number in range(500)])
    member.turn()
    assert len(member.proposed) >= 10
    assert all(len(payload) <= 2100 for payload, _ in member.proposed)
    shown = member.shown()
    member.commit()
    assert member.shown() == shown
    assert member.state()["topics.json"] == shown["topics.json"]
    with pytest.raises(CommandError, match="at most 1000"):
        member.topics.update(TopicConfig("T", attributes={"a": "x" * 2000}))
    assert member.topics.get("T") is None


def test_the_limit_of_what_is_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = leader(tmp_path)
    monkeypatch.setattr(broker.metadata.replicated, "PENDING_BYTES_MAX", 300)
    member.topics.update(TopicConfig("A", attributes={"a": "x" * 200}))
    with pytest.raises(CommandError) as busy:
        member.topics.update(TopicConfig("B", attributes={"a": "x" * 200}))
    assert busy.value.code == ResponseCode.SYSTEM_BUSY
    assert member.topics.get("B") is None
    member.settle()
    member.topics.update(TopicConfig("B", attributes={"a": "x" * 200}))


def test_what_the_group_does_not_take_now_is_proposed_again(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.refusal = Refusal.TRANSFERRING
    member.topics.update(TopicConfig("A"))
    assert not member.meta.flush()
    assert member.topics.get("A") is not None
    member.topics.update(TopicConfig("B"))
    member.wait()
    assert member.proposed == []
    member.refusal = None
    member.wait()
    member.commit()
    assert {"A", "B"} <= set(member.state()["topics.json"]["topicConfigTable"])


def test_a_refusal_for_good_takes_everything_back(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.refusal = Refusal.NOT_LEADER
    member.topics.update(TopicConfig("A"))
    member.turn()
    assert member.topics.get("A") is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"\x80",
        b"\x82\x02\x80",
        b"\x82\x01\x05",
        encode([[1, 99, [1, 1, 1]]]),
        encode([[1, int(Table.TRANSACTIONS), [1, 1, 1], []]]),
        encode([[99, int(Table.TOPICS), [1, 1, 1]]]),
        encode([[99, int(Table.GROUPS), [1, 1, 1]]]),
        encode([[99, int(Table.OFFSETS), [1, 1, 1]]]),
        encode([[99, int(Table.DELAY), [1, 1, 1]]]),
        encode([[99, int(Table.QUEUE_STARTS), [1, 1, 1]]]),
        encode([[int(Verb.PUT), int(Table.TOPICS), [1, 1, 1], 5]]),
        encode([[int(Verb.PUT), int(Table.GROUPS), [1, 1, 1], [{"groupName": 7}]]]),
        encode([[int(Verb.COMMIT), int(Table.OFFSETS), [1, 1, 1], [["T@g", 0]]]]),
        encode([[int(Verb.PART), 0, 1, 2]]),
        encode([[int(Verb.PART), 0, "0", 2]]),
        encode([[int(Verb.PART), 0, 0, None]]),
        encode([[int(Verb.PART), 0, 0]]),
        encode([[int(Verb.PART), 0, 0, 1, 1]]),
    ],
)
def test_a_member_stops_at_an_entry_that_it_does_not_understand(tmp_path: Path, payload: bytes) -> None:
    member = Member(tmp_path, ManualClock())
    with pytest.raises(MetadataError):
        member.meta.apply(2, payload)


def test_deleting_topics_reaches_every_members_store(tmp_path: Path) -> None:
    removed: list[tuple[list[str], int]] = []
    member = leader(tmp_path, delete_queues=lambda names, index: removed.append((list(names), index)))
    member.topics.update(TopicConfig("T"))
    member.starts.move(0, {("T", 0): 7})
    member.settle()
    assert member.starts.first("T", 0) == 7
    member.topics.delete("T", "never")
    assert removed == []
    member.settle()
    assert removed == [(["T"], member.meta.index)]
    assert member.starts.first("T", 0) == 0, "a topic of that name begins anew"


def test_R12_the_start_of_the_log_moves_when_that_is_applied(tmp_path: Path) -> None:
    moved: list[tuple[str, int, int]] = []
    in_first = StartEvents(moved=lambda start: moved.append(("a", start, first.starts.first("T", 1))))
    in_second = StartEvents(moved=lambda start: moved.append(("b", start, second.starts.first("T", 1))))
    first: Member = leader(tmp_path / "a", starts=in_first)
    second: Member = Member(tmp_path / "b", ManualClock(), starts=in_second)
    first.starts.move(1 << 20, {("T", 1): 40})
    assert moved == []
    for payload in first.settle():
        second.meta.apply(second.meta.index + 1, payload)
    assert moved == [("a", 1 << 20, 40), ("b", 1 << 20, 40)], "when it moves, the queues' starts are known"
    first.starts.move(1 << 20, {("T", 1): 30})
    first.settle()
    assert first.starts.first("T", 1) == 40
    assert len(moved) == 2
