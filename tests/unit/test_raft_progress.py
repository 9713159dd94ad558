"""The leader's view of its peers: probe, stream, windows, stale answers, silence."""

from typing import Any

import pytest

from raft.core.lease import Lease
from raft.core.progress import COMMIT_PUSH_S, FLIGHTS_MAX, SILENT_BEATS, PeerReplication
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.settings import Peer, RaftSettings
from raft.protocol.types import EntryType
from tests.parts.raft_memory_log import MemoryLog


class Rig:
    """A leader of term 3 with ten entries of term 2 and one peer, n1."""

    def __init__(self, **settings: Any) -> None:
        self.now = 10.0
        self.sent: list[RaftMessage] = []
        self.linked = True
        self.push_at: float | None = None
        self.log = MemoryLog()
        for _ in range(10):
            self.log.append(EntryType.MESSAGES, 2, b"m" * 99, 0)
        made = RaftSettings("n0", "g", (Peer("n0", "h", 1), Peer("n1", "h", 2)), **settings)
        self.lease = Lease(lambda: self.now, 0.4)
        self.lease.begin()
        self.made = PeerReplication(made, self.log, self.lease, lambda: self.now, self.send, self.push_in)
        self.made.begin(3, ["n1"])
        self.peer = self.made.peers["n1"]

    def push_in(self, seconds: float) -> None:
        assert self.push_at is None, "one timer at a time"
        self.push_at = self.now + seconds

    def pushed(self, commit: int) -> list[RaftMessage]:
        """The time has come."""
        self.push_at = None
        self.sent.clear()
        self.made.pushed(commit)
        return list(self.sent)

    def send(self, peer: str, message: RaftMessage) -> bool:
        assert peer == "n1"
        if self.linked:
            self.sent.append(message)
        return self.linked

    def pump(self, commit: int = 0) -> list[RaftMessage]:
        self.sent.clear()
        self.made.pump(commit)
        return list(self.sent)

    def beat(self) -> list[RaftMessage]:
        self.sent.clear()
        self.made.beat(0)
        return list(self.sent)

    def reply(self, message: RaftMessage, **fields: Any) -> None:
        answer = {"term": 3, "seq": message.fields["seq"], "ok": True, "match": 0, "durable": 0}
        self.made.reply("n1", answer | {"hint_index": 0, "hint_term": 0} | fields)

    def stream(self) -> None:
        """Have the peer match everything that there is."""
        (probe,) = self.pump()
        self.reply(probe, match=10, durable=10)


def prevs(messages: list[RaftMessage]) -> list[tuple[int, int]]:
    return [(message.fields["prev_index"], len(message.fields["entries"])) for message in messages]


def test_one_empty_probe_is_open_until_it_is_answered() -> None:
    rig = Rig()
    assert prevs(rig.pump()) == [(10, 0)]
    assert rig.pump() == []


def test_a_refusal_moves_the_probe_to_the_hint_and_a_match_starts_the_stream() -> None:
    rig = Rig()
    (probe,) = rig.pump()
    rig.reply(probe, ok=False, hint_index=4, hint_term=2)
    (probe,) = rig.pump()
    assert prevs([probe]) == [(4, 0)]
    rig.reply(probe, match=4, durable=4)
    assert prevs(rig.pump()) == [(4, 6)]


def test_a_hint_of_another_term_skips_the_whole_term() -> None:
    rig = Rig()
    (probe,) = rig.pump()
    rig.reply(probe, ok=False, hint_index=7, hint_term=1)
    assert prevs(rig.pump()) == [(0, 0)]


def test_a_peer_that_refuses_what_it_said_it_would_take_is_asked_at_the_next_beat_only() -> None:
    rig = Rig()
    (probe,) = rig.pump()
    rig.reply(probe, ok=False, hint_index=10, hint_term=2)
    assert rig.pump() == []
    assert prevs(rig.beat()) == [(10, 0)]


def test_next_never_moves_back_because_something_succeeded() -> None:
    rig = Rig()
    rig.stream()
    for _ in range(3):
        rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
        rig.pump()
    assert rig.peer.next == 14
    first = rig.peer.flights[0]
    rig.reply(RaftMessage(MessageKind.APPEND, {"seq": first.seq}), match=11, durable=11)
    assert (rig.peer.next, rig.peer.match) == (14, 11)
    assert rig.pump() == []


def test_what_is_received_but_not_on_disk_does_not_match() -> None:
    rig = Rig()
    (probe,) = rig.pump()
    rig.reply(probe, match=10, durable=6)
    assert (rig.peer.received, rig.peer.match) == (10, 6)
    rig.reply(probe, match=10, durable=10)
    assert rig.peer.match == 10


def test_refusals_of_what_is_not_open_any_more_count_for_nothing() -> None:
    rig = Rig()
    (probe,) = rig.pump()
    rig.reply(probe, match=10, durable=10)
    rig.reply(probe, ok=False, hint_index=2, hint_term=1)
    assert (rig.peer.probing, rig.peer.next, rig.peer.match) == (False, 11, 10)


def test_a_refusal_in_the_stream_probes_again_but_never_below_the_match() -> None:
    rig = Rig()
    rig.stream()
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    (flight,) = rig.pump()
    rig.reply(flight, ok=False, hint_index=2, hint_term=2)
    assert prevs(rig.pump()) == [(10, 0)]


def test_the_window_bounds_bytes_in_flight() -> None:
    rig = Rig(window_bytes=1024, ae_bytes_max=1024)
    (probe,) = rig.pump()
    rig.reply(probe, ok=False, hint_index=0, hint_term=0)
    (probe,) = rig.pump()
    rig.log.append(EntryType.MESSAGES, 3, b"m" * 5000, 0)
    rig.reply(probe)
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    assert prevs(rig.pump()) == [(0, 10), (10, 1)]  # the last one began below the window's end
    assert rig.pump() == []


def test_messages_in_flight_are_bounded() -> None:
    rig = Rig()
    rig.stream()
    for _ in range(FLIGHTS_MAX + 20):
        rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
        rig.pump()
    assert len(rig.peer.flights) == FLIGHTS_MAX


def test_silence_sends_again_behind_the_match() -> None:
    rig = Rig()
    rig.stream()
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    rig.pump()
    rig.now += SILENT_BEATS * 0.1 + 0.01
    (probe,) = rig.beat()
    assert prevs([probe]) == [(10, 0)]
    rig.reply(probe, match=10, durable=10)
    assert prevs(rig.pump()) == [(10, 1)]


def test_a_link_that_came_back_probes_behind_the_match_or_from_the_end_when_nothing_matched() -> None:
    rig = Rig()
    rig.pump()
    rig.made.lost("n1")
    assert prevs(rig.pump()) == [(10, 0)]
    rig.reply(rig.sent[0], match=10, durable=7)
    rig.made.lost("n1")
    assert prevs(rig.pump()) == [(7, 0)]


def test_R4_a_peer_whose_disk_lost_what_it_acknowledged_is_sent_it_again(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.stream()
    rig.made.linked("n1", 10)
    assert (rig.peer.match, caplog.records) == (10, [])
    rig.made.linked("n1", 9)
    assert rig.peer.match == 9
    assert "n1 has lost entries 10..10" in caplog.text
    (probe,) = rig.pump()
    assert prevs([probe]) == [(9, 0)]
    rig.reply(probe, match=9, durable=9)
    assert prevs(rig.pump()) == [(9, 1)]
    rig.made.linked("n2", 0)
    rig.made.linked("n1", 0)
    assert prevs(rig.pump()) == [(10, 0)], "nothing of it is known: from the end, as with a new one"


def test_what_could_not_be_sent_is_not_taken_for_sent() -> None:
    rig = Rig()
    rig.stream()
    rig.linked = False
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    rig.pump()
    assert (rig.peer.next, len(rig.peer.flights)) == (11, 0)
    rig.linked = True
    assert prevs(rig.pump()) == [(10, 1)]


def test_R7_an_answer_is_as_old_as_its_question() -> None:
    rig = Rig()
    (probe,) = rig.pump()
    asked = rig.now
    rig.now += 30
    rig.reply(probe, match=10, durable=10)
    assert (rig.peer.answered_at, rig.peer.heard_at) == (asked, rig.now)


def test_the_commit_index_is_told_soon_and_once() -> None:
    rig = Rig()
    rig.stream()
    assert rig.pump(commit=10) == []
    assert rig.push_at == rig.now + COMMIT_PUSH_S
    rig.now += COMMIT_PUSH_S
    (told,) = rig.pushed(commit=10)
    assert told.fields["commit"] == 10
    assert rig.pump(commit=10) == []
    assert rig.push_at is None


def test_while_entries_follow_one_another_one_timer_does_for_all() -> None:
    rig = Rig()
    rig.stream()
    rig.pump(commit=9)
    asked = rig.push_at
    rig.now += COMMIT_PUSH_S / 2
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    (entry,) = rig.pump(commit=9)
    assert entry.fields["commit"] == 9
    assert rig.pump(commit=10) == []
    assert rig.push_at == asked, "the timer need not move"
    rig.now += COMMIT_PUSH_S / 2
    assert rig.pushed(commit=10) == [], "nobody waits for so long yet"
    assert rig.push_at == pytest.approx(rig.now + COMMIT_PUSH_S / 2)
    rig.now += COMMIT_PUSH_S
    assert [message.fields["commit"] for message in rig.pushed(commit=10)] == [10]
    assert rig.push_at is None


def test_who_leads_no_more_tells_no_commit() -> None:
    rig = Rig()
    rig.stream()
    rig.pump(commit=10)
    rig.made.end()
    rig.now += COMMIT_PUSH_S
    assert rig.pushed(commit=10) == []


def test_R13_a_peer_behind_what_is_kept_is_told_so_at_each_beat() -> None:
    rig = Rig()
    rig.log.forget(5)
    (probe,) = rig.pump()
    rig.reply(probe, ok=False, hint_index=2, hint_term=2)
    (behind,) = rig.pump()
    assert behind.kind is MessageKind.BEHIND
    assert dict(behind.fields) == {"term": 3, "base_index": 5, "base_term": 2}
    assert rig.pump() == []
    assert [message.kind for message in rig.beat()] == [MessageKind.BEHIND]


def test_members_come_and_go() -> None:
    rig = Rig()
    rig.made.set_members(["n2"])
    assert sorted(rig.made.peers) == ["n2"]
    rig.made.reply("n1", {"seq": 1, "ok": True, "match": 1, "durable": 1})
    rig.made.end()
    assert (rig.made.peers, rig.made.term) == ({}, 0)


def test_only_what_is_to_be_sent_is_news() -> None:
    rig = Rig()
    rig.stream()
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    (flight,) = rig.pump(10)
    rig.reply(flight, match=11, durable=11)
    assert not rig.made.news
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    rig.reply(flight, match=11, durable=11)
    assert rig.made.news, "there is more to send"


def test_peers_at_the_same_entry_are_sent_the_same_append_and_others_their_own() -> None:
    rig = Rig()
    sent: list[tuple[str, RaftMessage]] = []
    rig.made._send = lambda peer, message: sent.append((peer, message)) or True  # type: ignore[func-returns-value]
    rig.made.set_members(["n1", "n2", "n3"])
    for ask in range(2):
        rig.made.pump(0)
        for peer, probe in sent:
            upto = 10 if peer != "n3" or ask else 4
            answer = {"seq": probe.fields["seq"], "ok": True, "match": upto, "durable": upto}
            rig.made.reply(peer, {"term": 3, "hint_index": 0, "hint_term": 0, **answer})
        sent.clear()
    rig.made.peers["n3"].next = 9
    rig.log.append(EntryType.MESSAGES, 3, b"m", 0)
    rig.made.pump(0)
    (one, first), (other, second), (apart, third) = sent
    assert [one, other, apart] == ["n1", "n2", "n3"]
    assert first is second
    assert prevs([first, third]) == [(10, 1), (8, 3)]
    assert first.fields["seq"] != third.fields["seq"]
    # In the next round the log may be another, and the sequence tells it.
    sent.clear()
    rig.made.beat(0)
    assert len({message.fields["seq"] for _, message in sent}) == 1
    assert sent[0][1].fields["seq"] > third.fields["seq"]
    # Both are known to be the answers to a question of this moment.
    for peer in ("n1", "n2"):
        answer = {"seq": sent[0][1].fields["seq"], "ok": True, "match": 11, "durable": 11}
        assert rig.made.reply(peer, {"term": 3, "hint_index": 0, "hint_term": 0, **answer}) == rig.now
