"""The judge of application runs over forged histories: each anomaly is found, and missing evidence is no verdict."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from chaos.apps.faults import LEADER_KILLED
from chaos.apps.history import AppCall, AppFault, AppHistory, Commit, Ending, Send, take_event
from chaos.apps.judge import EXIT_CODES, judge
from chaos.apps.judge_duplicates import NOTHING, REFUSED, STORED_TWICE
from chaos.apps.judge_moving import LOCK_LEFT_S, RECOVERS_S, excused_of
from chaos.apps.names import LITE, ORDERED, ORDERLY, PLAIN, WORKERS
from chaos.apps.plan import CANCELLED, CLOSED, KILLED
from chaos.apps.producing import FAILED, UNKNOWN
from pipeline.history.results import Verdict
from tests.parts.chaos_apps_histories import PLAN, delivery, drop, event, good, of, queue_of

CAST = "apps_broadcast/cast0"


def test_a_good_history_is_valid() -> None:
    results = judge(good())
    assert results.verdict is Verdict.VALID, [one for one in results.findings if one.verdict is not Verdict.VALID]
    assert EXIT_CODES[results.verdict] == 0
    assert results.figures["messages"] == {"acked": 80, "oneway": 1}


def one_is_lost(history: AppHistory) -> None:
    drop(history, [of(history, WORKERS)[-1]])


def one_is_refused_and_never_comes_again(history: AppHistory) -> None:
    last = of(history, WORKERS)[-1]
    history.deliveries[history.deliveries.index(last)] = replace(last, ok=False)


def one_was_begun_by_who_was_killed(history: AppHistory) -> None:
    last = of(history, WORKERS)[-1]
    history.deliveries[history.deliveries.index(last)] = replace(last, ok=False, until=None)


def one_misses_a_broadcast(history: AppHistory) -> None:
    drop(history, [of(history, CAST)[-1]])


def one_that_was_sent_by_the_dead_is_skipped(history: AppHistory) -> None:
    """Nobody was told of it, but it stands in the queue between others."""
    one = of(history, LITE)[5]
    drop(history, [one])
    history.sends = [send for send in history.sends if send.ids != one.ids]


def a_failed_one_comes(history: AppHistory) -> None:
    history.sends.append(Send("send-1", PLAIN, ("send-1:99",), FAILED))
    history.deliveries.append(delivery("push0-1", WORKERS, 30.0, queue_of(PLAIN, 0), 10, "send-1:99"))


def a_key_goes_back(history: AppHistory) -> None:
    first, second = [one for one in of(history, ORDERLY) if one.queue == queue_of(ORDERED, 0)][:2]
    here, there = history.deliveries.index(first), history.deliveries.index(second)
    history.deliveries[here] = replace(first, ids=second.ids)
    history.deliveries[there] = replace(second, ids=first.ids)


def a_queue_goes_back(history: AppHistory) -> None:
    """Of different keys, so that no key does."""
    first, second = [one for one in of(history, ORDERLY) if one.queue == queue_of(ORDERED, 0)][:2]
    here, there = history.deliveries.index(first), history.deliveries.index(second)
    history.deliveries[here] = replace(first, offsets=second.offsets)
    history.deliveries[there] = replace(second, offsets=first.offsets)


def two_handlers_are_busy(history: AppHistory) -> None:
    first = of(history, ORDERLY)[0]
    history.deliveries[history.deliveries.index(first)] = replace(first, app="orderly1-1", until=first.at + 1.0)


def one_is_busy_until_it_is_killed(history: AppHistory) -> None:
    first = of(history, ORDERLY)[0]
    history.deliveries[history.deliveries.index(first)] = replace(first, app="orderly0-9", until=None)
    history.events.append(event(11.0, KILLED, "orderly0-9", gone=first.at + 1.0))
    history.sends = [send for send in history.sends if send.ids != first.ids]


def a_poll_resumes_too_early(history: AppHistory) -> None:
    one = next(one for one in of(history, LITE) if one.app == "lite0-2")
    history.deliveries[history.deliveries.index(one)] = replace(one, offsets=(3,))


def a_poll_resumes_too_late(history: AppHistory) -> None:
    one = next(one for one in of(history, LITE) if one.app == "lite0-2")
    history.deliveries[history.deliveries.index(one)] = replace(one, offsets=(12,))
    # Somebody had those in between, so that nothing was skipped in the end.
    history.deliveries += [
        delivery("lite0-1", LITE, 22.0, one.queue, offset, f"send-1:{900 + offset}") for offset in (10, 11)
    ]


def one_queue_stands_still(history: AppHistory) -> None:
    """All of its rest comes in the end, 30 s later."""
    for one in of(history, WORKERS)[20:]:
        if one.queue == queue_of(PLAIN, 1):
            history.deliveries[history.deliveries.index(one)] = replace(one, at=one.at + 30, until=one.at + 30)


def one_queue_in_order_stands_still(history: AppHistory) -> None:
    for one in of(history, ORDERLY)[20:]:
        if one.queue == queue_of(ORDERED, 1):
            history.deliveries[history.deliveries.index(one)] = replace(one, at=one.at + 12, until=one.at + 12)


def a_send_is_late(history: AppHistory) -> None:
    history.calls.append(AppCall("send-1", "send", 0.0, 4.0, 3.0))


def a_close_is_late(history: AppHistory) -> None:
    history.calls.append(AppCall("push0-1", "close", 0.0, 12.9, 12.0, stalled=0.1))


def a_task_is_left(history: AppHistory) -> None:
    history.endings.append(Ending("push0-1", 9.0, True, tasks=("consumer g:commit",)))


def a_connection_is_left(history: AppHistory) -> None:
    history.endings.append(Ending("push0-1", 9.0, True, connections=("0100007F:1>0100007F:2",)))


def a_thread_is_left(history: AppHistory) -> None:
    history.endings.append(Ending("push0-1", 9.0, True, threads=("raftmq",)))


def one_crashes(history: AppHistory) -> None:
    history.events.append(event(9.0, "ended", "push0-1", code=1))


def one_is_killed_by_nobody(history: AppHistory) -> None:
    history.events.append(event(9.0, "ended", "push0-1", code=-9))


def one_does_not_end(history: AppHistory) -> None:
    history.events.append(event(9.0, "hung", "push0-1", ordered=CLOSED))


def one_ends_by_itself(history: AppHistory) -> None:
    history.endings.append(Ending("lite0-1", 9.0, True, error="ClientClosed: closed"))
    history.events.append(event(9.0, "ended", "lite0-1", code=3))


def a_loop_complains(history: AppHistory) -> None:
    history.complaints.append(("push0-1", "Task exception was never retrieved"))


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        (one_is_lost, "L-lost"),
        (one_is_refused_and_never_comes_again, "L-lost"),
        (one_was_begun_by_who_was_killed, "L-lost"),
        (one_misses_a_broadcast, "L-lost"),
        (one_that_was_sent_by_the_dead_is_skipped, "L-skipped"),
        (a_failed_one_comes, "L-ghost"),
        (a_key_goes_back, "O-inversion"),
        (a_queue_goes_back, "O-inversion"),
        (two_handlers_are_busy, "O-together"),
        (one_is_busy_until_it_is_killed, "O-together"),
        (a_poll_resumes_too_early, "P-resumed"),
        (a_poll_resumes_too_late, "P-resumed"),
        (one_queue_stands_still, "M-moves"),
        (one_queue_in_order_stands_still, "M-moves"),
        (a_send_is_late, "C-late"),
        (a_close_is_late, "C-late"),
        (a_task_is_left, "E-left"),
        (a_connection_is_left, "E-left"),
        (a_thread_is_left, "E-left"),
        (one_crashes, "E-ended"),
        (one_is_killed_by_nobody, "E-ended"),
        (one_does_not_end, "E-ended"),
        (one_ends_by_itself, "E-ended"),
        (a_loop_complains, "E-ended"),
    ],
)
def test_each_anomaly_is_found_by_its_check_alone(spoil: Callable[[AppHistory], None], check: str) -> None:
    history = good()
    spoil(history)
    history.deliveries.sort(key=lambda one: one.at)
    results = judge(history)
    assert [one.check for one in results.findings if one.verdict is Verdict.INVALID] == [check]
    assert EXIT_CODES[results.verdict] == 1


@pytest.mark.parametrize(
    ("fault", "ended", "gone", "wanted"),
    [
        # It stands still from 12 s on, and goes on at 24 s.
        ("kill-leader", 12.0, None, Verdict.VALID),
        ("kill-leader", math.inf, None, Verdict.VALID),
        ("kill-namesrv", 12.0, None, Verdict.VALID),
        ("kill-namesrv", 8.0, 7.95, Verdict.INVALID),
        ("kill-leader", 8.0, None, Verdict.INVALID),
        # Who held the queue may be one who was killed when nobody heard of it; and not one who was killed before.
        ("kill-leader", 8.0, 7.95, Verdict.VALID),
        ("kill-leader", 8.0, 5.0, Verdict.INVALID),
    ],
)
def test_a_fault_excuses_a_silence_and_longer_where_a_lock_may_be_left(
    fault: str, ended: float, gone: float | None, wanted: Verdict
) -> None:
    history = good()
    one_queue_in_order_stands_still(history)
    history.deliveries.sort(key=lambda one: one.at)
    history.faults.append(AppFault(fault, min(ended - 0.1, 11.9), ended))
    if gone is not None:
        history.events.append(event(gone, KILLED, "orderly0-7", gone=gone + 0.01))
        history.events.append(event(gone + 0.02, "ended", "orderly0-7", code=-9, ordered=KILLED))
    assert judge(history).verdict is wanted


def test_what_a_leader_finds_the_next_one_counts_anew() -> None:
    history = good()
    history.events.append(event(10.0, KILLED, "orderly0-7", gone=10.01))
    history.events.append(event(10.1, "ended", "orderly0-7", code=-9, ordered=KILLED))
    for at in (10.0, 40.0, 60.0, 100.0):
        history.faults.append(AppFault("kill-leader", at, at + 1))
    until = [(end - at) / 1e9 for at, end in excused_of(history, ordered=True)]
    assert until == [60 + 1 + LOCK_LEFT_S - 10, 1 + RECOVERS_S]


def test_faults_are_read_from_before_they_come_until_they_are_over() -> None:
    history = AppHistory(PLAN)
    take_event(history, {"e": "planned", "at": 1.0, "fault": "kill-leader"})
    assert history.faults == [AppFault("kill-leader", 1.0, math.inf)]
    take_event(history, {"e": "fault", "at": 1.2, "kind": LEADER_KILLED})
    take_event(history, {"e": "healed", "at": 4.0, "fault": "kill-leader", "kind": LEADER_KILLED})
    assert history.faults == [AppFault("kill-leader", 1.0, 4.0)]
    assert [one.kind for one in history.events] == [LEADER_KILLED]


def it_was_ended(history: AppHistory) -> None:
    history.over = False


def nothing_befell_the_cluster(history: AppHistory) -> None:
    history.events = [one for one in history.events if one.app]


def nobody_was_cancelled(history: AppHistory) -> None:
    history.events = [one for one in history.events if CANCELLED not in {one.kind, one.ordered}]


def nothing_was_planned(history: AppHistory) -> None:
    history.plan = replace(history.plan, faults=())


def little_was_acknowledged(history: AppHistory) -> None:
    history.plan = replace(history.plan, seconds=600.0)


def a_producer_was_silent(history: AppHistory) -> None:
    history.sends = [send for send in history.sends if send.app != "oneway-1"]


def a_group_consumed_nothing(history: AppHistory) -> None:
    drop(history, of(history, ORDERLY))
    history.sends = [send for send in history.sends if send.topic != ORDERED]


def nobody_resumed(history: AppHistory) -> None:
    drop(history, [one for one in of(history, LITE) if one.app == "lite0-2"])


def no_end_was_seen(history: AppHistory) -> None:
    history.endings.clear()
    history.events = [one for one in history.events if one.kind != "ended"]


def it_was_ended_before_all_had_come(history: AppHistory) -> None:
    history.over = False
    one_is_lost(history)
    one_that_was_sent_by_the_dead_is_skipped(history)


@pytest.mark.parametrize(
    "spoil",
    [
        it_was_ended,
        it_was_ended_before_all_had_come,
        nothing_befell_the_cluster,
        nobody_was_cancelled,
        nothing_was_planned,
        little_was_acknowledged,
        a_producer_was_silent,
        a_group_consumed_nothing,
        nobody_resumed,
        no_end_was_seen,
    ],
)
def test_without_evidence_there_is_no_verdict(spoil: Callable[[AppHistory], None]) -> None:
    history = good()
    spoil(history)
    results = judge(history)
    assert results.verdict is Verdict.UNKNOWN, [one for one in results.findings if one.verdict is Verdict.INVALID]
    assert EXIT_CODES[results.verdict] == 254


def test_what_is_unknown_may_come_or_not_and_a_stalled_process_is_not_late() -> None:
    history = good()
    history.sends.append(Send("send-1", PLAIN, ("send-1:500",), UNKNOWN))
    history.calls.append(AppCall("send-1", "send", 0.0, 9.0, 3.0, stalled=6.0))
    history.commits.append(Commit("lite0-1", LITE, 16.0, None, False, {queue_of(PLAIN, 0): 14}))
    assert judge(history).verdict is Verdict.VALID


def test_duplicates_are_put_down_to_what_happened_last_to_their_group() -> None:
    history = good()
    one = of(history, WORKERS)[0]
    again = one.ids[0]
    history.deliveries += [
        # The leader's death at 5 concerns all, that of push1-3 at 8 the workers only, later ones of others nobody here.
        delivery("push0-1", WORKERS, 30.0, one.queue, one.offsets[0], again),
        delivery("cast0-1", CAST, 30.0, one.queue, one.offsets[0], again),
        delivery("push0-1", WORKERS, 31.0, one.queue, 10, again),
        delivery("push0-1", WORKERS, 32.0, "%RETRY%apps_workers/broker-a/0", 0, again, again=1),
    ]
    rows = {row["after"]: row for row in judge(history).figures["duplicates"]}
    assert rows["consumer killed"] == {**rows["leader killed"], "after": "consumer killed", "apps_workers": 1,
                                       "apps_broadcast": 0}  # fmt: skip
    assert rows["leader killed"]["apps_broadcast"] == 1
    assert rows["leader killed"]["events"] == rows["consumer killed"]["events"] == 1
    assert rows[STORED_TWICE]["apps_workers"] == rows[REFUSED]["apps_workers"] == 1
    assert NOTHING not in rows
