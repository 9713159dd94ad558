"""The judge of POP runs over forged histories: each anomaly is found, and missing evidence is no verdict."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chaos.apps.faults import LEADER_KILLED
from chaos.apps.history import AppCall, Ending, Send
from chaos.apps.plan import KILLED
from chaos.apps.producing import ACKED, FAILED
from chaos.pop.consuming import ACK, NAK, PUT_OFF
from chaos.pop.history import PopHistory
from chaos.pop.plan import TOPIC
from chaos.pop.verdict import judge_pops
from pipeline.history.results import Verdict
from tests.parts.chaos_pop_histories import EPOCH_MS, asked, good, hold, of


def test_a_good_history_is_valid() -> None:
    results = judge_pops(good())
    # No call was noted, and none was late.
    odd = [one for one in results.findings if one.verdict is not Verdict.VALID and one.check != "C-late"]
    assert odd == []
    assert results.figures["again"] == {"acknowledged late": 1, "given back or put off": 1, "holder killed": 2}
    assert results.figures["late_ms"] == {"p50": 100, "p99": 100, "max": 100}


def one_comes_to_nobody(history: PopHistory) -> None:
    history.processes.sends.append(Send("send-1", TOPIC, ("m8",), ACKED))


def one_is_never_given_again(history: PopHistory) -> None:
    history.holds.remove(of(history, "m2")[1])


def one_is_given_back_and_gone(history: PopHistory) -> None:
    history.holds.remove(of(history, "m5")[1])


def one_comes_after_a_late_acknowledgement_and_is_gone(history: PopHistory) -> None:
    of(history, "m6")[1].settlements.clear()


def one_comes_after_its_acknowledgement(history: PopHistory) -> None:
    history.holds.append(hold("m1", "pop0-2", 1300, offset=11, again=1))
    of(history, "m1")[1].settlements.append(asked(ACK, 1310, 1320))


def one_comes_after_it_was_put_off_and_acknowledged(history: PopHistory) -> None:
    history.holds.append(hold("m4", "pop0-2", 2400, offset=11, again=1))
    of(history, "m4")[1].settlements.append(asked(ACK, 2410, 2420))


def one_is_in_two_hands(history: PopHistory) -> None:
    history.holds.append(hold("m2", "pop1-1", 900, offset=11, again=1))


def one_is_in_two_hands_while_put_off(history: PopHistory) -> None:
    """Before it was acknowledged, and after its first time."""
    history.holds.append(hold("m4", "pop0-2", 1300, offset=11, again=1))
    of(history, "m4")[1].settlements.append(asked(ACK, 1310, 1320))


def one_that_was_given_back_comes_too_soon(history: PopHistory) -> None:
    again = of(history, "m5")[1]
    history.holds[history.holds.index(again)] = replace(again, pop_ms=EPOCH_MS + 400)


def a_record_is_taken_twice(history: PopHistory) -> None:
    first, second = of(history, "m2")
    history.holds[history.holds.index(second)] = replace(second, record=first.record)


def a_failed_one_comes(history: PopHistory) -> None:
    history.processes.sends.append(Send("send-1", TOPIC, ("m9",), FAILED))
    history.holds.append(hold("m9", "pop1-1", 100, offset=12))
    of(history, "m9")[0].settlements.append(asked(ACK, 110, 120))


def an_unknown_one_comes(history: PopHistory) -> None:
    history.holds.append(hold("nobody's", "pop1-1", 100, offset=12))
    of(history, "nobody's")[0].settlements.append(asked(ACK, 110, 120))


def a_receive_takes_too_long(history: PopHistory) -> None:
    history.processes.calls.append(AppCall("pop1-1", "receive", 1.0, 9.0, 4.0))


def a_connection_is_left(history: PopHistory) -> None:
    history.processes.endings.append(Ending("pop1-2", 9.0, started=True, connections=("a>b",)))


SPOILT: dict[str, tuple[Callable[[PopHistory], None], ...]] = {
    "I-lost": (one_comes_to_nobody,),
    "I-open": (
        one_is_never_given_again,
        one_is_given_back_and_gone,
        one_comes_after_a_late_acknowledgement_and_is_gone,
    ),
    "I-again": (one_comes_after_its_acknowledgement, one_comes_after_it_was_put_off_and_acknowledged),
    "I-together": (
        one_is_in_two_hands,
        one_is_in_two_hands_while_put_off,
        one_that_was_given_back_comes_too_soon,
    ),
    "I-record": (a_record_is_taken_twice,),
    "I-ghost": (a_failed_one_comes, an_unknown_one_comes),
    "C-late": (a_receive_takes_too_long,),
    "E-left": (a_connection_is_left,),
}


@pytest.mark.parametrize(
    ("check", "spoil"),
    [(check, spoil) for check, spoils in SPOILT.items() for spoil in spoils],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_each_anomaly_is_found_by_its_check_alone(check: str, spoil: Callable[[PopHistory], None]) -> None:
    history = good()
    spoil(history)
    results = judge_pops(history)
    assert [one.check for one in results.findings if one.verdict is Verdict.INVALID] == [check]


def the_answer_came_late(history: PopHistory) -> None:
    """Within the clock's allowance of the end."""
    first = of(history, "m1")[0]
    first.settlements[0] = asked(ACK, 150, 1080)


def the_acknowledgement_failed(history: PopHistory) -> None:
    of(history, "m1")[0].settlements[0] = asked(ACK, 150, 1000, ok=False)


def it_may_have_been_given_back_before(history: PopHistory) -> None:
    of(history, "m1")[0].settlements.insert(0, asked(NAK, 110, None, delay_ms=200))


def it_was_put_off_while_the_lead_moved(history: PopHistory) -> None:
    history.leads.append((2.0, 3))
    of(history, "m1")[0].settlements.insert(0, asked(PUT_OFF, 110, 120, delay_ms=5000))


def it_was_put_off_slowly(history: PopHistory) -> None:
    of(history, "m1")[0].settlements.insert(0, asked(PUT_OFF, 110, 1200, delay_ms=1000))


@pytest.mark.parametrize(
    "excuse",
    [
        the_answer_came_late,
        the_acknowledgement_failed,
        it_may_have_been_given_back_before,
        it_was_put_off_while_the_lead_moved,
        it_was_put_off_slowly,
    ],
    ids=lambda one: one.__name__,
)
def test_what_may_come_again_is_no_anomaly(excuse: Callable[[PopHistory], None]) -> None:
    history = good()
    one_comes_after_its_acknowledgement(history)
    excuse(history)
    found = [one.check for one in judge_pops(history).findings if one.verdict is Verdict.INVALID]
    assert found == []


def no_kill_of_a_consumer(history: PopHistory) -> None:
    history.processes.events = [one for one in history.processes.events if one.kind != KILLED]


def no_kill_of_a_leader(history: PopHistory) -> None:
    history.processes.events = [one for one in history.processes.events if one.kind != LEADER_KILLED]


def nothing_popped(history: PopHistory) -> None:
    history.holds.clear()
    history.processes.sends.clear()


def one_that_never_popped(history: PopHistory) -> None:
    for one in history.holds:
        one.app = "pop0-2" if one.app.startswith("pop1") else one.app


def too_few_sent(history: PopHistory) -> None:
    history.plan = replace(history.plan, messages=100)


def a_lead_that_never_moved(history: PopHistory) -> None:
    del history.leads[1:]


def an_end_before_the_end(history: PopHistory) -> None:
    history.processes.over = False
    one_comes_to_nobody(history)


def a_clock_that_was_set(history: PopHistory) -> None:
    history.clocks = [(at, ms + 60 * (at > 5)) for at, ms in history.clocks]


@pytest.mark.parametrize(
    "lack",
    [
        no_kill_of_a_consumer,
        no_kill_of_a_leader,
        nothing_popped,
        one_that_never_popped,
        too_few_sent,
        a_lead_that_never_moved,
        an_end_before_the_end,
        a_clock_that_was_set,
    ],
    ids=lambda one: one.__name__,
)
def test_without_evidence_there_is_no_verdict(lack: Callable[[PopHistory], None]) -> None:
    history = good()
    history.processes.calls.append(AppCall("pop1-1", "receive", 1.0, 1.0, 4.0))
    assert judge_pops(history).verdict is Verdict.VALID
    lack(history)
    assert judge_pops(history).verdict is Verdict.UNKNOWN
