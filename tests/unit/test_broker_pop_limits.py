"""POP's limits as consumers meet them: open pops, pops that wait, acknowledgements in one request."""

import asyncio
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.pop import acknowledging, asking
from remoting.bodies.registry import SubscriptionGroupConfig
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import CommandError
from tests.parts.broker_parts import Parts, broker_parts
from tests.properties.test_broker_pop import PopRun


class Asking(PopRun):
    """A broker of which pops are asked by hand; how long they wait is real time."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, random.Random(1))

    async def take(self, **changes: Any) -> Command:
        ext = {"consumerGroup": "G", "topic": "T", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 1000,
               "pollTime": 0, "bornTime": self.now_ms, "initMode": 0, **changes}  # fmt: skip
        return await self.ask(RequestCode.POP_MESSAGE, ext)

    async def parked(self, count: int, **changes: Any) -> "list[asyncio.Task[Command]]":
        """Have so many pops wait for a message."""
        waits = self.service.taking.waiting.size
        tasks = [asyncio.create_task(self.take(pollTime=20_000, **changes)) for _ in range(count)]
        async with asyncio.timeout(5):
            while self.service.taking.waiting.size < waits + count:
                await asyncio.sleep(0)
        return tasks


async def test_no_more_pops_are_open_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "OPEN_MAX", 2)
    async with broker_parts(tmp_path) as parts:
        run = Asking(parts)
        await run.begin()
        for number in range(4):
            parts.put("T", 0, b"%d" % number)
        assert [(await run.take()).code for _ in range(2)] == [0, 0]
        with pytest.raises(CommandError, match="2 pops are not acknowledged") as refused:
            await run.take()
        assert refused.value.code == 2
        # Once their time is over there is room again.
        parts.clock.advance(5)
        await run.service.round()
        assert (await run.take()).code == 0
        await run.service.close()


async def test_no_more_pops_wait_than_may_of_a_group_and_of_all(tmp_path: Path) -> None:
    async with broker_parts(tmp_path, popPollingSize=2, maxPopPollingSize=3) as parts:
        run = Asking(parts)
        parts.groups.update(SubscriptionGroupConfig("H"))
        await run.begin()
        of_one = await run.parked(2)
        full = await run.take(pollTime=20_000)
        assert (full.code, full.remark) == (209, "POLLING_FULL"), "of one group and topic"
        of_other = await run.parked(1, consumerGroup="H")
        full = await run.take(pollTime=20_000, consumerGroup="H")
        assert (full.code, full.remark) == (209, "POLLING_FULL"), "of all"
        notice = {"consumerGroup": "H", "topic": "T", "queueId": 0, "pollTime": 20_000, "bornTime": run.now_ms}
        told = await run.ask(RequestCode.NOTIFICATION, notice)
        assert (told.code, told.ext.get("pollingFull")) == (0, "true"), told
        # Who does not wait is served, and so are the others when somebody leaves.
        assert (await run.take()).code == 210
        parts.put("T", 0, b"here")
        run.service.dispatched({"T"})
        async with asyncio.timeout(5):
            done, _ = await asyncio.wait([*of_one, *of_other], return_when=asyncio.FIRST_COMPLETED)
        assert {task.result().code for task in done} == {0}
        more = await run.parked(1, consumerGroup="H" if of_other[0] in done else "G")
        run.service.stop()
        await run.service.close()
        for task in (*of_one, *of_other, *more):
            task.cancel()
        await asyncio.gather(*of_one, *of_other, *more, return_exceptions=True)


@pytest.mark.parametrize(("count", "refused"), [(2, False), (3, True)])
async def test_a_request_acknowledges_so_many_check_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, refused: bool
) -> None:
    monkeypatch.setattr(acknowledging, "BATCH_MAX", 2)
    async with broker_parts(tmp_path) as parts:
        run = Asking(parts)
        await run.begin()
        ack = {"c": "G", "t": "T", "r": "0", "so": 0, "rq": 0, "pt": 1, "it": 1000, "q": 0, "b": "AQ=="}
        body = orjson.dumps({"brokerName": "broker-a", "acks": [ack] * count})
        if refused:
            with pytest.raises(CommandError, match="at most 2 check points"):
                await run.ask(RequestCode.BATCH_ACK_MESSAGE, body=body)
        else:
            assert (await run.ask(RequestCode.BATCH_ACK_MESSAGE, body=body)).code == 0
        await run.service.close()
