"""`raftmq bench latency --explain`: a send is followed through the marks of three brokers; the seams are there."""

import pytest

from chaos.host.processes import ProcessError
from raftmq.bench import traced_broker as traced
from raftmq.bench.explain import STAGES, MemberMarks, SendNote, explained, follow
from raftmq.bench.traced_broker import SEAMS, Seam, SeamMissing, TracedMark, TracedTransport, found

US = 1000


def marks(begin: int, index: int, opaque: int, *, leader_disk: int = 60) -> dict[str, list[TracedMark]]:
    """One send's marks: n0 leads, n2 answers first; times in microseconds after `begin`."""
    leader: list[TracedMark] = [
        (5, traced.READ, traced.CLIENT, 0), (15, traced.PROPOSED, "", 0), (20, traced.APPENDED, "", index),
        (22, traced.SYNC_BEGUN, "", 0), (30, traced.WRITTEN, "n1", 0), (31, traced.WRITTEN, "n2", 0),
        (20 + leader_disk - 1, traced.SYNCED, "", 0), (20 + leader_disk, traced.DURABLE, "", index),
        (110, traced.READ, "n2", 0), (200, traced.COMMITTED, "", index), (205, traced.ANSWERED, "", opaque),
        (210, traced.WRITTEN, traced.CLIENT, 0), (300, traced.READ, "n1", 0),
    ]  # fmt: skip
    quick: list[TracedMark] = [
        # A heartbeat before, which is not of this send.
        (1, traced.READ, "n0", 0), (2, traced.WRITTEN, "n0", 0), (3, traced.DURABLE, "", index - 1),
        (40, traced.READ, "n0", 0), (45, traced.SYNC_BEGUN, "", 0), (90, traced.SYNCED, "", 0),
        (92, traced.DURABLE, "", index), (95, traced.WRITTEN, "n0", 0),
    ]  # fmt: skip
    slow: list[TracedMark] = [
        (41, traced.READ, "n0", 0), (46, traced.SYNC_BEGUN, "", 0), (280, traced.SYNCED, "", 0),
        (282, traced.DURABLE, "", index), (290, traced.WRITTEN, "n0", 0),
    ]  # fmt: skip
    return {
        name: [(begin + at * US, *rest) for at, *rest in told]  # type: ignore[misc]
        for name, told in (("n0", leader), ("n1", slow), ("n2", quick))
    }


def members(*several: dict[str, list[TracedMark]]) -> dict[str, MemberMarks]:
    return {name: MemberMarks([mark for told in several for mark in told[name]]) for name in several[0]}


def test_a_send_is_followed_by_way_of_the_first_answer() -> None:
    told = follow(SendNote(0, 215 * US, 7), "n0", members(marks(0, 3, 7)))
    assert told is not None
    stages, leader_disk = told
    assert [stage // US for stage in stages] == [5, 10, 5, 11, 9, 5, 45, 5, 15, 0, 90, 5, 5, 5]
    assert len(stages) == len(STAGES)
    assert sum(stages) == 215 * US
    assert leader_disk == 60 * US


def test_what_the_leaders_own_disk_takes_longer_is_a_stage() -> None:
    told = follow(SendNote(0, 215 * US, 7), "n0", members(marks(0, 3, 7, leader_disk=130)))
    assert told is not None
    of = dict(zip([stage.name for stage in STAGES], told[0], strict=True))
    assert (of["leader: more of its own disk"] // US, of["leader: answer to commit"] // US) == (40, 50)


def test_stages_sum_up_to_the_whole_over_many_sends() -> None:
    sends = [SendNote(number * 1000 * US, (number * 1000 + 215) * US, number) for number in range(20)]
    told = members(*(marks(send.left, send.opaque + 1, send.opaque, leader_disk=60 + send.opaque) for send in sends))
    found = explained(sends, "n0", told, 200.0)
    assert (found.sends, found.followed, found.waited_for_leader) == (20, 20, 0.0)
    assert (found.whole.p50_us, found.whole.share) == (215.0, 1.0)
    assert sum(stage.p50_us for stage in found.stages) == 215.0
    assert sum(stage.share for stage in found.stages) == pytest.approx(1, abs=0.001)
    assert sum(kind.share for kind in found.kinds) == pytest.approx(1, abs=0.001)
    assert {kind.kind: kind.p50_us for kind in found.kinds} == {"work": 136.0, "disk": 45.0, "way": 34.0}
    assert (found.leader_disk.p50_us, found.leader_disk.p99_us) == (69.5, 79.0)


@pytest.mark.parametrize("kind", [traced.PROPOSED, traced.SYNCED, traced.WRITTEN, traced.ANSWERED])
def test_a_way_that_has_changed_is_told_by_the_mark_that_is_missing(kind: str) -> None:
    lacking = {name: [mark for mark in told if mark[1] != kind] for name, told in marks(0, 3, 7).items()}
    with pytest.raises(ProcessError, match=f'0 of 1 sends could be followed .there is no mark "{kind}"'):
        explained([SendNote(0, 215 * US, 7)], "n0", members(lacking), 200.0)


def test_an_answer_to_another_send_is_not_this_ones() -> None:
    assert follow(SendNote(0, 215 * US, 8), "n0", members(marks(0, 3, 7))) is None
    with pytest.raises(ProcessError, match="not in the order of the way"):
        explained([SendNote(0, 215 * US, 8)], "n0", members(marks(0, 3, 7)), 200.0)


@pytest.mark.parametrize("seam", SEAMS, ids=str)
def test_every_seam_is_there(seam: Seam) -> None:
    owner, method = found(seam)
    assert callable(getattr(owner, method))


@pytest.mark.parametrize(
    "seam",
    [
        Seam("raft.core.node", "RaftNode", ("suggest",)),
        Seam("raft.core.node", "Knot", ("propose",)),
        Seam("raft.core.knot", "RaftNode", ("propose",)),
        # What a class has of asyncio's own is nothing that anybody calls.
        Seam("raft.network.link", "Link", ("pause_writing",)),
    ],
    ids=str,
)
def test_a_seam_that_is_gone_is_named(seam: Seam) -> None:
    with pytest.raises(SeamMissing, match=f"{seam.owner}.{seam.methods[0]} in {seam.module} any more"):
        found(seam)


def test_a_traced_transport_is_the_other_one_but_for_its_writes() -> None:
    done: list[object] = []

    class Plain:
        def write(self, data: bytes) -> None:
            done.append(data)

        def writelines(self, pieces: list[bytes]) -> None:
            done.append(pieces)

        def is_closing(self) -> bool:
            return False

    one = TracedTransport(Plain(), lambda: done.append("noted"))  # type: ignore[arg-type]
    one.write(b"a")
    one.writelines([b"b", b"c"])
    assert done == ["noted", b"a", "noted", [b"b", b"c"]]
    assert one.is_closing() is False
    with pytest.raises(AttributeError):
        one.fly()
