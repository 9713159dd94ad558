"""Delay levels of a Raft group: the leader delivers, all know how far it got, the next one goes on from there."""

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.messages.delay_levels import ScheduleService
from broker.messages.delay_queue import DelayLoop
from broker.messages.delayed_record import waiting
from broker.metadata.delay_progress import PROGRESS_SECONDS
from broker.replication import Done
from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.topics import SCHEDULE_TOPIC
from store.errors import RecordDamaged
from store.log.dispatch import DELAY_LEVELS_MS
from store.types import PendingRecord
from tests.parts.broker_parts import Parts, Timer, broker_parts
from tests.parts.meta_parts import Member, leader
from tests.parts.told import nobody

HOST = pack_host("192.0.2.7", 5000)


class Setting:
    """The service over a real store and a member's log of metadata; appends are acknowledged when the test says so."""

    def __init__(self, parts: Parts, folder: Path) -> None:
        self.parts = parts
        self.member = Member(folder, parts.clock)
        # The member's own table of progress gives way to the service's.
        self.member.meta._routes._of.pop(4)
        self.member.meta._routes.tables.remove(self.member.delay)
        self.timers: list[Timer] = []
        self.acks: list[Callable[[], None]] = []
        # What was read aside and is not told yet, when the test holds it back.
        self.held: list[Callable[[], None]] | None = None
        path = folder / "delayOffset.json"
        path.unlink()
        self.service = ScheduleService(
            path,
            parts.store,
            self,
            parts.clock,
            DelayLoop(self.later, self.aside),
            DELAY_LEVELS_MS,
            self.member.meta,
        )
        parts.told.dispatched = self.service.arrived
        self.member.role.become(2)
        self.member.settle()

    def aside(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        if self.held is None:
            then(work())
        else:
            self.held.append(partial(then, work()))

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.parts.clock.monotonic() + seconds, call))
        return self.timers[-1]

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        assert wait
        assert until == 0.0, "nobody waits for a delivery"
        result = self.parts.store.put(record)
        self.parts.store.write()
        self.acks.append(lambda: done(result, 0))

    def append_batch(self, *_: object, **__: object) -> None:
        raise AssertionError("deliveries stand alone")

    def send(self, count: int, level: int = 1) -> None:
        for _ in range(count):
            record = PendingRecord("T", 0, 0, 0, 99, HOST, 0, 0, b"body", encode_properties({"UNIQ_KEY": "U"}))
            self.parts.store.put(waiting(record, level))
            self.parts.store.write()

    def pass_time(self, seconds: float) -> None:
        self.parts.clock.advance(seconds)
        while due := [timer for timer in self.timers if timer.at <= self.parts.clock.monotonic()]:
            self.timers = [timer for timer in self.timers if timer not in due]
            for timer in due:
                if not timer.cancelled:
                    timer.call()

    def acknowledge(self, count: int) -> None:
        for ack in [self.acks.pop(0) for _ in range(count)]:
            ack()

    def delivered(self) -> int:
        return self.parts.store.max_offset("T", 0)


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with broker_parts(tmp_path) as parts:
        made = Setting(parts, tmp_path / "member")
        yield made
        made.parts.told.dispatched = nobody


async def test_a_follower_delivers_nothing(setting: Setting) -> None:
    setting.send(3)
    setting.pass_time(10)
    assert setting.delivered() == 0
    assert setting.timers == []


async def test_progress_is_proposed_once_a_second_and_counts_when_applied(setting: Setting) -> None:
    setting.service.start()
    setting.send(5)
    setting.pass_time(1)
    setting.acknowledge(5)
    assert [seconds for seconds, _ in setting.member.timers] == [PROGRESS_SECONDS]
    assert setting.service.progress() == {}
    setting.member.wait()
    assert len(setting.member.proposed) == 1
    setting.member.commit()
    assert setting.service.progress() == {1: 5}
    assert setting.service.figures() == {"scheduleMessageOffset_1": "5,5"}
    assert json.loads(setting.service.encode())["offsetTable"] == {"1": 5}


async def test_stopping_hands_on_what_was_reached(setting: Setting) -> None:
    setting.service.start()
    setting.send(2)
    setting.pass_time(1)
    setting.service.stop()
    setting.acknowledge(2)
    await setting.service.persist()
    setting.member.turn()
    setting.member.commit()
    assert setting.service.progress() == {1: 2}


async def test_a_new_leader_goes_on_from_what_the_log_says(setting: Setting) -> None:
    setting.service.start()
    setting.send(4)
    setting.pass_time(1)
    assert setting.delivered() == 4
    setting.acknowledge(2)
    setting.member.settle()
    assert setting.service.progress() == {1: 2}
    setting.service.stop()
    setting.send(1)
    setting.service.start()
    setting.pass_time(0)
    setting.member.settle()
    assert setting.delivered() == 4, "what was not agreed upon stands in the log"
    setting.acknowledge(2)
    assert setting.member.settle() == [], "what belongs to the time before counts no more"
    assert setting.service.progress() == {1: 4}
    setting.pass_time(1)
    setting.acknowledge(1)
    setting.member.settle()
    assert setting.delivered() == 5
    assert setting.service.progress() == {1: 5}


async def test_nothing_is_delivered_before_it_is_known_what_was(setting: Setting) -> None:
    setting.service.start()
    setting.send(2)
    setting.pass_time(1)
    setting.service.stop()
    setting.held = []
    setting.service.start()
    [stale] = setting.held
    setting.send(1)
    setting.pass_time(2)
    assert setting.delivered() == 2
    setting.service.stop()
    setting.held = []
    setting.service.start()
    [told] = setting.held
    stale()
    setting.pass_time(2)
    assert setting.delivered() == 2, "what an earlier time looked for says nothing to this one"
    told()
    setting.pass_time(0)
    assert setting.delivered() == 3


async def test_R18_a_damaged_message_waits_until_it_is_mended(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = setting.parts.store
    read, hurt = store.record_at, True

    def damaged(position: int) -> memoryview | None:
        if hurt and position == store.queue_entries(SCHEDULE_TOPIC, 0, 1, 1)[0].physical_offset:
            raise RecordDamaged(position, "rot")
        return read(position)

    monkeypatch.setattr(store, "record_at", damaged)
    setting.service.start()
    setting.send(3)
    setting.pass_time(1)
    for _ in range(3):
        setting.pass_time(2)
        setting.acknowledge(len(setting.acks))
    assert store.max_offset("T", 0) == 1, "neither it nor what stands behind it"
    hurt = False
    setting.pass_time(2)
    setting.acknowledge(len(setting.acks))
    assert store.max_offset("T", 0) == 3


async def test_refused_deliveries_of_an_earlier_time_are_not_tried_again(setting: Setting) -> None:
    setting.service.start()
    setting.send(1)
    setting.pass_time(1)
    stale = setting.service._levels[0]
    setting.service.stop()
    setting.service.start()
    setting.service._ring(stale)
    setting.service._set_timer(stale, 1)
    setting.service._advance(stale)
    setting.pass_time(5)
    assert setting.delivered() == 1, "the first delivery"


def test_progress_never_goes_back(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.reached = {1: 5}
    member.delay.note()
    member.settle()
    member.reached = {1: 3, 2: 1}
    member.delay.note()
    member.settle()
    assert member.delay.offsets == {1: 5, 2: 1}
    member.delay.note()
    assert member.settle() == [], "nothing new: no entry"


def test_progress_that_is_not_taken_now_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = leader(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("broker.metadata.replicated.PENDING_BYTES_MAX", 5)
        member.reached = {1: 5}
        member.delay.note()
        member.wait()
    assert member.delay.offsets == {}
    member.settle()
    assert member.delay.offsets == {1: 5}
