"""Rounds over undecided transactions: who is asked, when, what is given up, and how far the queues' offsets move."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from remoting.codes import ResponseCode
from remoting.record import decode_record
from remoting.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from runtime.timings import Timings
from store.errors import RecordDamaged
from store.types import PutStatus
from tests.parts.transaction_parts import COMMIT, ROLLBACK, UNKNOWN, Client, TransactionSite, transaction_site

OK = ResponseCode.SUCCESS


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[TransactionSite]:
    async with transaction_site(tmp_path) as made:
        made.connect()
        yield made


async def test_a_producer_is_asked_once_its_time_is_over_and_ends_it_by_its_answer(site: TransactionSite) -> None:
    site.prepare("one")
    assert await site.round(5.0) == []
    [question] = await site.round(1.0)
    assert question.is_oneway
    assert question.ext["tranStateTableOffset"] == "1"
    message = decode_record(question.body)
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"one")
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert site.answered(question, COMMIT) == OK
    assert site.delivered() == ["one"]
    assert site.ops() == ["0,1,"]
    assert await site.round() == []


async def test_an_answer_to_any_copy_ends_it_and_only_once(site: TransactionSite) -> None:
    """With RocketMQ an end that crosses a check delivers twice."""
    one = site.prepare("one")
    [first] = await site.round()
    [second] = await site.round()
    assert site.end(one, COMMIT) == OK
    assert site.answered(first, COMMIT) == OK
    assert site.answered(second, COMMIT) == OK
    assert site.answered(second, ROLLBACK) == ResponseCode.SYSTEM_ERROR
    assert site.delivered() == ["one"]
    await site.lead()
    assert site.answered(first, COMMIT) == OK
    assert site.delivered() == ["one"]


async def test_an_end_that_comes_while_a_copy_is_written_waits_for_it(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.log.held = []
    site.clock.advance(30)
    view = site.store.record_at(site.pending[0].position)
    assert view is not None
    table = site.service.ending.table
    assert table is not None
    done = site.service.checker.renew(table, site.pending[0], view, 1, ask=True)
    assert site.end(one, COMMIT) is None
    site.log.release()
    assert await done
    assert site.client.asked == []
    assert site.client.answers[-1].code == OK
    assert (site.delivered(), site.ops()) == (["one"], ["0,1,"])


async def test_one_connection_is_asked_at_a_time_the_next_when_it_takes_nothing(site: TransactionSite) -> None:
    other, third = Client(), Client()
    site.connect(other)
    site.connect(third, group="Others")
    for _ in range(4):
        site.prepare()
    await site.round()
    assert (len(site.client.asked), len(other.asked), len(third.asked)) == (2, 2, 0)
    site.client.full = True
    await site.round()
    assert len(other.asked) == 6
    other.closed = True
    await site.round()
    assert len(other.asked) == 6
    assert [half.checks for half in site.pending.values()] == [3] * 4


async def test_an_immunity_time_keeps_a_producer_from_being_asked(site: TransactionSite) -> None:
    """RocketMQ counts such rounds too, and discards a half after transactionCheckMax of them without asking."""
    site.prepare("one", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01700\x02")
    for _ in range(20):
        assert await site.round() == []
    assert [half.checks for half in site.pending.values()] == [0]
    await site.round(110)
    assert len(site.client.asked) == 1


async def test_after_the_last_check_it_is_given_up(tmp_path: Path) -> None:
    async with transaction_site(tmp_path, transactionCheckMax=3) as site:
        site.connect()
        one = site.prepare("one")
        asked = [len(await site.round()) for _ in range(5)]
        assert asked == [1, 1, 1, 0, 0]
        assert site.pending == {}
        [discarded] = site.records(TRANS_CHECK_MAX_TIME_TOPIC)
        assert discarded.properties["TRANSACTION_CHECK_TIMES"] == "3"
        assert discarded.properties["REAL_TOPIC"] == "T"
        assert site.ops() == ["0,3,"]
        assert site.parts.topics.get(TRANS_CHECK_MAX_TIME_TOPIC) is not None
        # Its producer may still end it, as with RocketMQ; here once.
        assert [site.end(one, COMMIT) for _ in range(2)] == [OK, OK]
        await site.lead()
        assert site.end(one, COMMIT) == OK
        assert site.end(one, ROLLBACK) == ResponseCode.SYSTEM_ERROR
        assert site.delivered() == ["one"]


async def test_what_is_older_than_the_log_keeps_is_given_up(site: TransactionSite) -> None:
    site.prepare(more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01999999\x02")
    await site.round(72 * 3600 + 1)
    assert site.pending == {}
    assert len(site.records(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


async def test_progress_is_committed_a_round_later_once_the_log_is_on_the_disk(site: TransactionSite) -> None:
    stored = [site.prepare() for _ in range(3)]
    for one in stored:
        site.end(one, COMMIT)
    await site.round()
    assert site.committed() == (-1, -1)
    await site.flushed()
    await site.round()
    assert site.committed() == (3, 3)
    await site.lead()
    assert site.pending == {}


async def test_copies_let_the_offsets_pass_the_undecided(site: TransactionSite) -> None:
    site.prepare("one")
    for _ in range(4):
        await site.round()
        await site.flushed()
    halves, _ops = site.committed()
    assert halves == 3
    await site.lead()
    assert {root: (half.offset, half.checks) for root, half in site.pending.items()} == {0: (4, 4)}
    [question] = await site.round()
    assert site.answered(question, COMMIT) == OK
    assert site.delivered() == ["one"]


async def test_a_half_with_a_long_immunity_moves_when_many_come_after_it(
    site: TransactionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.transactions.checker.BEHIND_MAX", 2)
    site.prepare("one", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x013600\x02")
    for _ in range(3):
        site.end(site.prepare(), COMMIT)
    assert await site.round() == []
    [copy] = [message for message in site.records(TRANS_HALF_TOPIC) if message.queue_offset == 4]
    assert (copy.properties["TRANSACTION_CHECK_TIMES"], copy.properties["TRAN_PREPARED_QUEUE_OFFSET"]) == ("0", "0")
    await site.lead()
    assert {root: half.offset for root, half in site.pending.items()} == {0: 4}
    assert await site.round(3600) != []


async def test_what_stands_before_one_that_is_asked_about_moves_with_it(site: TransactionSite) -> None:
    """Else RocketMQ, opening the folder, would take the older copy of the other one for a transaction of its own."""
    site.prepare("first", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x013600\x02")
    site.prepare("second")
    assert len(await site.round()) == 1
    assert {half.key: (half.offset, half.checks) for half in site.pending.values()} == {
        "first": (2, 0),
        "second": (3, 1),
    }


async def test_a_refused_copy_changes_nothing(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.log.refuses = (PutStatus.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert await site.round() == []
    site.log.refuses = None
    assert [half.checks for half in site.pending.values()] == [0]
    assert site.end(one, COMMIT) == OK


async def test_a_clock_that_was_set_back_keeps_nobody_waiting(site: TransactionSite) -> None:
    site.prepare()
    site.clock.set_wall(site.clock.now_ms() - 86_400_000)
    assert len(await site.round()) == 1


async def test_settings_count_at_once(site: TransactionSite) -> None:
    site.prepare()
    site.parts.config.update({"transactionTimeOut": "100000"})
    assert await site.round() == []
    site.parts.config.update({"transactionTimeOut": "1000"})
    assert len(await site.round()) == 1


async def test_ends_are_counted_under_rocketmqs_names(site: TransactionSite) -> None:
    stored = [site.prepare() for _ in range(4)]
    site.end(stored[0], COMMIT)
    site.end(stored[0], COMMIT)
    site.end(stored[1], ROLLBACK)
    site.end(stored[2], UNKNOWN)
    await site.round()
    figures = {figure.name: figure.values for figure in site.service.figures()}
    assert figures["rocketmq_half_messages"] == [(("T", "false"), 2)]
    assert figures["rocketmq_commit_messages_total"] == [(("T", "false"), 1)]
    assert figures["rocketmq_rollback_messages_total"] == [(("T", "false"), 1)]
    assert figures["raftmq_transaction_checks_total"] == [((), 2)]
    assert cast(Timings, figures["rocketmq_finish_message_latency"][0][1]).counts[0] == 1


async def test_a_discarded_one_is_ended_once_by_two_at_a_time(tmp_path: Path) -> None:
    async with transaction_site(tmp_path, transactionCheckMax=1) as site:
        site.connect()
        one = site.prepare("one")
        await site.round()
        await site.round()
        site.log.held = []
        assert [site.end(one, how) for how in (COMMIT, COMMIT, ROLLBACK)] == [None] * 3
        site.log.release()
        assert [answer.code for answer in site.client.answers] == [OK, OK, ResponseCode.SYSTEM_ERROR]
        assert site.delivered() == ["one"]


async def test_a_round_fills_no_log(
    site: TransactionSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.transactions.checker.LINES_MAX", 2)
    site.client.closed = True
    for _ in range(5):
        site.prepare()
    await site.round()
    assert [record.getMessage() for record in caplog.records if "is there to be asked" in record.getMessage()] == [
        "transaction K1: nobody of producer group TxGroup is there to be asked"
    ]
    caplog.clear()
    await site.round(72 * 3600 + 1)
    assert len([record for record in caplog.records if "given up" in record.getMessage()]) == 2
    assert site.service.checker.given_up == 5


async def test_all_that_is_due_is_asked_about_in_one_round(site: TransactionSite) -> None:
    for _ in range(200):
        site.prepare()
    asked = await site.round()
    assert [int(question.ext["tranStateTableOffset"]) for question in asked] == list(range(200, 400))


async def test_what_is_wrong_with_one_keeps_a_round_from_no_other(
    site: TransactionSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        site.prepare()
    read, bad = site.store.record_at, site.pending[1].position

    def record_at(position: int) -> memoryview | None:
        if position == bad:
            raise OSError(5, "unreadable")
        return read(position)

    monkeypatch.setattr(site.store, "record_at", record_at)
    assert [question.ext["msgId"] for question in await site.round()] == ["K1", "K3"]
    assert "half message 1 of group TxGroup cannot be looked at" in caplog.text
    monkeypatch.setattr(site.store, "record_at", read)
    assert [question.ext["msgId"] for question in await site.round()] == ["K2", "K1", "K3"]


async def test_a_half_that_stays_damaged_holds_up_the_offset_until_it_would_be_given_up(
    site: TransactionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare()

    def record_at(position: int) -> memoryview | None:
        raise RecordDamaged(position, "another CRC")

    monkeypatch.setattr(site.store, "record_at", record_at)
    assert await site.round() == []
    assert list(site.pending) == [0]
    await site.round(72 * 3600 + 1)
    assert site.pending == {}


async def test_a_topic_that_was_deleted_does_not_come_back_by_a_commit(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.clock.advance(1)
    site.parts.topics.delete("T")
    await site.parts.topics.save()
    await site.round()
    assert site.end(one, COMMIT) == OK
    assert site.parts.topics.get("T") is None


async def test_a_topic_that_a_crash_took_is_there_again_for_its_halves(site: TransactionSite) -> None:
    one = site.prepare("one")
    site.parts.topics.delete("T")
    await site.parts.topics.save()
    await site.lead()
    found = site.parts.topics.get("T")
    assert found is not None
    assert found.readQueueNums >= 2
    assert site.end(one, COMMIT) == OK
