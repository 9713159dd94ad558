"""Transactions under any order of ends, checks and restarts: each ends once, as its first answer said."""

import asyncio
import random
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import ResumeCheckHalfMessageRequestHeader
from remoting.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.parts.transaction_parts import COMMIT, ROLLBACK, TransactionSite, transaction_site

OK = ResponseCode.SUCCESS
STEPS = 60
WEIGHTS = {"prepare": 6, "end": 5, "round": 4, "lead": 2, "torn": 1, "resume": 1, "unanswered": 2, "at once": 2}


class Twin:
    """What must hold, by key: how each transaction ended, and every place at which it was ever seen."""

    def __init__(self, site: TransactionSite, chance: random.Random) -> None:
        self.site, self.chance = site, chance
        self.places: dict[str, list[dict[str, str]]] = {}
        self.ended: dict[str, int] = {}

    def prepare(self) -> None:
        immune = self.chance.choice(("", "", "", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01100000\x02"))
        stored = self.site.prepare(more=immune)
        self.places[stored["transactionId"]] = [stored]

    def end(self) -> None:
        """End any transaction by any of its copies; only the first end counts."""
        if not self.places:
            return
        key = self.chance.choice(list(self.places))
        how = self.chance.choice((COMMIT, ROLLBACK))
        place = self.chance.choice(self.places[key])
        code = self.site.end(place, how, oneway=False, checked=self.chance.random() < 0.5)
        if key in self.ended:
            assert (code == OK) == (self.ended[key] == how), (key, code, how)
        else:
            assert code == OK, (key, code)
            self.ended[key] = how

    async def roll_back_unanswered(self) -> None:
        """Roll back without an answer: it counts when it is written, and a restart may come first."""
        undecided = [key for key in self.places if key not in self.ended]
        if not undecided:
            return
        key = self.chance.choice(undecided)
        assert self.site.end(self.chance.choice(self.places[key]), ROLLBACK, oneway=True, checked=True) is None
        if self.chance.random() < 0.3:
            await self.site.lead()
            return
        assert self.site.end(self.chance.choice(self.places[key]), COMMIT, checked=True) == ResponseCode.SYSTEM_ERROR
        self.ended[key] = ROLLBACK

    def end_twice_at_once(self) -> None:
        """End one several times before the first write is acknowledged."""
        undecided = [key for key in self.places if key not in self.ended]
        if not undecided:
            return
        key, hows = self.chance.choice(undecided), [self.chance.choice((COMMIT, ROLLBACK)) for _ in range(3)]
        self.site.log.held = []
        before = len(self.site.client.answers)
        for how in hows:
            assert self.site.end(self.chance.choice(self.places[key]), how, checked=True) is None
        self.site.log.release()
        codes = [answer.code for answer in self.site.client.answers[before:]]
        assert codes == [OK if how == hows[0] else ResponseCode.SYSTEM_ERROR for how in hows]
        self.ended[key] = hows[0]

    async def round(self) -> None:
        for question in await self.site.round(self.chance.choice((1.0, 30.0))):
            said = {"queueOffset": question.ext["tranStateTableOffset"], "msgId": question.ext["offsetMsgId"]}
            key = question.ext["transactionId"]
            assert key not in self.ended, "nobody is asked about what is over"
            self.places[key].append({**said, "transactionId": key})

    async def lead(self) -> None:
        """Be the next who leads: nothing is known but what the queues and the offsets say."""
        if self.chance.random() < 0.5:
            await self.site.flushed()
        if self.chance.random() < 0.3:
            self.site.service.retire()
        await self.site.lead()

    async def torn(self) -> None:
        """Tear the log between a real message and its op message, and start again."""
        undecided = [half for half in self.site.pending.values() if half.key not in self.ended]
        if not undecided:
            return
        half = self.chance.choice(undecided)
        self.site.log.append_batch(self.site.service.ending._real(half), lambda _results, _code: None)
        self.ended[half.key] = COMMIT
        await self.site.lead()

    async def resume(self) -> None:
        """Ask for a discarded one, or any other, to be checked again."""
        discarded = self.site.records(TRANS_CHECK_MAX_TIME_TOPIC)
        if not discarded:
            return
        message = self.chance.choice(discarded)
        header = ResumeCheckHalfMessageRequestHeader(msgId=message.offset_msg_id)
        answer = self.site.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        assert not isinstance(answer, Command)
        try:
            await answer  # type: ignore[misc] # a coroutine
        except CommandError:
            assert self.ended.get(message.msg_id) is not None

    def check(self) -> None:
        delivered = Counter(self.site.delivered())
        assert delivered == Counter(key for key, how in self.ended.items() if how == COMMIT)

    async def check_pending(self) -> None:
        """What is neither over nor given up is pending, for the next leader too."""
        await self.site.lead()
        given_up = {message.msg_id for message in self.site.records(TRANS_CHECK_MAX_TIME_TOPIC)}
        torn = {half.key for half in self.site.pending.values() if self.ended.get(half.key) == COMMIT}
        pending = {half.key for half in self.site.pending.values()} - torn
        undecided = self.places.keys() - self.ended.keys()
        assert undecided - given_up <= pending <= undecided


async def scenario(seed: int, folder: Path) -> None:
    chance = random.Random(seed)
    async with transaction_site(folder, transactionCheckMax=3) as site:
        site.connect()
        twin = Twin(site, chance)
        for _ in range(STEPS):
            match chance.choices(*zip(*WEIGHTS.items(), strict=True))[0]:
                case "prepare":
                    twin.prepare()
                case "end":
                    twin.end()
                case "round":
                    await twin.round()
                case "lead":
                    await twin.lead()
                case "torn":
                    await twin.torn()
                case "unanswered":
                    await twin.roll_back_unanswered()
                case "at once":
                    twin.end_twice_at_once()
                case "resume":
                    await twin.resume()
            twin.check()
        await twin.check_pending()
        await site.round()
        site.service.retire()
        assert as_rocketmq_reads(site) == sorted(half.offset for half in site.pending.values())


def as_rocketmq_reads(site: TransactionSite) -> list[int]:
    """Return the half messages that RocketMQ's own check takes for undecided, after a stop in good order."""
    halves, ops = site.committed()
    done = {
        int(number)
        for message in site.records(TRANS_OP_HALF_TOPIC)
        if message.queue_offset >= max(ops, 0)
        for number in bytes(message.body).decode().split(",")
        if number
    }
    return [
        message.queue_offset
        for message in site.records(TRANS_HALF_TOPIC)
        if message.queue_offset >= max(halves, 0) and message.queue_offset not in done
    ]


@given(st.integers(0, 2**32))
def test_a_transaction_ends_once(seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="transactions-") as folder:
        asyncio.run(scenario(seed, Path(folder)))
