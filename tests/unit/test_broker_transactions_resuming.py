"""What an administrator sees of transactions, and having a producer asked about one again (323)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import orjson
import pytest

from remoting.codes import RequestCode, ResponseCode, TransactionCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import ResumeCheckHalfMessageRequestHeader
from remoting.server import Connection
from remoting.topics import TRANS_CHECK_MAX_TIME_TOPIC
from tests.parts.transaction_parts import COMMIT, GROUP, ROLLBACK, TransactionSite, transaction_site

OK = ResponseCode.SUCCESS
RESUME = RequestCode.RESUME_CHECK_HALF_MESSAGE


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[TransactionSite]:
    async with transaction_site(tmp_path) as made:
        made.connect()
        yield made


async def resume(site: TransactionSite, msg_id: str) -> Command:
    answer = site.ask(RESUME, ResumeCheckHalfMessageRequestHeader(topic=None, msgId=msg_id))
    if isinstance(answer, Command):
        return answer
    try:
        return await answer  # type: ignore[misc, no-any-return] # what a handler may return
    except Exception as error:
        return Command.response(error.code, error.remark)  # type: ignore[attr-defined] # a CommandError


async def test_resuming_asks_about_a_discarded_one_again(tmp_path: Path) -> None:
    async with transaction_site(tmp_path, transactionCheckMax=1) as site:
        site.connect()
        site.prepare("one")
        await site.round()
        await site.round()
        [discarded] = cast(list[dict[str, str]], site.service.page()["discardedHalves"])
        assert discarded["transactionId"] == "one"
        for _ in range(2):
            assert (await resume(site, discarded["id"])).code == OK
        assert list(site.pending) == [0]
        assert site.service.page()["discardedHalves"] == []
        [question] = await site.round()
        assert site.answered(question, COMMIT) == OK
        assert site.delivered() == ["one"]
        # What is over stays over, for the next leader too.
        for _ in range(2):
            assert (await resume(site, discarded["id"])).code == ResponseCode.SYSTEM_ERROR
            await site.lead()
        assert (site.pending, site.delivered()) == ({}, ["one"])


async def test_resuming_begins_the_count_anew_and_refuses_what_is_over(site: TransactionSite) -> None:
    one = site.prepare("one")
    await site.round()
    assert (await resume(site, one["msgId"])).code == OK
    assert [half.checks for half in site.pending.values()] == [0]
    assert site.end(one, ROLLBACK) == OK
    assert (await resume(site, one["msgId"])).code == ResponseCode.SYSTEM_ERROR
    for wrong in ("", "xyz", "0" * 31 + "1", "F" * 32):
        answer = await resume(site, wrong)
        assert answer.code in {ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR}


async def test_the_page_tells_what_is_pending(site: TransactionSite) -> None:
    for _ in range(3):
        site.prepare()
    await site.round()
    page = site.service.page()
    assert (page["pending"], page["oldestMs"], page["discarded"]) == (3, 30_000, 0)
    rows = page["halves"]
    assert isinstance(rows, list)
    assert [(row["producerGroup"], row["topic"], row["checks"], row["ageMs"]) for row in rows] == [
        (GROUP, "T", 1, 30_000)
    ] * 3


async def test_the_page_tells_as_many_as_are_asked_for_and_of_one_group(tmp_path: Path) -> None:
    def told(site: TransactionSite, **asked: object) -> tuple[object, list[str], list[str]]:
        request = Command.request(TransactionCode.STATUS, None, orjson.dumps(asked))
        answer = cast(Command, site.service.table()[TransactionCode.STATUS](cast(Connection, site.client), request))
        page = orjson.loads(bytes(answer.body))
        shown = ([half["transactionId"] for half in page[name]] for name in ("halves", "discardedHalves"))
        return (page["pending"], *shown)

    async with transaction_site(tmp_path, transactionCheckMax=1) as site:
        site.connect()
        for key in ("d1", "d2", "d3"):
            site.prepare(key)
        await site.round()
        await site.round()
        for key in ("p1", "p2", "p3"):
            site.prepare(key)
        assert told(site) == (3, ["p1", "p2", "p3"], ["d3", "d2", "d1"])
        assert told(site, limit=2) == (3, ["p1", "p2"], ["d3", "d2"])
        assert told(site, limit=1, group=GROUP) == (3, ["p1"], ["d3"])
        assert told(site, group="others") == (0, [], [])
        for wrong in ({"limit": 0}, {"limit": 501}, {"limit": True}, {"limit": "9"}, {"group": 7}):
            with pytest.raises(CommandError, match="a limit of 1 to 500"):
                told(site, **wrong)
        for body in (b"[]", b"{", b"7"):
            with pytest.raises(CommandError, match="no JSON object"):
                site.service.table()[TransactionCode.STATUS](
                    cast(Connection, site.client), Command.request(TransactionCode.STATUS, None, body)
                )


async def test_a_resumed_one_is_known_to_the_next_leader_too(tmp_path: Path) -> None:
    """The op message of its discard names it, and is still read: it is of the time before."""
    async with transaction_site(tmp_path, transactionCheckMax=1) as site:
        site.connect()
        one = site.prepare("one")
        await site.round()
        await site.round()
        [discarded] = site.records(TRANS_CHECK_MAX_TIME_TOPIC)
        assert (await resume(site, discarded.offset_msg_id)).code == OK
        await site.lead()
        assert list(site.pending) == [0]
        assert site.end(one, ROLLBACK) == OK
        await site.lead()
        assert site.pending == {}
        assert (await resume(site, discarded.offset_msg_id)).code == ResponseCode.SYSTEM_ERROR


async def test_a_late_rollback_of_a_discarded_one_is_not_forgotten(tmp_path: Path) -> None:
    async with transaction_site(tmp_path, transactionCheckMax=1) as site:
        site.connect()
        one = site.prepare("one")
        await site.round()
        await site.round()
        assert site.end(one, ROLLBACK) == OK
        [discarded] = site.records(TRANS_CHECK_MAX_TIME_TOPIC)
        for _ in range(2):
            await site.lead()
            assert (await resume(site, discarded.offset_msg_id)).code == ResponseCode.SYSTEM_ERROR
            assert site.end(one, COMMIT) == ResponseCode.SYSTEM_ERROR
        assert site.delivered() == []
