"""Tests of pipeline/artefacts: what a member left behind is read as it stands, damage included."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.history.results import Verdict
from pipeline.history.rows import UNKNOWN
from pipeline.logs.member_files import Vote, encode_vote, read_artefact, read_vote
from pipeline.plain.check_log_derived import check_b11
from pipeline.plain.log_checks import LOG_CHECKS
from raft.core.votefile import VoteFile
from remoting.record import HEADS
from remoting.topics import RAFT_TOPIC
from runtime.crc import crc32
from store.errors import StoreError
from store.files.floorfile import FLOOR_NAME, VOTE_NAME
from store.files.lockfile import ABORT_NAME
from tests.planted.plant_stores import (
    BASE_MESSAGES,
    ENTRIES,
    GROUP,
    LOG_FILE_BYTES,
    PAIR,
    RAFT,
    TOPIC,
    Cluster,
    build,
    kill_before_sync,
)

SEED = 11


@pytest.fixture
def group(tmp_path: Path) -> Cluster:
    return build(tmp_path / "group", SEED, RAFT)


@pytest.fixture
def pair(tmp_path: Path) -> Cluster:
    return build(tmp_path / "pair", SEED, PAIR)


def patch(folder: Path, position: int, data: bytes) -> None:
    path = folder / "commitlog" / f"{position - position % LOG_FILE_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(position % LOG_FILE_BYTES)
        file.write(data)


def test_every_send_is_found_where_it_was_acknowledged(group: Cluster, pair: Cluster) -> None:
    for cluster in (group, pair):
        for artefact in cluster.artefacts():
            told = [(op.counter, op.topic, op.queue, op.offset, op.position, op.digest) for op in cluster.ops]
            found = [(m.counter, m.topic, m.queue, m.offset, m.position, m.digest) for m in artefact.messages]
            assert found == told
            assert not artefact.gaps
            assert not artefact.damage
            assert (artefact.unindexed, artefact.misindexed) == ([], [])


def test_entries_are_read_with_terms_and_the_records_that_they_cover(group: Cluster) -> None:
    artefact = read_artefact(group.folder("n1"))
    assert [entry.index for entry in artefact.entries] == list(range(1, ENTRIES + 1))
    assert [entry.term for entry in artefact.entries] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [m.index for m in artefact.messages[:BASE_MESSAGES]] == [UNKNOWN] * BASE_MESSAGES
    for entry in artefact.entries:
        covered = [m for m in artefact.messages if m.index == entry.index]
        assert len(covered) == entry.records
        assert all(entry.position < m.position < entry.end and m.term == entry.term for m in covered)
    assert all(entry.follows for entry in artefact.entries)
    assert artefact.end == artefact.entries[-1].end
    assert artefact.is_raft


def test_a_group_s_promises_and_configuration_are_read(group: Cluster) -> None:
    artefact = read_artefact(group.folder("n2"), "second")
    assert artefact.member == "second"
    assert [(c.index, c.members, c.voters) for c in artefact.configs] == [(1, ("n0", "n1", "n2"), ("n0", "n1", "n2"))]
    assert artefact.floor is not None
    assert (artefact.floor.index, artefact.floor.chain) == (ENTRIES, artefact.entries[-1].chain)
    assert artefact.vote is not None
    assert (artefact.vote.term, artefact.vote.voted_for) == (2, "n0")
    assert artefact.stamps == {"consumerOffset.json": ENTRIES}
    assert artefact.offsets == {(GROUP, TOPIC, 0): 3, (GROUP, TOPIC, 1): 2}
    assert artefact.offsets_before == {(GROUP, TOPIC, 0): 2, (GROUP, TOPIC, 1): 2}


def test_queues_hold_what_the_log_makes_of_them(group: Cluster) -> None:
    artefact = read_artefact(group.folder("n0"))
    for queue in (0, 1):
        expected = [(m.offset, m.position, m.size, m.tags_code) for m in artefact.messages if m.queue == queue]
        assert artefact.queues[TOPIC, queue] == expected
    assert artefact.queues[RAFT_TOPIC, 0] == [(e.index, e.position, e.head, e.term) for e in artefact.entries]


def test_zeros_between_entries_of_a_queue_are_told(pair: Cluster) -> None:
    folder = pair.folder("slave")
    path = folder / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(2 * 20)
        file.write(bytes(20))
    rows = read_artefact(folder).queues[TOPIC, 0]
    assert rows[2] == (2, 0, 0, 0)
    assert rows[3][1] > 0


def test_a_changed_byte_makes_a_gap_of_the_whole_entry_and_the_rest_is_read(group: Cluster) -> None:
    folder = group.folder("n0")
    whole = read_artefact(folder)
    entry = whole.entries[3]
    victim = next(m for m in whole.messages if m.index == entry.index)
    patch(folder, victim.position + 95, b"\xff\xff")
    found = read_artefact(folder)
    assert (entry.position, entry.end) in [(gap.start, gap.end) for gap in found.gaps]
    assert [e.index for e in found.entries] == [e.index for e in whole.entries if e.index != entry.index]
    assert found.messages == [m for m in whole.messages if m.index != entry.index]
    assert found.end == whole.end


def test_records_without_their_control_record_s_crc_are_no_entry(group: Cluster) -> None:
    folder = group.folder("n0")
    last = read_artefact(folder).entries[-1]
    victim = next(m for m in read_artefact(folder).messages if m.index == last.index)
    # The time of birth is in no body: only the entry's CRC covers it.
    patch(folder, victim.position + 47, b"\x01")
    found = read_artefact(folder)
    assert [(gap.start, gap.end) for gap in found.gaps] == [(last.position, last.end)]
    assert found.last == last.index - 1
    assert found.end == found.entries[-1].end


def test_zeros_in_the_log_are_told_as_empty(pair: Cluster) -> None:
    folder = pair.folder("master")
    row = read_artefact(folder).messages[5]
    patch(folder, row.position, bytes(row.size))
    (gap,) = read_artefact(folder).gaps
    assert (gap.start, gap.end, gap.empty) == (row.position, row.end, True)


SYNCED = ENTRIES - 3


@pytest.mark.parametrize("restored", ["zeros", "what stood there before"])
def test_a_killed_member_s_log_ends_where_what_was_never_synced_is_torn(group: Cluster, restored: str) -> None:
    folder = group.folder("n0")
    whole = read_artefact(folder)
    lost, kept = whole.entries[SYNCED], whole.entries[SYNCED + 1 :]
    before = bytes(lost.size)
    if restored != "zeros":
        # Another entry, as long as the one that took its place, and as whole: its chain alone is of another log.
        changed = bytearray(whole.log.read(lost.position, lost.end))
        end = changed.index(lost.chain.to_bytes(4, "big")) + 4
        changed[end - 4 : end] = (lost.chain ^ 1).to_bytes(4, "big")
        changed[8:12] = (crc32(changed[HEADS[0].size : end]) & 0x7FFFFFFF).to_bytes(4, "big")
        before = bytes(changed)
    patch(folder, lost.position, before)
    broken = read_artefact(folder)
    assert bool(broken.gaps) == (restored == "zeros")
    assert [entry.index for entry in broken.entries if not entry.follows][:1] == [SYNCED + (2 if broken.gaps else 1)]
    patch(folder, lost.position, whole.log.read(lost.position, lost.end))
    kill_before_sync(folder, SYNCED)
    patch(folder, lost.position, before)
    found = read_artefact(folder)
    assert found.may_be_torn
    assert kept, "something whole stands behind what is torn"
    assert [entry.index for entry in found.entries] == [entry.index for entry in whole.entries[:SYNCED]]
    assert found.messages == [row for row in whole.messages if row.position < lost.position]
    assert [(gap.start, gap.end, gap.empty) for gap in found.gaps] == [(lost.position, found.log.end, False)]
    assert (found.end, found.last) == (whole.entries[SYNCED - 1].end, SYNCED)
    judged = {check(group.replicas()).check: check(group.replicas()).verdict for check in LOG_CHECKS}
    assert Verdict.INVALID not in judged.values(), judged


@pytest.mark.parametrize("excuse", ["stopped in good order", "below the floor"])
def test_nothing_excuses_a_hole_in_what_was_synced(group: Cluster, excuse: str) -> None:
    folder = group.folder("n0")
    lost = read_artefact(folder).entries[SYNCED if excuse == "stopped in good order" else SYNCED - 1]
    kill_before_sync(folder, SYNCED)
    if excuse == "stopped in good order":
        (folder / ABORT_NAME).unlink()
    patch(folder, lost.position, bytes(lost.size))
    judged = {check(group.replicas()).check: check(group.replicas()).verdict for check in LOG_CHECKS}
    assert (judged["B3"], judged["B13"]) == (Verdict.INVALID, Verdict.INVALID)


def test_a_key_that_the_index_lost_is_named(pair: Cluster) -> None:
    folder = pair.folder("master")
    path = next((folder / "index").iterdir())
    # Header, 50 slots, the entry that is never used, then the first message's unique key.
    with path.open("r+b") as file:
        file.seek(40 + 50 * 4 + 20)
        file.write(b"\x00\x00\x00\x01")
    assert read_artefact(folder).unindexed == [(0, f"{0:032X}")]


def test_an_index_whose_entries_cannot_be_found_is_told(pair: Cluster) -> None:
    folder = pair.folder("master")
    path = next((folder / "index").iterdir())
    with path.open("r+b") as file:
        file.write(bytes(40 + 50 * 4 + 60)[:24] + (12345).to_bytes(8, "big"))
    found = read_artefact(folder)
    assert list(found.damage) == [f"index/{path.name}"]
    assert check_b11(replace(pair.replicas(), artefacts=[found])).verdict is Verdict.UNKNOWN


def test_damaged_vote_floor_and_offsets_are_told_and_nothing_else_suffers(group: Cluster) -> None:
    folder = group.folder("n1")
    (folder / VOTE_NAME).write_bytes(b"short")
    content = bytearray((folder / FLOOR_NAME).read_bytes())
    content[8] ^= 1
    content[4096 + 8] ^= 1
    (folder / FLOOR_NAME).write_bytes(content)
    (folder / "config" / "consumerOffset.json").write_bytes(b"{")
    found = read_artefact(folder)
    assert set(found.damage) == {VOTE_NAME, FLOOR_NAME, "consumerOffset.json"}
    assert found.vote is None
    assert found.floor is None
    assert found.last == ENTRIES


def test_the_vote_file_is_that_of_raft(tmp_path: Path) -> None:
    votes = VoteFile.open(tmp_path / "vote", has_log=False, new_id=lambda: b"0123456789abcdef")
    votes.save(7, "n2")
    content = (tmp_path / "vote").read_bytes()
    vote = Vote(7, "n2", b"0123456789abcdef".hex())
    assert read_vote(content) == vote
    assert encode_vote(vote) == content


@pytest.mark.parametrize("at", [0, 5, 30, 75])
def test_a_vote_file_with_a_changed_byte_is_refused(at: int) -> None:
    content = bytearray(encode_vote(Vote(7, "n2", "00" * 16)))
    content[at] ^= 1
    with pytest.raises(ValueError, match="CRC-32"):
        read_vote(bytes(content))


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store folder"):
        read_artefact(tmp_path)
