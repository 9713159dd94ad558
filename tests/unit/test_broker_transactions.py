"""Transactions: what a half becomes, that it ends once, and what a broker that begins to lead knows of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from broker.messages.held import HeldRequests
from broker.transactions.halves import HalfTable, Landed
from broker.transactions.records import HalfView, half, immunity_ms, op, over, read_half
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.properties import decode_properties
from remoting.record import RecordError, encode_record
from remoting.server import Connection
from remoting.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.types import PendingRecord, PutStatus
from tests.parts.broker_parts import HOST
from tests.parts.transaction_parts import COMMIT, ROLLBACK, UNKNOWN, TransactionSite, ends, transaction_site

END = RequestCode.END_TRANSACTION
OK, ERROR = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[TransactionSite]:
    async with transaction_site(tmp_path) as made:
        yield made


def test_a_half_names_where_it_belongs_and_what_a_producer_forged_is_gone() -> None:
    text = "UNIQ_KEY\x01K\x02REAL_TOPIC\x01Evil\x02TRANSACTION_CHECK_TIMES\x0199\x02TRAN_PREPARED_QUEUE_OFFSET\x015\x02"
    record = PendingRecord("T", 3, 7, 0x4 | 0x1, 99, HOST, 0, 0, b"x", text.encode())
    made = half(record)
    assert (made.topic, made.queue_id, made.sys_flag, made.flag) == (TRANS_HALF_TOPIC, 0, 1, 7)
    assert decode_properties(made.properties) == {
        "UNIQ_KEY": "K",
        "__transactionId__": "K",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize(
    ("text", "ms"), [("5", 5000), ("0", 0), ("-1", -1), ("x", -1), ("", -1), ("9" * 30, -1), ("٣", -1)]
)
def test_an_immunity_time_that_is_none_says_nothing(text: str, ms: int) -> None:
    assert immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}) == ms


@pytest.mark.parametrize(
    ("body", "tag", "found"),
    [(b"0,1,4,7,5,6,", "d", [0, 1, 4, 7, 5, 6]), (b"12", "d", [12]), (b"1,x,-3,,2", "d", [1, 2]), (b"1,", "e", [])],
)
def test_op_messages_of_all_forms(body: bytes, tag: str, found: list[int]) -> None:
    assert list(over(encode_record(TRANS_OP_HALF_TOPIC, 0, body, f"TAGS\x01{tag}\x02".encode()))) == found
    made = op([3, 5], HOST, 7)
    assert (made.body, made.properties) == (b"3,5,", b"WAIT\x01true\x02TAGS\x01d\x02")


def test_what_is_no_half_is_told() -> None:
    with pytest.raises(RecordError):
        read_half(encode_record("T", 0, b"x", b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02"))
    with pytest.raises(RecordError):
        read_half(encode_record(TRANS_HALF_TOPIC, 0, b"x", b"REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02"))


def test_a_queue_is_known_up_to_its_first_hole() -> None:
    landed = Landed(3)
    for offset in (5, 4, 4, 1):
        landed.note(offset)
    assert landed.end == 3
    landed.note(3)
    assert landed.end == 6


def seen(offset: int, root: int = -1, checks: int = 0, key: str = "K") -> HalfView:
    return HalfView(offset, offset * 100, root, checks, -1, 0, 0, "P", "T", 0, key)


def test_copies_of_either_kind_are_one_transaction() -> None:
    """RocketMQ's copies for checks name no root, those within an immunity time do."""
    table = HalfTable(0, 0)
    for view in (seen(0), seen(1, key="L"), seen(2, checks=1), seen(3, root=1, key="L"), seen(4, checks=2)):
        table.stored(view, fresh=False)
    assert {root: half.offset for root, half in table.pending.items()} == {0: 4, 1: 3}
    assert (table.root_of(seen(2, checks=1)), table.root_of(seen(0))) == (0, 0)
    # What stands before the newest copy is of an earlier time: a discarded half that was resumed.
    table.take_out({2: 399})
    assert list(table.pending) == [0, 1]
    table.take_out({2: 401})
    assert list(table.pending) == [1]
    # Two halves with one key are two: their producer sent twice.
    table.stored(seen(5), fresh=False)
    table.stored(seen(6), fresh=False)
    assert list(table.pending) == [1, 5, 6]


def test_progress_stops_at_the_first_undecided_and_keeps_the_op_messages_of_what_lies_behind_it() -> None:
    table = HalfTable(0, 0)
    for offset in range(4):
        table.stored(seen(offset, key=f"K{offset}"), fresh=True)
    assert table.progress() == (0, 0)
    for number, root in enumerate((0, 2)):
        table.named(number, [root])
        table.end(table.pending[root], committed=True)
    assert table.progress() == (1, 1)
    table.named(2, [1])
    table.end(table.pending[1], committed=False)
    assert table.progress() == (3, 3)


async def test_a_commit_and_its_op_message_are_one_write(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.log.held = []
    assert site.end(one, COMMIT) is None
    assert len(site.log.held) == 1
    site.log.release()
    assert site.client.answers[-1].code == OK
    assert (site.delivered(), site.ops()) == (["one"], ["0,"])


async def test_who_ends_it_meanwhile_waits_and_is_told_the_same(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.log.held = []
    for how in (COMMIT, COMMIT, ROLLBACK, COMMIT):
        assert site.end(one, how) is None
    site.log.release()
    assert [answer.code for answer in site.client.answers] == [OK, OK, ERROR, OK]
    assert (site.delivered(), site.ops()) == (["one"], ["0,"])


async def test_a_refused_commit_can_be_tried_again(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.log.refuses = (PutStatus.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert site.end(one, COMMIT) == ResponseCode.SERVICE_NOT_AVAILABLE
    site.log.refuses = (PutStatus.SERVICE_NOT_AVAILABLE, ResponseCode.NOT_LEADER_FOR_QUEUE)
    assert site.end(one, COMMIT) is None
    assert [request.code for request in site.elsewhere] == [RequestCode.END_TRANSACTION]
    site.log.refuses = None
    assert site.end(one, COMMIT) == OK
    assert site.delivered() == ["one"]


async def test_what_came_while_the_halves_were_read_is_served_then(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.service.stop()
    assert site.end(one, COMMIT) is None
    await site.lead()
    assert site.client.answers[-1].code == OK
    assert site.delivered() == ["one"]


async def test_who_leads_no_more_passes_on_what_waits(site: TransactionSite) -> None:
    one, two = site.prepare("one"), site.prepare("two")
    site.log.held = []
    site.end(one, COMMIT)
    site.end(one, COMMIT)
    assert site.end(two, ROLLBACK, oneway=True) is None
    site.service.stop()
    assert len(site.elsewhere) == 2
    site.log.release()
    assert len(site.elsewhere) == 2


async def test_rollbacks_without_an_answer_are_written_together(tmp_path: Path) -> None:
    async with transaction_site(tmp_path, transactionOpBatchInterval=2000) as site:
        halves = [site.prepare() for _ in range(3)]
        for stored in halves:
            assert site.end(stored, ROLLBACK, oneway=True) is None
        assert site.ops() == []
        [timer] = site.timers
        assert timer.at - site.clock.monotonic() == 2.0
        timer.call()
        assert site.ops() == ["0,1,2,"]
        assert site.pending == {}
        assert site.end(halves[0], COMMIT) == ERROR


async def test_an_op_message_has_a_bound(tmp_path: Path) -> None:
    async with transaction_site(tmp_path, transactionOpMsgMaxSize=4) as site:
        for _ in range(3):
            site.end(site.prepare(), ROLLBACK, oneway=True)
        assert site.ops() == ["0,1,"]
        # Who waits for an answer waits for no timer; and a stop writes what is gathered.
        assert site.end(site.prepare(), ROLLBACK) == OK
        site.service.retire()
        assert site.ops() == ["0,1,", "3,", "2,"]


async def test_a_rollback_that_is_gathered_is_written_when_somebody_asks(site: TransactionSite) -> None:
    one = site.prepare()
    assert site.end(one, ROLLBACK, oneway=True) is None
    assert site.end(one, ROLLBACK) == OK
    assert site.end(one, COMMIT) == ERROR
    assert site.delivered() == []


@pytest.mark.parametrize("how", [UNKNOWN, 4, 99, -1])
async def test_what_decides_nothing_is_not_answered(site: TransactionSite, how: int) -> None:
    one = site.prepare()
    assert site.end(one, how) is None
    assert list(site.pending) == [0]


async def test_an_end_after_the_immunity_time_is_refused_unless_it_was_asked_for(site: TransactionSite) -> None:
    one = site.prepare(more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02")
    site.clock.advance(10.5)
    assert site.end(one, COMMIT) == ResponseCode.ILLEGAL_OPERATION
    assert site.end(one, COMMIT, checked=True) == OK


async def test_the_next_leader_knows_what_is_undecided(tmp_path: Path, site: TransactionSite) -> None:
    stored = [site.prepare() for _ in range(6)]
    site.end(stored[1], COMMIT)
    site.end(stored[2], ROLLBACK)
    await site.lead()
    assert list(site.pending) == [0, 3, 4, 5]
    assert site.end(stored[1], COMMIT) == OK
    assert site.end(stored[1], ROLLBACK) == ERROR
    assert site.end(stored[2], COMMIT) == ERROR
    assert site.end(stored[3], COMMIT) == OK
    assert site.delivered() == ["K2", "K4"]
    assert tmp_path.exists()


async def test_a_log_torn_between_message_and_op_message_delivers_once(site: TransactionSite) -> None:
    """The real message is there, nothing says that the half is over: it is found by its key."""
    one, two = site.prepare("one"), site.prepare("two")
    real = site.service.ending._real(site.pending[0])
    site.log.append_batch(real, lambda _results, _code: None)
    await site.lead()
    assert list(site.pending) == [0, 1]
    assert site.end(one, ROLLBACK) == ERROR
    assert site.end(one, COMMIT) == OK
    assert (site.delivered(), site.ops()) == (["one"], ["0,"])
    await site.lead()
    assert list(site.pending) == [1]
    assert site.end(two, COMMIT) == OK


async def test_a_torn_commit_is_not_asked_about(site: TransactionSite) -> None:
    site.connect()
    site.prepare("one")
    site.log.append_batch(site.service.ending._real(site.pending[0]), lambda _results, _code: None)
    await site.lead()
    assert await site.round() == []
    assert (site.pending, site.ops(), site.delivered()) == ({}, ["0,"], ["one"])


async def test_absurd_ends_are_one_clear_error(site: TransactionSite) -> None:
    one = site.prepare()
    for position in (-1, 1, 2**62, 2**63 - 1):
        header = ends(one, COMMIT)
        header.commitLogOffset = position
        answer = site.ask(RequestCode.END_TRANSACTION, header)
        assert isinstance(answer, Command)
        assert (answer.code, answer.remark) == (ERROR, "Find prepared transaction message failed")


async def test_the_bound_of_what_waits_is_answered(site: TransactionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.ending.WAITING_MAX", 2)
    one = site.prepare()
    site.log.held = []
    assert [site.end(one, COMMIT) for _ in range(4)] == [None, None, None, ResponseCode.SYSTEM_BUSY]
    site.log.release()
    assert [answer.code for answer in site.client.answers] == [OK] * 3


async def test_too_many_undecided_are_refused(site: TransactionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.service.PENDING_MAX", 1)
    site.prepare()
    assert site.prepare()["queueOffset"] == "-1"
    assert len(site.pending) == 1


async def test_a_half_leaves_room_for_what_its_copies_name(site: TransactionSite) -> None:
    assert site.prepare(more=f"x\x01{'y' * 32_600}\x02")["queueOffset"] == "-1"
    assert site.prepare(more=f"x\x01{'y' * 32_300}\x02")["queueOffset"] == "0"
    site.connect()
    assert len(await site.round()) == 1


async def test_what_waits_beside_its_end_has_a_bound(site: TransactionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that waits is kept whole, with fields that nobody asked for."""
    monkeypatch.setattr(site.service.ending, "_held", HeldRequests(100_000))
    one, two = site.prepare(), site.prepare()
    site.log.held = []
    codes = []
    for stored in (one, one, two):
        request = Command.request(END, ends(stored, COMMIT), ext={"x": "y" * 60_000})
        try:
            assert site.service.ending.end(cast(Connection, site.client), request) is None
            codes.append(0)
        except CommandError as error:
            codes.append(error.code)
    assert codes == [0, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
    site.log.release()
    assert [answer.code for answer in site.client.answers] == [OK]
    assert site.service.ending._held.bytes == 0
    assert site.end(two, COMMIT) == OK, "a refused one is not left as if it were being written"


async def test_a_store_that_cannot_be_read_is_read_again(
    site: TransactionSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = site.prepare()
    monkeypatch.setattr("broker.transactions.service.LOOK_SECONDS", 0.001)
    fails = iter((True, False))
    entries = site.store.queue_entries

    def queue_entries(*asked: Any) -> Any:
        if next(fails, False):
            raise OSError(5, "the disk is away")
        return entries(*asked)

    monkeypatch.setattr(site.store, "queue_entries", queue_entries)
    site.service.stop()
    site.service.start()
    assert site.end(one, COMMIT) is None
    async with asyncio.timeout(10):
        while not site.client.answers:
            await asyncio.sleep(0)
    assert site.client.answers[-1].code == OK
    assert "the half messages cannot be read" in caplog.text


async def test_halves_that_come_while_the_queues_are_read_are_known(site: TransactionSite) -> None:
    site.service.stop()
    site.log.held = []
    site.prepare_later("one")
    site.service.start()
    site.log.release()
    site.prepare("two")
    while site.service.ending.table is None:
        await asyncio.sleep(0)
    assert sorted(half.key for half in site.pending.values()) == ["one", "two"]
    assert site.service.ending.table.progress() == (0, 0)
