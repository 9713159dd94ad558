"""Idempotent sends in front of a log of which everything is known: outcomes, repetitions, cuts, restarts, time."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.messages.idempotent import WAITING_MAX, FirstResult, IdempotentSends
from broker.messages.recent_records import IDEMPOTENT_FLAG
from broker.settings.idempotent_keys import IdempotentKeys
from remoting.codes import ResponseCode
from remoting.msgid import offset_msg_id, pack_host
from remoting.record import encode_record
from runtime.clock import ManualClock
from store.derived.recentkeys import RecentKeys
from store.log.dispatch import dispatched_from_record
from store.types import Dispatched, PendingRecord, PutResult, PutStatus

HOST = pack_host("192.0.2.1", 10911)
REFUSED = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
SERVICE_NOT_AVAILABLE = int(ResponseCode.SERVICE_NOT_AVAILABLE)
NOT_LEADER = int(ResponseCode.NOT_LEADER_FOR_QUEUE)
WINDOW_S = 60


class Log:
    """Records by position, and a replication whose sends end when the test says so."""

    file_bytes = 1 << 30
    min_physical = 0

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.records: dict[int, bytes] = {}
        self.end = 0
        self.offsets: dict[tuple[str, int], int] = {}
        self.flights: list[tuple[list[PendingRecord], Callable[[Any, int], None], bool]] = []
        self.confirms = 0
        self.told: Callable[[Sequence[Dispatched]], None] = lambda _batch: None

    def append(self, record: PendingRecord, done: Any, *, wait: bool = True, until: float = 0.0) -> None:
        assert (wait, until) == (True, 5.0)
        self.flights.append(([record], done, False))

    def append_batch(
        self, records: Sequence[PendingRecord], done: Any, *, wait: bool = True, until: float = 0.0
    ) -> None:
        assert (wait, until) == (True, 5.0)
        self.flights.append((list(records), done, True))

    def confirm(self, stored: PutResult, done: Any, *, wait: bool = True) -> None:
        assert wait
        assert stored.end in self.records.keys() | {self.end}, "behind the last record of what is repeated"
        if self.confirms == SERVICE_NOT_AVAILABLE:
            done(REFUSED, self.confirms)
        else:
            done(stored, self.confirms)

    def store(self, number: int = 0, code: int = 0) -> None:
        """Store a send that is on its way, and answer it."""
        records, done, batch = self.flights.pop(number)
        results, told = [], []
        for record in records:
            queue = (record.topic, record.queue_id)
            offset = self.offsets.get(queue, 0)
            view = encode_record(
                record.topic, record.queue_id, record.body, record.properties, queue_offset=offset,
                physical_offset=self.end, sys_flag=record.sys_flag, store_timestamp=self.clock.now_ms(),
                store_host=HOST,
            )  # fmt: skip
            self.records[self.end] = view
            results.append(PutResult(PutStatus.PUT_OK, self.end, offset, len(view)))
            told.append(dispatched_from_record(view))
            self.offsets[queue] = offset + 1
            self.end += len(view)
        self.told(told)
        done(results if batch else results[0], code)

    def refuse(self, number: int = 0, result: PutResult = REFUSED, code: int = 14) -> None:
        _records, done, batch = self.flights.pop(number)
        done([result] if batch else result, code)

    def cut(self, count: int) -> None:
        """Lose the newest records."""
        for position in sorted(self.records, reverse=True)[:count]:
            found = dispatched_from_record(self.records.pop(position))
            self.end = position
            self.offsets[found.topic, found.queue_id] = found.queue_offset

    def record_at(self, physical_offset: int) -> memoryview | None:
        found = self.records.get(physical_offset)
        return None if found is None else memoryview(found)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.offsets.get((topic, queue_id), 0)

    def read_piece_cold(self, position: int, size_max: int) -> bytes:
        raise NotImplementedError


def few_hashes(key: bytes) -> int:
    return sum(key) % 3


class Setting:
    def __init__(self, hash_of: Callable[[bytes], int] = few_hashes) -> None:
        self.clock = ManualClock()
        self.log = Log(self.clock)
        self.hash_of = hash_of
        self.answers: dict[int, tuple[Any, int]] = {}
        self.number = 0
        self.start()

    def start(self) -> None:
        """Begin anew with what is in the log, as a broker that was killed."""
        self.log.flights.clear()
        self.sends = IdempotentSends(
            self.log, self.log, HOST, self.clock, IdempotentKeys(idempotentWindowSeconds=WINDOW_S)
        )
        self.sends.keys = RecentKeys(1000, WINDOW_S * 1000, segment_keys=4, hash_of=self.hash_of)
        self.log.told = self.sends.dispatched
        self.sends.dispatched([dispatched_from_record(view) for _, view in sorted(self.log.records.items())])

    def _done(self) -> Callable[[Any, int], None]:
        self.number += 1
        number = self.number

        def done(result: Any, code: int) -> None:
            assert number not in self.answers, "one answer each"
            self.answers[number] = result, code

        return done

    def send(self, key: str, topic: str = "T", queue_id: int = 0) -> int:
        record = PendingRecord(
            topic, queue_id, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"body", f"UNIQ_KEY\x01{key}\x02".encode()
        )
        self.sends.append(topic, key, queue_id, record, self._done(), wait=True, until=5.0)
        return self.number

    def send_batch(self, keys: Sequence[str], queue_id: int = 0) -> int:
        records = [
            PendingRecord("T", queue_id, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"b", f"UNIQ_KEY\x01{key}\x02".encode())
            for key in keys
        ]
        self.sends.append_batch("T", queue_id, records, self._done(), wait=True, until=5.0)
        return self.number


def first(position: int, offset: int, queue_id: int = 0) -> FirstResult:
    return FirstResult(queue_id, offset, offset_msg_id(HOST, position))


def test_a_repetition_has_the_first_ones_answer_whatever_queue_it_names() -> None:
    setting = Setting()
    setting.send("A", queue_id=2)
    setting.log.store()
    again = setting.send("A", queue_id=1)
    assert setting.answers[again] == (first(0, 0, 2), 0)
    assert not setting.log.flights
    other = setting.send("A", topic="U")
    assert other not in setting.answers
    assert len(setting.log.flights) == 1
    assert setting.sends.repeated == 1


def test_a_repetition_of_what_is_on_its_way_waits_for_it() -> None:
    setting = Setting()
    one, two, three = setting.send("A"), setting.send("A"), setting.send("A", queue_id=3)
    assert len(setting.log.flights) == 1
    assert not setting.answers
    setting.log.store(code=int(ResponseCode.FLUSH_SLAVE_TIMEOUT))
    assert setting.answers[one][1] == setting.answers[two][1] == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert setting.answers[two] == setting.answers[three] == (first(0, 0), ResponseCode.FLUSH_SLAVE_TIMEOUT)


@pytest.mark.parametrize("code", [0, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE])
def test_who_comes_later_is_told_how_safe_it_is_by_then(code: int) -> None:
    setting = Setting()
    setting.send("A")
    setting.send_batch(["B", "C"])
    setting.log.store(code=int(ResponseCode.FLUSH_SLAVE_TIMEOUT))
    setting.log.store(code=int(ResponseCode.FLUSH_SLAVE_TIMEOUT))
    setting.log.confirms = code
    assert setting.answers[setting.send("A")] == (first(0, 0), code)
    found, told = setting.answers[setting.send_batch(["B", "C"])]
    assert (found.queue_offset, found.msg_id.count(","), told) == (1, 1, code)


def test_who_comes_later_is_refused_by_a_broker_that_takes_nothing() -> None:
    setting = Setting()
    setting.send("A")
    setting.log.store()
    setting.log.confirms = SERVICE_NOT_AVAILABLE
    assert setting.answers[setting.send("A")] == (REFUSED, SERVICE_NOT_AVAILABLE)
    assert setting.sends.repeated == 0


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (REFUSED, 14),
        (REFUSED, NOT_LEADER),
        (PutResult(PutStatus.UNKNOWN_ERROR), 1),
        (PutResult(PutStatus.OS_PAGE_CACHE_BUSY), 2),
    ],
)
def test_who_waits_for_what_is_not_stored_is_told_the_same_and_may_come_again(result: PutResult, code: int) -> None:
    setting = Setting()
    one, two = setting.send("A"), setting.send("A")
    setting.log.refuse(result=result, code=code)
    assert setting.answers[one] == setting.answers[two] == (result, code)
    three = setting.send("A")
    assert three not in setting.answers
    assert len(setting.log.flights) == 1


def test_what_cannot_be_answered_costs_nobody_else_the_answer() -> None:
    setting = Setting()
    record = PendingRecord("T", 0, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"body", b"UNIQ_KEY\x01A\x02")

    def broken(_result: Any, _code: int) -> None:
        raise OSError("gone")

    setting.sends.append("T", "A", 0, record, broken, wait=True, until=5.0)
    setting.sends.append("T", "A", 0, record, broken, wait=True, until=5.0)
    two = setting.send("A")
    with pytest.raises(OSError, match="gone"):
        setting.log.store()
    assert setting.answers[two] == (first(0, 0), 0)


def test_repetitions_that_wait_are_bounded() -> None:
    setting = Setting()
    setting.send("A")
    for _ in range(WAITING_MAX):
        setting.send("A")
    assert not setting.answers
    over = setting.send("A")
    assert setting.answers[over] == (PutResult(PutStatus.OS_PAGE_CACHE_BUSY), ResponseCode.SYSTEM_BUSY)
    setting.log.store()
    assert len(setting.answers) == WAITING_MAX + 2


def test_the_first_one_counts_for_as_long_as_the_window_and_no_longer() -> None:
    setting = Setting()
    setting.send("A")
    setting.log.store()
    setting.clock.advance(WINDOW_S)
    assert setting.answers[setting.send("A")] == (first(0, 0), 0)
    setting.clock.advance(0.001)
    again = setting.send("A")
    assert again not in setting.answers
    setting.log.store()
    stored = setting.answers[again][0]
    assert setting.answers[setting.send("A")] == (first(stored.physical_offset, 1), 0)


def test_an_empty_key_is_none() -> None:
    setting = Setting()
    setting.send("")
    setting.send("")
    assert len(setting.log.flights) == 2


def test_a_topic_that_was_deleted_begins_anew() -> None:
    setting = Setting()
    setting.send("A")
    setting.log.store()
    setting.log.offsets.clear()
    assert setting.send("A") not in setting.answers


def test_a_batch_is_repeated_as_a_whole() -> None:
    setting = Setting()
    one = setting.send_batch(["A", "B", "C"])
    two = setting.send_batch(["A", "B", "C"], queue_id=3)
    setting.log.store()
    results = setting.answers[one][0]
    ids = ",".join(offset_msg_id(HOST, result.physical_offset) for result in results)
    assert setting.answers[two] == (FirstResult(0, 0, ids), 0)
    setting.start()
    assert setting.answers[setting.send_batch(["A", "B", "C"])] == (FirstResult(0, 0, ids), 0)
    assert not setting.log.flights


@pytest.mark.parametrize("keys", [["A", "B", "X"], ["A", "B", "C", "D"], ["X", "B", "C"]])
def test_a_batch_of_which_a_part_is_stored_is_refused(keys: list[str]) -> None:
    setting = Setting()
    setting.send_batch(["A", "B", "C"])
    setting.log.store()
    text, code = setting.answers[setting.send_batch(keys)]
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert "some messages of this batch" in text
    assert not setting.log.flights


def test_a_batch_without_keys_is_stored_as_ever() -> None:
    setting = Setting()
    records = [PendingRecord("T", 0, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"b", b"") for _ in range(2)]
    for _ in range(2):
        setting.sends.append_batch("T", 0, records, setting._done(), wait=True, until=5.0)
    assert len(setting.log.flights) == 2


@pytest.mark.parametrize("seed", range(60))
def test_against_a_list_of_everything(seed: int) -> None:
    """Whatever happens: a send is appended only when no record of it, young enough, stands in the log."""
    chance = random.Random(seed)
    setting = Setting()
    flying: list[tuple[str, str]] = []
    # (topic, key, position, offset, time) of everything in the log.
    twin: list[tuple[str, str, int, int, int]] = []

    def store(number: int) -> None:
        topic, key = flying.pop(number)
        end = setting.log.end
        setting.log.store(number)
        twin.append((topic, key, end, setting.log.offsets[topic, 0] - 1, setting.clock.now_ms()))

    for _ in range(250):
        action = chance.random()
        if action < 0.6:
            topic, key = chance.choice("TU"), chance.choice("ABCDEFGH")
            before = len(setting.log.flights)
            number = setting.send(key, topic)
            oldest = setting.clock.now_ms() - WINDOW_S * 1000
            known = [entry for entry in twin if entry[:2] == (topic, key) and entry[4] >= oldest]
            if (topic, key) in flying:
                assert number not in setting.answers
                assert len(setting.log.flights) == before
            elif known:
                assert setting.answers[number] == (first(known[0][2], known[0][3]), 0)
                assert len(setting.log.flights) == before
            else:
                assert len(setting.log.flights) == before + 1
                flying.append((topic, key))
        elif action < 0.85 and flying:
            store(chance.randrange(len(flying)))
        elif action < 0.9 and flying:
            number = chance.randrange(len(flying))
            flying.pop(number)
            setting.log.refuse(number, code=chance.choice([14, NOT_LEADER]))
        elif action < 0.93:
            count = chance.randrange(4)
            setting.log.cut(count)
            del twin[len(twin) - min(count, len(twin)) :]
        elif action < 0.95:
            setting.start()
            flying.clear()
        else:
            setting.clock.advance(chance.choice([0.5, 10, 40]))
