"""What a slave asks of its master and of its own store, and what it makes of bad answers."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from broker.master_slave import ha_source
from broker.master_slave.ha_compare import MasterLog
from broker.master_slave.ha_source import FactsMissing, HaSource, record_border
from broker.settings.pair_keys import ASYNC_MASTER, SYNC_MASTER
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError, InvokeTimeout
from tests.parts.ha_logs import FILE_BYTES, MadeLog, made

MASTER = "10.0.0.1:10911"
STATUS = {
    "role": SYNC_MASTER,
    "incarnation": "i1",
    "min": 1024,
    "max": 5000,
    "fileBytes": 1024,
    "epoch": 3,
    "fenced": None,
    "more": [],
}


class Bytes:
    """A store as OwnBytes sees it."""

    file_bytes = FILE_BYTES

    def __init__(self, log: MadeLog) -> None:
        self.log = log
        self.error: Exception | None = None
        self.reads = 0

    def digest(self, begin: int, end: int) -> str | None:
        if self.error is not None:
            raise self.error
        if not self.log.begin <= begin <= end <= self.log.end:
            return None
        return hashlib.sha256(self.log.data[begin:end]).hexdigest()

    def read_piece_cold(self, position: int, size_max: int) -> bytes:
        self.reads += 1
        end = min(position + size_max, self.log.end, position - position % FILE_BYTES + FILE_BYTES)
        return bytes(self.log.data[position:end])


class Caller:
    """Answers by code: a body, a Command, or an error."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int, Any]] = []

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:  # noqa: ARG002 # RemotingClient has it
        body = orjson.loads(bytes(request.body)) if request.body else None
        self.asked.append((address, request.code, body))
        await asyncio.sleep(0)
        names: dict[int, str] = {
            ClassicCode.STATUS: "status",
            ClassicCode.DIGEST: "digest",
            RequestCode.GET_BROKER_RUNTIME_INFO: "info",
            RequestCode.GET_BROKER_CONFIG: "config",
        }
        answer = self.answers[names[request.code]]
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Command):
            return answer
        content = answer if isinstance(answer, bytes) else orjson.dumps(answer)
        return Command.response(ResponseCode.SUCCESS, None, None, content)


def refused(code: int) -> Command:
    return Command.response(code, "no")


@asynccontextmanager
async def source(caller: Caller, log: MadeLog | None = None) -> AsyncIterator[tuple[HaSource, Bytes]]:
    own = Bytes(made(60) if log is None else log)
    with ThreadPoolExecutor(2) as threads:
        yield HaSource(caller, own, asyncio.get_running_loop(), threads), own


def digests_of(log: MadeLog, incarnation: str = "i1") -> Callable[[Any], Any]:
    def answer(body: Any) -> Any:
        return {"incarnation": incarnation, "digests": [Bytes(log).digest(*each) for each in body["ranges"]]}

    return answer


async def test_a_master_of_ours_says_all_in_its_status() -> None:
    caller = Caller(status=STATUS)
    async with source(caller) as (asks, _):
        assert await asks.master_log(MASTER) == MasterLog(SYNC_MASTER, 1024, 5000, 1024, "i1", 3, "")
        caller.answers["status"] = {**STATUS, "fenced": "n2 leads"}
        assert (await asks.master_log(MASTER)).fenced == "n2 leads"
    assert caller.asked[0] == (MASTER, ClassicCode.STATUS, None)


@pytest.mark.parametrize(
    "status",
    [
        {**STATUS, "incarnation": ""},
        {**STATUS, "incarnation": None},
        {**STATUS, "max": "5000"},
        {**STATUS, "min": -1},
        {**STATUS, "epoch": True},
        {key: value for key, value in STATUS.items() if key != "role"},
        [],
        b"no JSON",
        ConnectError("no connection"),
        InvokeTimeout("no answer"),
        refused(ResponseCode.SYSTEM_BUSY),
    ],
)
async def test_R16_a_status_that_cannot_be_had_decides_nothing(status: Any) -> None:
    async with source(Caller(status=status)) as (asks, _):
        with pytest.raises(FactsMissing, match=MASTER):
            await asks.master_log(MASTER)


async def test_a_rocketmq_master_is_asked_for_what_it_tells_everybody() -> None:
    caller = Caller(
        status=refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        info=b'{"table":{"commitLogMinOffset":"1024","commitLogMaxOffset":"5000"}}',
        config=b"brokerRole=ASYNC_MASTER\nmappedFileSizeCommitLog=1024\n",
    )
    async with source(caller) as (asks, _):
        assert await asks.master_log(MASTER) == MasterLog(ASYNC_MASTER, 1024, 5000, 1024)
        caller.answers["info"] = caller.answers["config"] = refused(ResponseCode.NO_PERMISSION)
        # The role that forbids most, as long as none is told.
        assert await asks.master_log(MASTER) == MasterLog(SYNC_MASTER, 0, None, None)


async def test_R16_a_rocketmq_master_that_does_not_answer_is_not_one_that_refuses() -> None:
    caller = Caller(
        status=refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        info=InvokeTimeout("late"),
        config=InvokeTimeout("late"),
    )
    async with source(caller) as (asks, _):
        with pytest.raises(FactsMissing):
            await asks.master_log(MASTER)
        caller.answers["info"] = {"table": {}}
        with pytest.raises(FactsMissing):
            await asks.master_log(MASTER)


async def test_ranges_are_compared_by_digest_in_one_request() -> None:
    own, master = made(60), made(60)
    master.data[1500] ^= 1
    caller = Caller(digest=digests_of(master))
    async with source(caller, own) as (asks, _):
        ranges = [(0, 1024), (1024, 1500), (1500, 1501), (1501, 2048)]
        assert await asks.logs(MASTER, "i1").same(ranges) == [True, True, False, True]
    assert caller.asked == [(MASTER, ClassicCode.DIGEST, {"ranges": [list(each) for each in ranges]})]


async def test_a_request_asks_for_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_source, "ASK_BYTES_MAX", 1500)
    log = made(60)
    caller = Caller(digest=digests_of(log))
    async with source(caller, log) as (asks, _):
        assert await asks.logs(MASTER, "i1").same([(0, 1024), (1024, 1400), (1400, 2000), (2048, 2050)]) == [True] * 4
    assert [len(body["ranges"]) for _, _, body in caller.asked] == [2, 2]


async def test_R16_a_master_that_is_another_by_the_second_answer_decides_nothing() -> None:
    caller = Caller(digest=digests_of(made(60), "i2"))
    async with source(caller) as (asks, _):
        with pytest.raises(FactsMissing, match="started again"):
            await asks.logs(MASTER, "i1").same([(0, 1024)])


@pytest.mark.parametrize(
    "digest",
    [
        {"incarnation": "i1", "digests": [None]},
        {"incarnation": "i1", "digests": []},
        {"incarnation": "i1", "digests": ["a", "b"]},
        {"incarnation": "i1"},
        {"digests": ["a"]},
        InvokeTimeout("late"),
        refused(ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_R16_digests_that_cannot_be_had_decide_nothing(digest: Any) -> None:
    async with source(Caller(digest=digest)) as (asks, _):
        with pytest.raises(FactsMissing):
            await asks.logs(MASTER, "i1").same([(0, 1024)])


async def test_R16_an_own_log_that_cannot_be_read_decides_nothing() -> None:
    async with source(Caller(digest={"incarnation": "i1", "digests": ["a"]})) as (asks, own):
        own.log.begin = 1024
        with pytest.raises(FactsMissing, match="own log"):
            await asks.logs(MASTER, "i1").same([(0, 1024)])
        for error in (OSError("the disk fails"), EOFError("too short")):
            own.error = error
            with pytest.raises(FactsMissing, match="own log"):
                await asks.logs(MASTER, "i1").same([(1024, 2048)])


def test_borders_are_found_as_the_records_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    log = made(30, size=150)
    for read_at_once in (8, 100, 1 << 20):
        monkeypatch.setattr(ha_source, "WALK_BYTES", read_at_once)
        for position in range(0, log.end + 1, 7):
            assert record_border(Bytes(log), position) == log.border(position)
        for position in log.borders:
            assert record_border(Bytes(log), position) == position


def test_large_records_are_stepped_over_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_source, "WALK_BYTES", 8)
    log = MadeLog()
    log.add(bytes(300))
    log.add(bytes(300))
    own = Bytes(log)
    assert record_border(own, log.end) == log.end
    assert own.reads == 2


async def test_R16_no_border_is_guessed_in_a_damaged_log() -> None:
    log = made(5)
    async with source(Caller(), log) as (asks, _):
        assert await asks.own_border(log.end - 1) == log.borders[-2]
        log.data[log.borders[2] + 5] ^= 1
        with pytest.raises(FactsMissing, match=f"damaged at {log.borders[2]}"):
            await asks.own_border(log.end - 1)
