"""broker/master_slave/admin.py: what a master and a slave tell of themselves and of their logs."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from broker.master_slave import digests
from broker.master_slave.admin import PairHandlers
from broker.master_slave.digests import Digests
from broker.settings.pair_proof import PairProof
from remoting.bodies.registry import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection
from store.log.logbytes import Hash

NOBODY = cast(Connection, SimpleNamespace(peer=("10.0.0.9", 1)))
LOG = bytes(range(256)) * 8


class Log:
    """2 KiB of log, of which the first 512 bytes are deleted."""

    file_bytes = 1024

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failure: OSError | None = None
        self.read: list[tuple[int, int]] = []

    def hash_into(self, found: Hash, begin: int, end: int) -> bool:
        self.gate.wait(10)
        self.read.append((begin, end))
        if self.failure is not None:
            raise self.failure
        if begin < 512 or end > len(LOG):
            return False
        found.update(LOG[begin:end])
        return True


class Desk:
    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.log = Log()
        info = HARuntimeInfo(master=True, masterCommitLogMaxOffset=2048, inSyncSlaveNums=1)
        info.haConnectionInfo = [HAConnectionInfo("10.0.0.2:4711", 2000, 48, True, 77, 2048)]
        self.admin = PairHandlers(lambda: {"role": "SLAVE"}, lambda: info, PairProof())
        self.refusal: str | None = None
        self.answers = Digests(self.log, threads, "cafe", lambda _connection, _request: self.refusal)

    async def digests(self, ranges: object, **more: object) -> list[str | None]:
        request = Command(code=int(ClassicCode.DIGEST), body=orjson.dumps({"ranges": ranges, **more}))
        answer = await self.answers.digest(NOBODY, request)
        fields = orjson.loads(bytes(answer.body))
        assert (answer.code, fields["incarnation"]) == (ResponseCode.SUCCESS, "cafe")
        found: list[str | None] = fields["digests"]
        return found


@pytest.fixture
def desk() -> Iterator[Desk]:
    with ThreadPoolExecutor(2) as threads:
        yield Desk(threads)


def test_the_status_and_rocketmqs_figures_are_told(desk: Desk) -> None:
    assert sorted(desk.admin.table()) == [RequestCode.GET_BROKER_HA_STATUS, ClassicCode.STATUS]
    assert list(desk.answers.table()) == [ClassicCode.DIGEST]
    answer = desk.admin.status(NOBODY, Command(code=int(ClassicCode.STATUS)))
    assert orjson.loads(bytes(answer.body)) == {"role": "SLAVE"}
    told = desk.admin.ha_status(NOBODY, Command(code=int(RequestCode.GET_BROKER_HA_STATUS)))
    assert orjson.loads(bytes(told.body)) == {
        "master": True,
        "masterCommitLogMaxOffset": 2048,
        "inSyncSlaveNums": 1,
        "haConnectionInfo": [
            {
                "addr": "10.0.0.2:4711",
                "slaveAckOffset": 2000,
                "diff": 48,
                "inSync": True,
                "transferredByteInSecond": 77,
                "transferFromWhere": 2048,
            }
        ],
        "haClientRuntimeInfo": {
            "transferredByteInSecond": 0,
            "maxOffset": 0,
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterFlushOffset": 0,
            "activated": False,
            "isActivated": False,
        },
    }
    assert HARuntimeInfo.decode(told.body).haClientRuntimeInfo == HAClientInfo()


async def test_R16_digests_of_ranges_are_told_and_null_for_what_is_not_kept(desk: Desk) -> None:
    found = await desk.digests([[512, 1024], [1000, 1000], [0, 600], [1024, 4096]])
    assert found == [hashlib.sha256(LOG[512:1024]).hexdigest(), hashlib.sha256().hexdigest(), None, None]
    assert await desk.digests([]) == []


@pytest.mark.parametrize(
    "ranges",
    [None, {}, [[1]], [[2, 1]], [[-1, 1]], [["0", 1]], [[True, 2]], [[0, 1 << 63]], [[0, 1]] * 257, [[0, 1 << 40]]],
)
async def test_what_is_no_range_is_refused(desk: Desk, ranges: Any) -> None:
    with pytest.raises(CommandError, match="range") as caught:
        await desk.digests(ranges)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("body", [b"[", b"[]", b"1", b" " * (digests.BODY_BYTES_MAX + 1)])
async def test_what_is_no_request_is_refused(desk: Desk, body: bytes) -> None:
    with pytest.raises(CommandError) as caught:
        await desk.answers.digest(NOBODY, Command(code=int(ClassicCode.DIGEST), body=body))
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


async def test_a_disk_that_fails_costs_its_asker_an_error(desk: Desk) -> None:
    desk.log.failure = OSError(5, "Input/output error")
    with pytest.raises(CommandError, match="cannot be read") as caught:
        await desk.digests([[512, 600]])
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    desk.log.failure = None
    assert len(await desk.digests([[512, 600]])) == 1


async def test_only_so_many_may_wait(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "WAITING_MAX", 2)
    desk.log.gate.clear()
    waiting = [asyncio.ensure_future(desk.digests([[512, 600]])) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(CommandError) as caught:
        await desk.digests([[512, 600]])
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    desk.log.gate.set()
    first, second = await asyncio.gather(*waiting)
    assert first == second
    assert await desk.digests([[512, 600]]) == first


async def test_a_host_has_a_share_of_those_that_wait(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "WAITING_PER_HOST_MAX", 1)
    desk.log.gate.clear()
    waiting = asyncio.ensure_future(desk.digests([[512, 600]]))
    await asyncio.sleep(0)
    with pytest.raises(CommandError) as caught:
        await desk.digests([[512, 600]])
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    elsewhere = cast(Connection, SimpleNamespace(peer=("10.0.0.10", 1)))
    request = Command(code=int(ClassicCode.DIGEST), body=b'{"ranges":[[512,700]]}')
    other = asyncio.ensure_future(desk.answers.digest(elsewhere, request))
    desk.log.gate.set()
    await waiting
    assert (await other).code == ResponseCode.SUCCESS


async def test_large_ranges_are_read_by_turns(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "TURN_BYTES", 256)
    first, second = await asyncio.gather(desk.digests([[512, 2000]]), desk.digests([[1024, 1400]]))
    assert first == [hashlib.sha256(LOG[512:2000]).hexdigest()]
    assert second == [hashlib.sha256(LOG[1024:1400]).hexdigest()]
    begins = [begin for begin, _ in desk.log.read]
    assert begins == [512, 1024, 768, 1280, 1024, 1280, 1536, 1792]


async def test_who_may_not_ask_is_told_why_and_nothing_is_read(desk: Desk) -> None:
    desk.refusal = "10.0.0.9 is no slave"
    with pytest.raises(CommandError, match="is no slave") as caught:
        await desk.digests([[512, 600]])
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert desk.log.read == []
