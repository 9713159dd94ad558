"""POP in order against a model: random takings, acknowledgements, waits, attempts and kills of one broker.

Of each queue comes what is not done, beginning with the first of it and leaving out nothing; it comes when nobody else
has anything of the queue; what is done does not come again; and in the end all is done. A seed is one run.
"""

import base64
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.pop.check_points import CheckPointTable
from broker.pop.held import HeldQueue
from broker.pop.service import PopService
from remoting.codes import RequestCode
from tests.parts.broker_parts import Parts, broker_parts
from tests.parts.popping import Popped, popped
from tests.properties.test_broker_pop import QUEUES, PopRun

STEPS = 60
SOONEST_FIRST = [0, 100, 1000, 5000]


class Holding(NamedTuple):
    """Who has a message: by what handle (None: the answer was lost), until when, by which attempt, how often before."""

    popped: Popped | None
    until_ms: int
    attempt: str
    times: int


class OrderRun(PopRun):
    """One broker, and what consumers in order know."""

    def __init__(self, parts: Parts, rng: random.Random, *, shared: bool = False) -> None:
        super().__init__(parts, rng, shared=shared)
        self.sent_to: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
        self.holdings: dict[bytes, Holding] = {}
        self.stale: list[Popped] = []

    def send(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            queue, body = self.rng.randrange(QUEUES), b"%d" % self.sent
            self.parts.put("T", queue, body)
            self.sent_to[queue].append(body)
            self.sent += 1

    def _coming(self, queue: int) -> list[bytes]:
        return [body for body in self.sent_to[queue] if body not in self.done]

    def _is_free(self, queue: int, attempt: str) -> bool:
        held = [self.holdings[body] for body in self.sent_to[queue] if body in self.holdings]
        return all(each.until_ms <= self.now_ms or (attempt and each.attempt == attempt) for each in held)

    async def _taken(self, invisible_ms: int) -> dict[int, list[Popped]]:
        """Pop, and compare what comes with what has to."""
        attempt, most = self.rng.choice(["", "", "a", "b"]), self.rng.choice([1, 3, 32])
        free = {queue for queue in range(QUEUES) if self._is_free(queue, attempt)}
        answer = await self.ask(
            RequestCode.POP_MESSAGE,
            {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": most, "invisibleTime": invisible_ms,
             "pollTime": 0, "bornTime": self.now_ms, "initMode": 0, "order": "true", "attemptId": attempt},
        )  # fmt: skip
        assert answer.code in {0, 210}, answer.remark
        assert answer.ext["reviveQid"] == "999"
        told = [each.split(" ") for each in answer.ext["orderCountInfo"].split(";") if "%" in each]
        counts = {(key, int(times)) for _kind, key, times in told}
        came: dict[int, list[Popped]] = {}
        for each in popped(answer) if answer.code == 0 else []:
            assert each.message.topic == "T"
            came.setdefault(each.message.queue_id, []).append(each)
        for queue, found in came.items():
            assert queue in free, "somebody has messages of the queue"
            bodies = [each.body for each in found]
            assert bodies == self._coming(queue)[: len(bodies)], "it is not in order"
            for each in found:
                before = self.holdings.get(each.body)
                times = 0 if before is None else before.times + (not attempt or before.attempt != attempt)
                assert times == 0 or (f"qo{queue}%{each.message.queue_offset}", times) in counts
                if before is not None and before.popped is not None:
                    self.stale.append(before.popped)
                until = int(each.handle.split(" ")[1]) + invisible_ms
                self.holdings[each.body] = Holding(each, until, attempt, times)
        if sum(map(len, came.values())) < most:
            assert all(queue in came for queue in free if self._coming(queue)), "a free queue gives nothing"
        return came

    async def pop(self, invisible_ms: int | None = None) -> list[Popped]:
        came = await self._taken(self.rng.choice(SOONEST_FIRST) if invisible_ms is None else invisible_ms)
        if self.shared:
            await self.persist()
        await self.service.round()
        return [each for found in came.values() for each in found]

    async def pop_in_vain(self) -> None:
        """Take, and have the leader fall before it answers: before or after the offset is agreed upon."""
        had = set(self.holdings)
        came = await self._taken(self.rng.choice(SOONEST_FIRST))
        agreed = self.rng.random() < 0.5
        if agreed:
            await self.persist()
        for each in (each for found in came.values() for each in found):
            if agreed or each.body in had:
                # The next leader knows that it was taken, and nobody has a handle.
                self.holdings[each.body] = self.holdings[each.body]._replace(popped=None)
            else:
                del self.holdings[each.body]
        await self.kill()

    def _handled(self) -> list[tuple[bytes, Popped]]:
        found = [(body, each.popped) for body, each in sorted(self.holdings.items()) if each.popped is not None]
        return [(body, one) for body, one in self.rng.sample(found, min(len(found), self.rng.randrange(1, 5))) if one]

    def _acked(self, body: bytes) -> None:
        del self.holdings[body]
        self.done.add(body)

    async def _ack(self, each: Popped) -> int:
        answer = await self.ask(
            RequestCode.ACK_MESSAGE,
            {"consumerGroup": "G", "topic": "T", "queueId": each.message.queue_id, "extraInfo": each.handle,
             "offset": each.message.queue_offset},
        )  # fmt: skip
        return answer.code

    async def acknowledge(self) -> None:
        if self.stale and self.rng.random() < 0.3:
            # A handle of an earlier taking is of nothing.
            assert await self._ack(self.rng.choice(self.stale)) == 0
        for body, each in self._handled():
            assert await self._ack(each) == 0
            self._acked(body)

    async def acknowledge_all(self) -> None:
        chosen = self._handled()
        acks = []
        for _body, each in chosen:
            start, pop_ms, invisible, revive, kind, _broker, queue, offset = each.handle.split(" ")
            bits = 1 << (int(offset) - int(start))
            packed = base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little"))
            acks.append({"c": "G", "t": "T", "r": kind, "so": int(start), "q": int(queue), "rq": int(revive),
                         "pt": int(pop_ms), "it": int(invisible), "b": packed.decode()})  # fmt: skip
        answer = await self.ask(RequestCode.BATCH_ACK_MESSAGE, body=orjson.dumps({"brokerName": "b", "acks": acks}))
        assert answer.code == 0
        for body, _each in chosen:
            self._acked(body)

    async def put_off(self) -> None:
        for body, each in self._handled():
            later = self.rng.choice([0, 300, 3000])
            answer = await self.ask(
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                {"consumerGroup": "G", "topic": "T", "queueId": each.message.queue_id, "extraInfo": each.handle,
                 "offset": each.message.queue_offset, "invisibleTime": later},
            )  # fmt: skip
            pop_ms = int(each.handle.split(" ")[1])
            told = {"popTime": str(pop_ms), "invisibleTime": str(self.now_ms + later - pop_ms), "reviveQid": "999"}
            assert (answer.code, answer.ext) == (0, told)
            self.holdings[body] = self.holdings[body]._replace(until_ms=self.now_ms + later)

    async def wait(self) -> None:
        # A day, too: what nobody asks for is written anew meanwhile.
        self.parts.clock.advance(self.rng.choice([0.05, 0.5, 2.0, 10.0, 86_400.0]))
        await self.service.round()
        if self.holdings and all(each.until_ms + 3_600_000 < self.now_ms for each in self.holdings.values()):
            # Each a millisecond later than the one before.
            self.parts.clock.advance(0.01)
            self._all_renewed()

    def _all_renewed(self) -> None:
        for body, each in self.holdings.items():
            if each.popped is not None:
                self.stale.append(each.popped)
            self.holdings[body] = each._replace(popped=None)

    async def finish(self) -> None:
        """Take and acknowledge until nothing comes any more: then everything is done."""
        for _ in range(3):
            self.parts.clock.advance(20.0)
            await self.service.round()
            while await self.pop(60_000):
                while self._any_handled():
                    await self.acknowledge()
        assert self.done == {b"%d" % number for number in range(self.sent)}
        assert len(self.service._feed.table) == 0
        assert self.service._feed.table._over == set()

    def _any_handled(self) -> bool:
        return any(each.popped is not None for each in self.holdings.values())


async def run(folder: Path, seed: int, *, shared: bool) -> None:
    async with broker_parts(folder) as parts:
        one = OrderRun(parts, random.Random(seed), shared=shared)
        await one.begin()
        try:
            for _ in range(STEPS):
                await one.step()
            await one.finish()
        finally:
            await one.service.close()


@given(seed=st.integers(0, 2**32), shared=st.booleans())
async def test_what_is_taken_in_order_comes_in_order_and_is_not_lost(seed: int, shared: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await run(Path(folder), seed, shared=shared)


@contextmanager
def planted(target: type, name: str, wrong: Any) -> Iterator[None]:
    right = getattr(target, name)
    setattr(target, name, wrong(right))
    try:
        yield
    finally:
        setattr(target, name, right)


def impatient(_right: Any) -> Any:
    """What others have may be taken."""
    return lambda *_args: True


def pushing(_right: Any) -> Any:
    """What follows does not wait for what is open."""
    return lambda *_args: False


def backwards(right: Any) -> Any:
    """The last one comes first."""
    return lambda self: right(self)[::-1]


def doubling(_right: Any) -> Any:
    """What is taken anew is still held by who had it before."""
    return lambda *_args: ()


def deaf(_right: Any) -> Any:
    """Nobody learns that a message was put off."""
    return lambda *_args: None


def forgetful(_right: Any) -> Any:
    """After a kill a group goes on where its offsets were last written."""
    return lambda _self: None


@pytest.mark.parametrize(
    ("target", "name", "wrong"),
    [
        (HeldQueue, "free", impatient),
        (HeldQueue, "__bool__", pushing),
        (HeldQueue, "coming", backwards),
        (HeldQueue, "ended", doubling),
        (CheckPointTable, "put_off", deaf),
        (PopService, "_go_on", forgetful),
    ],
)
async def test_a_planted_mistake_is_found(tmp_path: Path, target: type, name: str, wrong: Any) -> None:
    with planted(target, name, wrong):
        for seed in range(40):
            try:
                await run(tmp_path / str(seed), seed, shared=False)
            except AssertionError:
                return
    pytest.fail("nobody noticed")
