"""POP against a model: random takings, acknowledgements, waits and kills; nothing is lost, nothing done comes again.

The broker is killed by forgetting all but its log and the table of offsets as it was last written. A seed is one run.
"""

import base64
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import broker.pop.service
from broker.metadata.consumer_offsets import OffsetTable
from broker.pop.check_points import CheckPoint, CheckPointTable
from broker.pop.service import PopService
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.server import Connection
from tests.parts.broker_parts import Parts, broker_parts
from tests.parts.popping import Popped, popped
from tests.parts.transaction_parts import Log

QUEUES = 3
STEPS = 50


class Peer:
    """A consumer's connection."""

    closed = False
    address = "10.0.0.9:40000"
    peer = ("10.0.0.9", 40000)


class PopRun:
    """One broker, and what its consumers know."""

    def __init__(self, parts: Parts, rng: random.Random, *, shared: bool = False) -> None:
        """`shared`: as in a Raft group, where a pop is answered when its offset is agreed upon, and so never lost."""
        self.parts, self.rng, self.shared = parts, rng, shared
        self.log = Log(parts.store)
        self.written_ms = 0
        self.sent = 0
        # By body: the handle of whoever has it, until when it is his; and what is done.
        self.held: dict[bytes, tuple[Popped, int]] = {}
        self.done: set[bytes] = set()
        parts.topics.update(TopicConfig("T", QUEUES, QUEUES))
        parts.groups.update(SubscriptionGroupConfig("G", retryMaxTimes=1000))
        self.service = self._made()

    @property
    def now_ms(self) -> int:
        return self.parts.clock.now_ms()

    def _made(self) -> PopService:
        service = PopService(self.parts.context(), self.parts.tables, self.log, None, mends=self.shared)
        if not self.shared:
            cast(Any, service)._offsets_written_ms = lambda: self.written_ms
        return service

    async def begin(self) -> None:
        await self.service.load()

    async def kill(self) -> None:
        """Forget all but the log, and the offsets as they were last written."""
        await self.service.close()
        self.parts.offsets = OffsetTable.load(self.parts.offsets.file.path, self.parts.clock)
        self.service = self._made()
        await self.begin()

    async def persist(self) -> None:
        self.written_ms = self.now_ms - broker.pop.service.WRITING_MS
        await self.parts.offsets.persist()

    async def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        text = {key: str(value) for key, value in (ext or {}).items()}
        request = Command(code=code, body=body, raw_ext=text)
        answer = self.service.table()[code](cast(Connection, Peer()), request)
        made = cast(Command, await cast(Any, answer))
        # As it comes over the wire.
        made.body = b"".join(made.parts or [bytes(made.body)])
        return made

    # -- what consumers do

    def send(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            self.parts.put("T", self.rng.randrange(QUEUES), b"%d" % self.sent)
            self.sent += 1

    async def _pop(self, invisible_ms: int) -> Command:
        return await self.ask(
            RequestCode.POP_MESSAGE,
            {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": self.rng.choice([1, 3, 32]),
             "invisibleTime": invisible_ms, "pollTime": 0, "bornTime": self.now_ms, "initMode": 0},
        )  # fmt: skip

    async def pop_in_vain(self) -> None:
        """Take, and have the leader fall before it answers: before or after the offset is agreed upon."""
        await self._pop(self.rng.choice([0, 100, 1000, 5000]))
        if self.rng.random() < 0.3:
            await self.persist()
        await self.kill()

    async def pop(self, invisible_ms: int | None = None) -> list[Popped]:
        """Take; whoever has a message still has it, and what is done does not come."""
        invisible_ms = self.rng.choice([0, 100, 1000, 5000]) if invisible_ms is None else invisible_ms
        answer = await self._pop(invisible_ms)
        if self.shared:
            await self.persist()
        assert answer.code in {0, 210}, answer.remark
        found = popped(answer) if answer.code == 0 else []
        for each in found:
            assert each.body not in self.done, "it was acknowledged"
            assert each.body not in self.held or self.held[each.body][1] <= self.now_ms, "somebody has it"
            # A pop's time may be a millisecond ahead, to be another one than that of a fallen leader.
            self.held[each.body] = (each, int(each.handle.split(" ")[1]) + invisible_ms)
        await self.service.round()
        return found

    def _some(self) -> list[bytes]:
        return self.rng.sample(sorted(self.held), min(len(self.held), self.rng.randrange(1, 4)))

    def _ended(self, body: bytes) -> None:
        if self.held[body][1] > self.now_ms:
            self.done.add(body)
        del self.held[body]

    async def acknowledge(self) -> None:
        for body in self._some():
            each = self.held[body][0]
            message = each.message
            answer = await self.ask(
                RequestCode.ACK_MESSAGE,
                {"consumerGroup": "G", "topic": message.topic, "queueId": message.queue_id, "extraInfo": each.handle,
                 "offset": message.queue_offset},
            )  # fmt: skip
            assert answer.code == 0
            self._ended(body)

    async def acknowledge_all(self) -> None:
        bodies = self._some()
        acks = []
        for body in bodies:
            start, pop_ms, invisible, revive, kind, _broker, queue, offset = self.held[body][0].handle.split(" ")
            bits = 1 << (int(offset) - int(start))
            packed = base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little"))
            acks.append({"c": "G", "t": "T", "r": kind, "so": int(start), "q": int(queue), "rq": int(revive),
                         "pt": int(pop_ms), "it": int(invisible), "b": packed.decode()})  # fmt: skip
        answer = await self.ask(RequestCode.BATCH_ACK_MESSAGE, body=orjson.dumps({"brokerName": "b", "acks": acks}))
        assert answer.code == 0
        for body in bodies:
            self._ended(body)

    async def put_off(self) -> None:
        for body in self._some():
            each, until = self.held[body]
            message, later = each.message, self.rng.choice([0, 300, 3000])
            answer = await self.ask(
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                {"consumerGroup": "G", "topic": message.topic, "queueId": message.queue_id, "extraInfo": each.handle,
                 "offset": message.queue_offset, "invisibleTime": later},
            )  # fmt: skip
            assert answer.code == 0
            if until > self.now_ms:
                _, _, _, revive, kind, name, queue, offset = each.handle.split(" ")
                pop_ms = int(answer.ext["popTime"])
                renewed = f"{offset} {pop_ms} {later} {revive} {kind} {name} {queue} {offset}"
                self.held[body] = (Popped(message, renewed), pop_ms + later)
            else:
                del self.held[body]
            await self.service.round()

    async def wait(self) -> None:
        self.parts.clock.advance(self.rng.choice([0.05, 0.5, 2.0, 10.0]))
        await self.service.round()

    async def step(self) -> None:
        match self.rng.randrange(10):
            case 0 | 1:
                self.send()
            case 2 | 3 | 4:
                await self.pop()
            case 5:
                await self.acknowledge()
            case 6:
                await self.acknowledge_all()
            case 7:
                await self.put_off()
            case 8:
                await self.wait()
            case _:
                if self.rng.random() < 0.5:
                    await self.persist()
                    self.service.commit()
                elif self.shared:
                    await self.pop_in_vain()
                else:
                    await self.kill()

    async def finish(self) -> None:
        """Take and acknowledge until nothing comes any more: then everything is done."""
        for _ in range(3):
            self.parts.clock.advance(20.0)
            await self.service.round()
            while await self.pop(60_000):
                while self.held:
                    await self.acknowledge()
        assert self.done == {b"%d" % number for number in range(self.sent)}
        assert len(self.service._feed.table) == 0


async def run(folder: Path, seed: int, steps: int = STEPS, *, shared: bool = False) -> None:
    async with broker_parts(folder) as parts:
        one = PopRun(parts, random.Random(seed), shared=shared)
        await one.begin()
        try:
            for _ in range(steps):
                await one.step()
            await one.finish()
        finally:
            await one.service.close()


@given(seed=st.integers(0, 2**32), shared=st.booleans())
async def test_nothing_is_lost_and_nothing_that_is_done_comes_again(seed: int, shared: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await run(Path(folder), seed, shared=shared)


async def test_a_peek_leaves_queues_to_the_pop_that_has_them(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        one = PopRun(parts, random.Random(1))
        await one.begin()
        taken = {("G", "T", queue) for queue in range(QUEUES)}
        one.service.taking.reader.busy.update(taken)
        seen = await one.ask(
            RequestCode.PEEK_MESSAGE, {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 1}
        )
        assert (seen.code, one.service.taking.reader.busy) == (19, taken)
        await one.service.close()


@contextmanager
def planted(target: type, name: str, wrong: Any) -> Iterator[None]:
    right = getattr(target, name)
    setattr(target, name, wrong(right))
    try:
        yield
    finally:
        setattr(target, name, right)


def deaf(right: Any) -> Any:
    """Every acknowledgement of a whole check point but its last message is enough."""

    def wrong(self: CheckPointTable, key: Any, offsets: Any) -> None:
        found = self.find(key)
        right(self, key, offsets if found is None else found.offsets)

    return wrong


def hasty(right: Any) -> Any:
    """Messages come again a second early."""
    return property(lambda self: right.fget(self) - 1000)


def forgetful(_right: Any) -> Any:
    """After a kill a group goes on where its offsets were last written."""
    return lambda _self: None


def generous(_right: Any) -> Any:
    """What a fallen leader took and nobody has comes twice: from its queue, and when its time is over."""

    async def wrong(_self: PopService) -> None: ...

    return wrong


@pytest.mark.parametrize(
    ("target", "name", "wrong", "shared"),
    [
        (CheckPointTable, "acknowledge", deaf, False),
        (CheckPoint, "revive_ms", hasty, False),
        (PopService, "_go_on", forgetful, False),
        (PopService, "_give_back", generous, True),
    ],
)
async def test_a_planted_mistake_is_found(tmp_path: Path, target: type, name: str, wrong: Any, shared: bool) -> None:
    with planted(target, name, wrong):
        for seed in range(40):
            try:
                await run(tmp_path / str(seed), seed, shared=shared)
            except AssertionError:
                return
    pytest.fail("nobody noticed")
