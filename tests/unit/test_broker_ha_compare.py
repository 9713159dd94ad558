"""R16: what a slave does about its master's log, sentence by sentence."""

from typing import Any

import pytest

from broker.master_slave import ha_compare
from broker.master_slave.ha_compare import LogVerdict, VerdictKind, compare, first_difference
from broker.settings.pair_keys import ASYNC_MASTER, SYNC_MASTER
from tests.parts.ha_logs import FILE_BYTES, INCARNATION, MadeLog, Pair, made, master_facts, own_facts


async def judged(own: MadeLog, master: MadeLog, of: dict[str, Any] | None = None, **of_master: Any) -> LogVerdict:
    return await compare(own_facts(own, **(of or {})), master_facts(master, **of_master), Pair(own, master))


def diverged(common: int, more_here: int, more_there: int) -> tuple[MadeLog, MadeLog, int]:
    """Two logs that agree in `common` records, and where they part."""
    own, master = made(common), made(common)
    border = own.end
    for number in range(more_here):
        own.add(b"here %d" % number, 1)
    for number in range(more_there):
        master.add(b"there %d" % number, 2)
    return own, master, border


async def test_a_prefix_of_the_masters_log_goes_on_from_its_end() -> None:
    own, master = made(5), made(50)
    verdict = await judged(own, master)
    assert (verdict.kind, verdict.position) == (VerdictKind.GO_ON, own.end)
    assert (await judged(made(50), master)).kind is VerdictKind.GO_ON


async def test_a_prefix_that_ends_within_a_record_goes_on_there() -> None:
    own, master = made(5), made(6)
    own.break_off(20)
    verdict = await judged(own, master, role=SYNC_MASTER)
    assert (verdict.kind, verdict.position) == (VerdictKind.GO_ON, own.end)


async def test_an_empty_log_asks_for_everything() -> None:
    pair = Pair(MadeLog(), made(5))
    verdict = await compare(own_facts(pair.own), master_facts(pair.master), pair)
    assert (verdict.kind, verdict.position, pair.asked) == (VerdictKind.GO_ON, 0, [])
    # RocketMQ takes 0 for "the last file", and any other position for that position.
    assert (await judged(MadeLog(), made(5), incarnation="", begin=2048, end=4096)).position == 2048


async def test_the_last_common_file_is_compared_and_not_all_of_them() -> None:
    own, master = made(100), made(120)
    pair = Pair(own, master)
    verdict = await compare(own_facts(own), master_facts(master), pair)
    assert verdict.kind is VerdictKind.GO_ON
    last = (own.end - 1) // FILE_BYTES * FILE_BYTES
    # And of the one before what the last one may be too short for.
    assert min(begin for begin, _ in pair.asked) == last - FILE_BYTES
    covered = [at for begin, end in pair.asked for at in range(begin, end)]
    assert sorted(covered) == list(range(last - FILE_BYTES, own.end))


async def test_what_came_from_this_start_of_the_master_is_not_compared_again() -> None:
    own, master = made(20), made(30)
    pair = Pair(own, master)
    verdict = await compare(own_facts(own, agreed=INCARNATION), master_facts(master), pair)
    assert (verdict.kind, verdict.position, pair.asked) == (VerdictKind.GO_ON, own.end, [])
    await compare(own_facts(own, agreed="another start"), master_facts(master), pair)
    assert pair.asked


async def test_more_than_this_start_of_the_master_has_is_compared_all_the_same() -> None:
    own, master, border = diverged(20, 2, 0)
    verdict = await judged(own, master, {"agreed": INCARNATION})
    assert (verdict.kind, verdict.position) == (VerdictKind.CUT, border)


async def test_R16_a_longer_slave_of_an_async_master_is_cut_where_the_master_ends() -> None:
    own, master, border = diverged(20, 3, 0)
    verdict = await judged(own, master)
    assert (verdict.kind, verdict.position, verdict.person) == (VerdictKind.CUT, border, False)
    assert verdict.lost == own.end - border
    assert str(border) in verdict.why


async def test_R16_a_different_slave_of_an_async_master_is_cut_at_the_last_common_record() -> None:
    for common, here, there in ((20, 3, 3), (20, 1, 40), (20, 40, 3), (20, 40, 40), (3, 90, 90), (1, 1, 1)):
        own, master, border = diverged(common, here, there)
        verdict = await judged(own, master)
        assert (verdict.kind, verdict.position, verdict.person) == (VerdictKind.CUT, border, False)


async def test_R16_a_longer_or_different_slave_of_a_sync_master_waits_for_a_person() -> None:
    for common, here, there in ((20, 3, 0), (20, 3, 3), (3, 90, 2)):
        own, master, border = diverged(common, here, there)
        verdict = await judged(own, master, role=SYNC_MASTER)
        assert verdict.person
        assert verdict.position == border
        assert "SYNC_MASTER" in verdict.why


async def test_R16_what_a_sync_ack_may_cover_is_not_cut_for_an_async_master_either() -> None:
    own, master, border = diverged(20, 3, 3)
    assert (await judged(own, master, {"covered": border + 1})).person
    assert str(border + 1) in (await judged(own, master, {"covered": border + 1})).why
    assert not (await judged(own, master, {"covered": border})).person


async def test_R16_a_tail_that_is_known_to_be_unacknowledged_needs_nobodys_consent() -> None:
    own, master, border = diverged(20, 3, 3)
    free = {"covered": border, "free_from": border}
    assert not (await judged(own, master, free, role=SYNC_MASTER)).person
    above = {"covered": border + 1, "free_from": border + 1}
    assert (await judged(own, master, above, role=SYNC_MASTER)).person
    assert (await judged(own, master, above, role=ASYNC_MASTER)).person


async def test_R16_part_of_a_record_was_never_acknowledged_and_is_cut_for_any_master() -> None:
    own, master, border = diverged(20, 1, 0)
    own.break_off(30)
    verdict = await judged(own, master, {"covered": own.end}, role=SYNC_MASTER)
    assert (verdict.kind, verdict.position, verdict.person) == (VerdictKind.CUT, border, False)


async def test_R16_a_log_that_is_certainly_behind_retention_is_copied_anew() -> None:
    own, master = made(30), made(100)
    master.begin = 4 * FILE_BYTES
    assert own.end < master.begin
    same_log = {"log_id": "L"}
    verdict = await judged(own, master, same_log, **same_log)
    assert (verdict.kind, verdict.person, verdict.lost) == (VerdictKind.ANEW, False, own.end)
    assert not (await judged(own, master, {"agreed": INCARNATION})).person
    assert (await judged(own, master, same_log, role=SYNC_MASTER, **same_log)).person
    assert (await judged(own, master, {"covered": 1, **same_log}, **same_log)).person
    # And where it ends exactly there: no byte proves that both are of one kind.
    own.add(bytes(10))
    master.begin = FILE_BYTES * 2
    own.break_off(own.end - master.begin)
    verdict = await judged(own, master, same_log, **same_log)
    assert (verdict.kind, verdict.person) == (VerdictKind.ANEW, False)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ({}, {}),
        ({"log_id": "L"}, {}),
        ({}, {"log_id": "L"}),
        ({"log_id": "L"}, {"log_id": "M"}),
        ({"agreed": "another start"}, {}),
        ({"log_id": "L"}, {"log_id": "L", "incarnation": ""}),
        # A log of which nobody was ever told that it is kept is a log all the same.
        ({"free_from": 0}, {}),
    ],
)
async def test_R16_a_log_that_may_not_be_the_masters_waits_behind_retention(
    here: dict[str, Any], there: dict[str, Any]
) -> None:
    own, master = made(30), made(100)
    master.begin = 4 * FILE_BYTES
    verdict = await judged(own, master, here, **there)
    assert (verdict.kind, verdict.person, verdict.lost) == (VerdictKind.ANEW, True, own.end)


# Records of the master that lost its store, or is a stranger, since then; and the log's name there.
EMPTIED = [(count, log_id) for count in (0, 1, 5, 40, 200) for log_id in ("", "L", "another")]


@pytest.mark.parametrize(("count", "log_id"), EMPTIED)
@pytest.mark.parametrize("role", [ASYNC_MASTER, SYNC_MASTER])
async def test_R16_nothing_in_common_waits_for_a_person_whatever_the_master_has_by_now(
    role: str, count: int, log_id: str
) -> None:
    own, master, _ = diverged(0, 40, count)
    verdict = await judged(own, master, {"log_id": "L"}, role=role, log_id=log_id)
    assert (verdict.kind, verdict.person, verdict.position) == (VerdictKind.ANEW, True, 0)
    assert "the only copy" in verdict.why
    # Whoever forgot the begin of it too: what is there differs.
    if master.end > FILE_BYTES:
        master.begin = FILE_BYTES
        verdict = await judged(own, master, {"log_id": "L"}, role=role, log_id=log_id)
        assert verdict.person is (own.end > master.begin or log_id != "L" or role == SYNC_MASTER)


async def test_R16_what_lies_before_the_first_common_file_cannot_be_known_to_be_the_same() -> None:
    own, master, _ = diverged(5, 60, 60)
    master.begin = 3 * FILE_BYTES
    for log_id in ("", "L"):
        verdict = await judged(own, master, {"log_id": "L"}, log_id=log_id)
        assert (verdict.kind, verdict.person) == (VerdictKind.ANEW, True)


async def test_R16_planted_beginning_anew_when_nothing_is_in_common_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # As it was: only a master without a single byte was taken for one that had lost its store.
    monkeypatch.setattr(ha_compare, "behind_retention", lambda _own, _master: True)
    for count, log_id in EMPTIED[3:]:
        with pytest.raises(AssertionError):
            await test_R16_nothing_in_common_waits_for_a_person_whatever_the_master_has_by_now(
                ASYNC_MASTER, count, log_id
            )


async def test_R16_a_master_that_lost_its_store_empties_no_slave() -> None:
    for role in (ASYNC_MASTER, SYNC_MASTER):
        verdict = await judged(made(5), MadeLog(), role=role)
        assert verdict.person
        assert verdict.kind is VerdictKind.ANEW
        assert "empty" in verdict.why
    assert (await judged(MadeLog(), MadeLog())).kind is VerdictKind.GO_ON


async def test_an_empty_log_that_does_not_begin_at_0_goes_on_only_where_the_master_has_bytes() -> None:
    own = MadeLog(2 * FILE_BYTES, bytearray(2 * FILE_BYTES), [2 * FILE_BYTES])
    master = made(100)
    verdict = await judged(own, master)
    assert (verdict.kind, verdict.position) == (VerdictKind.GO_ON, own.end)
    master.begin = 3 * FILE_BYTES
    verdict = await judged(own, master, role=SYNC_MASTER)
    assert (verdict.kind, verdict.person, verdict.lost) == (VerdictKind.ANEW, False, 0)


@pytest.mark.parametrize(
    ("of_own", "of_master", "words"),
    [
        ({}, {"role": "SLAVE"}, "no master"),
        ({}, {"fenced": "n2 was promoted"}, "n2 was promoted"),
        ({"epoch": 2}, {"epoch": 1}, "deposed"),
        ({}, {"file_bytes": 4096}, "mappedFileSizeCommitLog is 4096"),
    ],
)
async def test_R16_a_master_that_is_not_to_be_followed(
    of_own: dict[str, Any], of_master: dict[str, Any], words: str
) -> None:
    for own in (made(3), MadeLog()):
        verdict = await judged(own, made(5), of_own, **of_master)
        assert verdict.kind is VerdictKind.REFUSE
        assert words in verdict.why


async def test_a_promoted_master_with_a_higher_epoch_is_followed() -> None:
    assert (await judged(made(3), made(5), {"epoch": 1}, epoch=2)).kind is VerdictKind.GO_ON


async def test_R16_a_rocketmq_master_gives_no_digests_only_ends_are_compared() -> None:
    own, master, border = diverged(20, 3, 0)
    pair = Pair(own, master)
    verdict = await compare(own_facts(own), master_facts(master, incarnation=""), pair)
    # Nothing proves what it should be cut for.
    assert (verdict.kind, verdict.position, verdict.person) == (VerdictKind.CUT, border, True)
    assert pair.asked == []
    assert (await judged(own, master, incarnation="", role=SYNC_MASTER)).person
    assert (await judged(own, master, {"covered": own.end}, incarnation="")).person
    assert (await judged(made(3), made(5), incarnation="")).kind is VerdictKind.GO_ON


async def test_a_rocketmq_master_whose_end_lies_within_a_record_here_is_cut_before_it() -> None:
    own = made(20)
    border = own.borders[-2]
    verdict = await judged(own, made(0), incarnation="", begin=0, end=own.end - 5)
    assert (verdict.kind, verdict.position) == (VerdictKind.CUT, border)
    assert (await judged(own, made(0), incarnation="", begin=0, end=50)).kind is VerdictKind.ANEW


async def test_a_rocketmq_master_that_tells_nothing_is_followed_as_rocketmq_does() -> None:
    verdict = await judged(made(20), MadeLog(), incarnation="", end=None, file_bytes=None)
    assert (verdict.kind, verdict.position) == (VerdictKind.GO_ON, made(20).end)
    behind = await judged(made(20), made(0), incarnation="", begin=8 * FILE_BYTES, end=9 * FILE_BYTES)
    assert (behind.kind, behind.person) == (VerdictKind.ANEW, True)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000])
async def test_the_first_difference_is_found_to_the_byte(size: int) -> None:
    one = MadeLog(0, bytearray(size))
    for at in {0, 1, size // 2, size - 1} - {size}:
        other = one.copy()
        other.data[at] = 1
        other.data[size - 1] = 2
        assert await first_difference(0, size, Pair(one, other)) == min(at, size - 1)
    assert await first_difference(0, size, Pair(one, one.copy())) is None
