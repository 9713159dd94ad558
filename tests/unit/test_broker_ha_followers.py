"""Two slaves with one brokerId are told of at both ends."""

import logging

import orjson
import pytest

from broker.master_slave import ha_followers
from broker.master_slave.ha_followers import Followers, Introduction
from broker.settings.pair_proof import PairProof
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command


class Master:
    """Answers as a master does, at a time that the test sets."""

    def __init__(self) -> None:
        self.time = 0.0
        self.followers = Followers(lambda: self.time)
        self.asked: list[int] = []

    async def invoke(self, _address: str, request: Command, timeout: float = 3.0) -> Command:
        assert timeout
        self.asked.append(request.code)
        if request.code == ClassicCode.STATUS:
            self.followers.asked(request.body, "s")
        return Command.response(ResponseCode.SUCCESS, None, None, orjson.dumps({"followers": self.followers.listed()}))


async def ask(slave: Introduction) -> None:
    await slave.invoke("m:1", Command.request(ClassicCode.STATUS, None))


async def test_two_slaves_with_one_id_are_told_of_at_both_ends(caplog: pytest.LogCaptureFixture) -> None:
    master = Master()
    one, two, three = (Introduction(master, number, f"s{at}:1", PairProof()) for at, number in enumerate((1, 1, 2)))
    for _ in range(3):
        for slave in (one, two, three):
            await ask(slave)
    assert one.warnings() == [words for words in one.warnings() if "s1:1 is a slave with the same brokerId, 1" in words]
    assert len(one.warnings()) == len(two.warnings()) == len(master.followers.warnings()) == 1
    assert "s0:1 and s1:1 are slaves with one brokerId, 1" in master.followers.warnings()[0]
    assert three.warnings() == []
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3, "each end says it once"
    # One of them went, or got another id.
    master.time = ha_followers.REMEMBERED_SECONDS + 1
    await ask(one)
    assert one.warnings() == master.followers.warnings() == []


async def test_other_questions_go_as_they_are() -> None:
    master = Master()
    await Introduction(master, 1, "s:1", PairProof()).invoke("m:1", Command.request(ClassicCode.DIGEST, None, b"{}"))
    assert master.asked == [ClassicCode.DIGEST]
    assert master.followers.listed() == []


def test_a_flood_of_names_and_nonsense_is_bounded() -> None:
    followers = Followers(lambda: 0.0)
    for body in (
        b"",
        b"{",
        b"[]",
        b'{"brokerId":"x","address":1}',
        b"\xff",
        bytes(2000),
        b'{"brokerId":1}',
        b'{"brokerId":-1,"address":"s:1"}',
        b'{"brokerId":1180591620717411303424,"address":"s:1"}',
    ):
        followers.asked(body, "s")
    assert followers.listed() == []
    for number in range(1000):
        followers.asked(orjson.dumps({"brokerId": number, "address": "s:1"}), "s")
    assert len(followers.listed()) == ha_followers.FOLLOWERS_MAX
