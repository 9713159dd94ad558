"""delay_levels, delayed_record: who waits how long, what is delivered, and how far the progress says it got."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from broker.messages.delay_levels import IN_FLIGHT_MAX, RETRY_SECONDS, TIMER_SECONDS_MAX, ScheduleService
from broker.messages.delay_queue import DelayLoop, wait_ms
from broker.messages.delayed_record import pending, waiting, without
from broker.metadata.table_file import MetadataError
from broker.replication import Done
from remoting.codes import RequestCode
from remoting.message import MessageExt
from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.record import decode_record
from remoting.topics import SCHEDULE_TOPIC
from store.log.dispatch import DELAY_LEVELS_MS
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.broker_parts import Parts, Timer, broker_parts
from tests.parts.told import at_once, nobody

HOST = pack_host("192.0.2.7", 5000)


class Setting:
    """A schedule over a real store; appends are stored at once and acknowledged at once or when the test says so."""

    def __init__(self, parts: Parts, path: Path) -> None:
        self.parts = parts
        self.path = path
        self.timers: list[Timer] = []
        self.acks: list[Callable[[], None]] | None = None
        self.refusal: PutStatus | None = None
        self.service = self.make()

    def make(self) -> ScheduleService:
        self.timers.clear()
        self.service = ScheduleService(
            self.path,
            self.parts.store,
            self,
            self.parts.clock,
            DelayLoop(self.later, at_once),
            DELAY_LEVELS_MS,
            comes_to=self.parts.topics.adopt_awaited,
        )
        self.parts.told.dispatched = self.service.arrived
        return self.service

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.parts.clock.monotonic() + seconds, call))
        return self.timers[-1]

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        assert wait
        assert until == 0.0, "nobody waits for a delivery"
        if self.refusal is not None:
            done(PutResult(self.refusal), 14)
            return
        result = self.parts.store.put(record)
        self.parts.store.write()
        if self.acks is None:
            done(result, 0)
        else:
            self.acks.append(lambda: done(result, 0))

    def append_batch(self, *_: object, **__: object) -> None:
        raise AssertionError("deliveries stand alone")

    def pass_time(self, seconds: float) -> None:
        """Let time pass from timer to timer."""
        end = self.parts.clock.monotonic() + seconds
        while due := [timer for timer in self.timers if not timer.cancelled and timer.at <= end]:
            timer = min(due, key=lambda one: one.at)
            self.timers.remove(timer)
            self.parts.clock.advance(max(0.0, timer.at - self.parts.clock.monotonic()))
            timer.call()
        self.parts.clock.advance(end - self.parts.clock.monotonic())

    def send(self, level: int, body: bytes = b"body", queue_id: int = 2) -> None:
        properties = encode_properties({"TAGS": "A", "UNIQ_KEY": "U"})
        record = PendingRecord("T", queue_id, 7, 0x1, 99, HOST, 3, 0, body, properties)
        self.parts.store.put(waiting(record, level))
        self.parts.store.write()

    def delivered(self, queue_id: int = 2) -> list[MessageExt]:
        found = []
        for entry in self.parts.store.queue_entries("T", queue_id, 0, 1000):
            view = self.parts.store.record_at(entry.physical_offset)
            assert view is not None
            found.append(decode_record(view))
        return found

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.delivered()]


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with broker_parts(tmp_path) as parts:
        made = Setting(parts, tmp_path / "delayOffset.json")
        made.service.start()
        yield made
        made.parts.told.dispatched = nobody


def test_a_topic_that_a_crash_took_is_there_when_its_delayed_message_comes(setting: Setting) -> None:
    """Of a plain message its queue tells at the start; here nothing but the message does."""
    setting.send(1)
    assert setting.parts.topics.get("T") is None
    setting.pass_time(1)
    found = setting.parts.topics.get("T")
    assert found is not None
    assert found.readQueueNums == 3
    assert setting.bodies() == [b"body"]


@pytest.mark.parametrize(
    ("due", "now", "delay", "waits"),
    [(1500, 1000, 1000, 500), (1000, 1000, 5, 0), (900, 1000, 5, -100), (9000, 0, 5, 5)],
)
def test_how_long_a_head_waits(due: int, now: int, delay: int, waits: int) -> None:
    assert wait_ms(due, now, delay) == waits


def test_properties_are_taken_out_and_the_others_stay_as_they_are() -> None:
    assert without(b"A\x01b\x01c\x02DELAY\x013\x02\x02DELAYED\x014", {b"DELAY"}) == b"A\x01b\x01c\x02DELAYED\x014\x02"


async def test_a_message_comes_at_its_time_as_what_it_was(setting: Setting) -> None:
    setting.send(2)
    setting.pass_time(4.99)
    assert setting.delivered() == []
    setting.pass_time(0.02)
    [message] = setting.delivered()
    kept = {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": str(message.queue_id)}
    assert message.properties == {"TAGS": "A", "UNIQ_KEY": "U", **kept}
    assert (message.flag, message.sys_flag, message.born_timestamp, message.reconsume_times) == (7, 1, 99, 3)
    assert message.born_host == ("192.0.2.7", 5000)
    assert setting.service.progress() == {2: 1}
    assert setting.service.figures() == {"scheduleMessageOffset_2": "1,1"}


async def test_a_level_that_holds_messages_is_shown_before_any_was_delivered(setting: Setting) -> None:
    assert setting.service.figures() == {}
    setting.send(5)
    setting.send(5)
    assert setting.service.figures() == {"scheduleMessageOffset_5": "0,2"}
    assert setting.service.progress() == {}, "the file and 45 name what was delivered"


async def test_levels_do_not_wait_for_one_another_and_keep_their_order(setting: Setting) -> None:
    setting.send(3, b"ten")
    setting.send(1, b"one")
    setting.send(1, b"one too")
    setting.pass_time(1)
    assert setting.bodies() == [b"one", b"one too"]
    setting.send(2, b"five")
    setting.pass_time(20)
    assert setting.bodies() == [b"one", b"one too", b"five", b"ten"]
    assert [timer for timer in setting.timers if not timer.cancelled] == [], "an empty level sets no timer"


async def test_a_waiting_level_has_one_timer_however_many_arrive(setting: Setting) -> None:
    setting.pass_time(0)
    for _ in range(50):
        setting.send(5)
        setting.pass_time(0.01)
    assert len(setting.timers) == 1
    assert setting.timers[0].at - setting.parts.clock.monotonic() <= TIMER_SECONDS_MAX


async def test_a_clock_that_was_set_back_delays_by_the_level_at_most(setting: Setting) -> None:
    setting.send(1)
    setting.parts.clock.set_wall(setting.parts.clock.now_ms() - 3_600_000)
    setting.pass_time(0)
    assert max(timer.at for timer in setting.timers) - setting.parts.clock.monotonic() <= 1


async def test_progress_moves_behind_acknowledged_messages_in_their_order(setting: Setting) -> None:
    setting.acks = []
    for number in range(3):
        setting.send(1, b"%d" % number)
    setting.pass_time(2)
    assert setting.bodies() == [b"0", b"1", b"2"], "they are on their way together"
    assert setting.service.progress() == {}
    setting.acks[2]()
    setting.acks[1]()
    assert setting.service.progress() == {}
    setting.acks[0]()
    assert setting.service.progress() == {1: 3}


async def test_what_is_on_its_way_is_bounded(setting: Setting) -> None:
    setting.acks = []
    for _ in range(IN_FLIGHT_MAX + 10):
        setting.send(1)
    setting.pass_time(2)
    assert len(setting.acks) == IN_FLIGHT_MAX
    setting.acks[0]()
    setting.pass_time(0)
    assert len(setting.acks) == IN_FLIGHT_MAX + 1


async def test_a_delivery_that_the_store_refuses_is_tried_again(setting: Setting) -> None:
    setting.refusal = PutStatus.SERVICE_NOT_AVAILABLE
    setting.send(1, b"first")
    setting.send(1, b"second")
    setting.pass_time(1 + 3 * RETRY_SECONDS)
    assert setting.service.progress() == {}
    setting.refusal = None
    setting.pass_time(RETRY_SECONDS)
    assert setting.bodies() == [b"first", b"second"]
    assert setting.service.progress() == {1: 2}


async def test_what_can_never_be_delivered_does_not_stop_the_others(setting: Setting) -> None:
    setting.parts.put(SCHEDULE_TOPIC, 0, b"lost", DELAY="1")
    setting.send(1, b"good")
    setting.pass_time(1)
    assert setting.bodies() == [b"good"]
    assert setting.service.progress() == {1: 2}


async def test_progress_is_kept_and_found_again(setting: Setting) -> None:
    for number in range(4):
        setting.send(1, b"%d" % number)
    setting.pass_time(1)
    await setting.service.persist()
    stored = json.loads(setting.path.read_text())
    assert stored["offsetTable"] == {"1": 4}
    assert set(stored) == {"dataVersion", "offsetTable"}
    setting.service.stop()
    setting.make().start()
    setting.send(1, b"4")
    setting.pass_time(1)
    assert setting.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    setting.parts.handlers = setting.service.table()
    answer = await setting.parts.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert json.loads(bytes(answer.body))["offsetTable"] == {"1": 5}


async def test_progress_is_durable_only_behind_what_it_counts(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = setting.parts.store
    setting.send(1, b"precious")
    setting.pass_time(1)
    delivered = store.written
    assert setting.service.progress() == {1: 1}
    with monkeypatch.context() as patch:
        # A disk that does not get round to it.
        patch.setattr(store, "flush_soon", lambda _position: None)
        patch.setattr("broker.messages.delay_levels.FLUSH_SECONDS_MAX", 0.02)
        assert store.flushed < delivered
        await setting.service.persist()
        assert not setting.path.exists()
    await setting.service.persist()
    assert store.flushed >= delivered
    assert json.loads(setting.path.read_text())["offsetTable"] == {"1": 1}


async def test_after_a_crash_what_was_delivered_is_found_in_the_log(setting: Setting) -> None:
    for number in range(5):
        setting.send(1, b"%d" % number)
    setting.send(2, b"later")
    setting.acks = []
    setting.pass_time(1)
    for ack in [setting.acks[1], setting.acks[3]]:
        ack()
    assert setting.service.progress() == {}, "what the first one waits for"
    for _ in range(2):
        # Killed, and once more.
        setting.service.stop()
        setting.make().start()
        setting.acks = None
        setting.pass_time(0)
        assert setting.bodies() == [b"0", b"1", b"2", b"3", b"4"]
        assert setting.service.progress() == {1: 5}
    setting.pass_time(4)
    setting.service.stop()
    setting.make().start()
    setting.send(1, b"new")
    setting.pass_time(1)
    assert setting.bodies() == [b"0", b"1", b"2", b"3", b"4", b"later", b"new"]


async def test_what_the_crash_took_from_the_log_is_delivered_and_nothing_else(setting: Setting) -> None:
    for number in range(4):
        setting.send(1, b"%d" % number)
    held: list[PendingRecord] = []
    real = setting.append

    def append(record: PendingRecord, done: Done, **_: object) -> None:
        # Of those two nothing comes into the log.
        if record.body in {b"1", b"3"} and len(held) < 2:
            held.append(record)
        else:
            real(record, done)

    setting.append = append  # type: ignore[method-assign]
    setting.make().start()
    setting.pass_time(1)
    assert setting.bodies() == [b"0", b"2"]
    setting.service.stop()
    setting.make().start()
    setting.pass_time(0)
    assert setting.bodies() == [b"0", b"2", b"1", b"3"]


async def test_who_delivers_next_may_have_a_clock_that_is_a_little_behind(setting: Setting) -> None:
    for number in range(3):
        setting.send(1, b"%d" % number)
    setting.pass_time(1)
    setting.service.stop()
    setting.parts.clock.set_wall(setting.parts.clock.now_ms() - 4000)
    setting.make().start()
    setting.pass_time(6)
    assert setting.bodies() == [b"0", b"1", b"2"]


async def test_a_committed_message_with_a_delay_is_known_by_its_half(setting: Setting) -> None:
    for half in (4711, 4712):
        record = PendingRecord("T", 2, 0, 0x8, 99, HOST, 0, half, b"%d" % half, b"UNIQ_KEY\x01U\x02")
        setting.parts.store.put(waiting(record, 1))
        setting.parts.store.write()
    setting.pass_time(1)
    setting.service.stop()
    setting.make().start()
    setting.pass_time(0)
    assert [(one.body, one.prepared_transaction_offset) for one in setting.delivered()] == [
        (b"4711", 4711),
        (b"4712", 4712),
    ]


async def test_what_cannot_be_read_comes_again(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    setting.send(1)
    setting.pass_time(1)
    setting.service.stop()

    def fails(work: Callable[[], object], then: Callable[[object], None]) -> None:  # never done
        then(OSError("the disk is gone"))

    ScheduleService(
        setting.path, setting.parts.store, setting, setting.parts.clock, DelayLoop(setting.later, fails),
        DELAY_LEVELS_MS,
    ).start()  # fmt: skip
    setting.pass_time(0)
    assert setting.bodies() == [b"body", b"body"]
    assert "it may come again: the disk is gone" in caplog.text


async def test_rocketmqs_file_is_read_and_bounded_by_the_queues(setting: Setting) -> None:
    setting.send(1)
    setting.path.write_text('{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1},"offsetTable":{1:9,3:2}}')
    assert setting.make().progress() == {1: 1, 3: 0}
    assert json.loads(setting.path.read_text())["offsetTable"] == {"1": 1, "3": 0}, "what comes next is not passed over"
    setting.path.with_name(setting.path.name + ".bak").unlink()
    setting.path.write_text("[")
    with pytest.raises(MetadataError):
        setting.make()


async def test_a_stopped_service_delivers_nothing(setting: Setting) -> None:
    setting.send(1)
    setting.pass_time(0)
    setting.service.stop()
    setting.pass_time(5)
    assert setting.delivered() == []


async def test_a_stored_record_can_be_stored_again(setting: Setting) -> None:
    topic = "T" * 200
    put = setting.parts.store.put(PendingRecord(topic, 1, 2, 0, 3, pack_host("::1", 4), 5, 0, b"b", b"a\x01b\x02"))
    setting.parts.store.write()
    view = setting.parts.store.record_at(put.physical_offset)
    assert view is not None
    again = pending(view)
    assert (again.topic, again.born_host, again.body, again.properties) == (
        topic,
        pack_host("::1", 4),
        b"b",
        b"a\x01b\x02",
    )
