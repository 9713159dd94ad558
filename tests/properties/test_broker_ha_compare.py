"""R16 against a twin that looks at every byte: where the cut is, what goes on, and who must agree."""

import asyncio
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from broker.master_slave.ha_compare import LogVerdict, MasterLog, OwnLog, VerdictKind, compare
from broker.settings.pair_keys import ASYNC_MASTER, SYNC_MASTER
from tests.parts.ha_logs import FILE_BYTES, MadeLog, Pair, master_facts, own_facts

SIZES = st.lists(st.integers(0, 900), max_size=12)


@dataclass
class Case:
    own: MadeLog
    master: MadeLog
    own_facts: OwnLog
    master_facts: MasterLog


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Two logs that were one until they parted: from then on each record has another time, also where sizes agree."""
    own = MadeLog()
    for number, size in enumerate(draw(SIZES)):
        own.add(bytes([number]) * size, number)
    master = own.copy()
    here = draw(SIZES)
    there = draw(st.one_of(st.just(here), SIZES))
    for size in here:
        own.add(bytes(size), 1000)
    for size in there:
        master.add(bytes(size), 2000)
    own.break_off(draw(st.integers(0, min(200, own.end))))
    for log in (own, master):
        kept = draw(st.integers(0, max(0, log.end - 1) // FILE_BYTES)) * FILE_BYTES
        log.begin = kept
    return Case(
        own,
        master,
        own_facts(
            own,
            covered=draw(st.one_of(st.just(0), st.integers(0, own.end + 10))),
            free_from=draw(st.one_of(st.none(), st.integers(0, own.end))),
        ),
        master_facts(master, role=draw(st.sampled_from([ASYNC_MASTER, SYNC_MASTER]))),
    )


def common_upto(case: Case) -> int | None:
    """Return the end of what both have, byte by byte; None: nothing that is a record in both."""
    own, master = case.own, case.master
    low, high = max(own.begin, master.begin), min(own.end, master.end)
    if low >= high:
        return None
    at = low
    while at < high and own.data[at] == master.data[at]:
        at += 1
    if at == own.end:
        return at
    border = max(border for border in own.borders if border <= at)
    return border if border > low else None


def run(case: Case) -> LogVerdict:
    return asyncio.run(compare(case.own_facts, case.master_facts, Pair(case.own, case.master)))


@given(cases())
def test_R16_the_cut_is_at_the_exact_last_common_record_border(case: Case) -> None:
    verdict = run(case)
    if case.own.end == 0:
        assert (verdict.kind, verdict.position) == (VerdictKind.GO_ON, 0)
        return
    common = common_upto(case)
    if common is None:
        assert verdict.kind is VerdictKind.ANEW
        assert verdict.lost == case.own.end - case.own.begin
        return
    assert verdict.position == common
    assert verdict.kind is (VerdictKind.GO_ON if common == case.own.end else VerdictKind.CUT)
    if verdict.kind is VerdictKind.CUT:
        assert common in case.own.borders
        assert common in case.master.borders
        assert verdict.lost == case.own.end - common


@given(cases())
def test_R16_never_goes_on_where_a_byte_differs_nor_beyond_the_masters_end(case: Case) -> None:
    verdict = run(case)
    if verdict.kind is not VerdictKind.GO_ON or case.own.end == 0:
        return
    low = max(case.own.begin, case.master.begin)
    assert verdict.position == case.own.end <= case.master.end
    assert low < case.own.end
    assert case.own.data[low:] == case.master.data[low : case.own.end]


@given(cases())
def test_R16_nothing_that_a_sync_ack_may_cover_is_cut_without_a_person(case: Case) -> None:
    verdict = run(case)
    if verdict.kind not in {VerdictKind.CUT, VerdictKind.ANEW} or verdict.person:
        return
    own, keep = case.own_facts, verdict.position
    for border, end in zip(case.own.borders, case.own.borders[1:], strict=False):
        if border >= keep and border >= own.begin:
            # A whole record leaves the log: nobody can have been told that it is safe.
            freed = own.free_from is not None and border >= own.free_from
            assert freed or (case.master_facts.role == ASYNC_MASTER and end > own.covered)
            assert case.master.end > case.master.begin


@given(cases())
def test_R16_a_person_is_asked_only_when_a_whole_record_would_leave_the_log(case: Case) -> None:
    verdict = run(case)
    if verdict.person:
        assert verdict.kind in {VerdictKind.CUT, VerdictKind.ANEW}
        assert any(border > verdict.position for border in case.own.borders)
