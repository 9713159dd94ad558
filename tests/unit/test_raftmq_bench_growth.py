"""`raftmq bench growth`: medians and ratios of its rounds, which numbers it takes, what it says of wrong ones."""

import asyncio
import gc
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from raftmq.bench.frames import OPAQUE_MIN, BadAnswer
from raftmq.bench.growing import SpreadSends, served
from raftmq.bench.growinggroups import all_together
from raftmq.bench.growth import GROWTH_MOST, GROWTH_VALUES, _turns, values_of
from raftmq.bench.growthrows import GrowthSample, ServerMemory, growth_rows
from raftmq.bench.load import LoadedBroker, Pulls, Result, run_load
from raftmq.cli.main import app
from raftmq.extras import lacking
from remoting.codec import decode
from remoting.headers.registry import PullMessageRequestHeader, SendMessageRequestHeaderV2

RESULT = Result("send", 1, 512, 100, 1.0, 1000, 1000, 1000, 1.0, 2.0, 3.0, server_cpu_us_per_message=10.0)


def sample(value: int, number: int, cost: float, rate: int = 1000, what: str = "sends") -> GrowthSample:
    result = replace(RESULT, server_cpu_us_per_message=cost, messages_per_s=rate)
    return GrowthSample("topics", value, number, what, result, ServerMemory(100.0 + number, 50.0))


def test_rows_are_medians_and_ratios_are_those_of_the_same_round() -> None:
    # The machine was twice as slow in the second round: the ratio of the medians would be 20 / 10.
    samples = [
        sample(10, 0, 15.0, 900), sample(1, 0, 10.0), sample(1, 1, 20.0), sample(10, 1, 30.0, 400), sample(1, 2, 10.0),
        sample(10, 2, 20.0, 800), sample(10, 0, 3.0, what="pulls"),
    ]  # fmt: skip
    rows = growth_rows(samples)
    assert [(row.what, row.value, row.server_cpu_us_per_message, row.to_first) for row in rows] == [
        ("sends", 1, 10.0, 1.0),
        ("sends", 10, 20.0, 1.5),
        ("pulls", 10, 3.0, 1.0),
    ]
    assert (rows[1].messages_per_s, rows[1].rounds, rows[1].server_resident_mb) == (800, 3, 101.0)
    assert rows[1].as_dict()["to_first"] == 1.5


def test_all_values_are_measured_each_round_and_another_one_comes_first() -> None:
    assert _turns((1, 4), 3) == [(0, 1), (0, 4), (1, 4), (1, 1), (2, 1), (2, 4)]


def test_loads_at_the_same_time_are_one_result() -> None:
    found = all_together([RESULT, replace(RESULT, messages=3000, messages_per_s=3000, server_cpu_us_per_message=2.0)])
    assert (found.messages_per_s, found.messages, found.connections) == (4000, 4000, 2)
    assert found.server_cpu_us_per_message == 4.0


def test_what_was_refused_is_no_figure() -> None:
    assert served("topics", 1, RESULT) is RESULT
    for wrong in (replace(RESULT, errors={2: 5}), replace(RESULT, messages=0)):
        with pytest.raises(BadAnswer, match="topics, 1,000: of 1,000 requests"):
            served("topics", 1000, wrong)


def test_values_are_read_from_the_lowest_on() -> None:
    assert values_of("topics", "100, 1,10,1") == (1, 10, 100)
    assert values_of("backlog", "0") == (0,)
    for of, known in GROWTH_VALUES.items():
        assert values_of(of) == known == tuple(sorted(known))
        assert known[-1] <= GROWTH_MOST[of]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--of", "planets"], "--of planets: it takes topics, queues, "),
        (["--values", "1"], "--values: it takes one --of to go with"),
        (["--of", "topics", "--values", "1,x"], "--values 1,x: it takes numbers with commas between them"),
        (["--of", "topics", "--values", "0,1"], "--values 0,1: of topics it takes 1 to 100,000"),
        (["--of", "members", "--values", "11"], "--values 11: of members it takes 1 to 9"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["bench", "growth", *arguments])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"raftmq: {words}")
    assert len(done.stderr.splitlines()) == 1


def test_the_extra_that_draws_is_named() -> None:
    line = lacking("pygal", ["bench", "growth", "--svg", "folder"])
    assert line is not None
    assert line.endswith("pip install 'raftmq[bench]'")


def test_sends_go_to_all_places_in_turn() -> None:
    places = [("a", 0), ("a", 1), ("b", 0)]
    work, found = SpreadSends(places, 100), []
    # The second load is over a new connection, whose opaques begin anew.
    for count in (4, 5):
        frames = work.frames(range(OPAQUE_MIN, OPAQUE_MIN + count))
        headers = [decode(frame[4:]).header(SendMessageRequestHeaderV2) for frame in frames]
        found += [(header.topic, header.queueId) for header in headers]
        assert work.rounds == len(found) // 3
    assert found == places * 3


def test_pulls_may_begin_late_and_be_of_a_group() -> None:
    pulls = Pulls("bench", [164, 40], 32, begins=[100, 30], group="mine")
    headers = [
        decode(frame[4:]).header(PullMessageRequestHeader) for frame in pulls.frames(range(OPAQUE_MIN, OPAQUE_MIN + 3))
    ]
    # Queue 1 has too few between its begin and its end; queue 0 has two portions, then starts again.
    assert [(header.queueId, header.queueOffset, header.consumerGroup) for header in headers] == [
        (0, 100, "mine"),
        (0, 132, "mine"),
        (0, 100, "mine"),
    ]


async def test_a_broker_that_goes_away_from_many_connections_is_one_error(caplog: pytest.LogCaptureFixture) -> None:
    class Closing(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    server = await asyncio.get_running_loop().create_server(Closing, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        work = SpreadSends([("a", 0)], 100)
        load = run_load("send", LoadedBroker(address), lambda: work, in_flight=1, seconds=5, connections=5)
        # Kept, its trace would keep the connections, and nobody would miss what they have to say.
        kinds = [type(error) for error in await asyncio.gather(load, return_exceptions=True)]
        for _turn in range(3):
            await asyncio.sleep(0)
            gc.collect()
    assert [issubclass(kind, ConnectionError) for kind in kinds] == [True]
    assert caplog.records == []
