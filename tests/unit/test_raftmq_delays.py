"""The terminal's ways to say when a message is to be delivered."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import typer
from typer.testing import CliRunner, Result

from raftmq.cli.delays import Timing
from raftmq.cli.main import app
from remoting.properties import decode_properties
from tests.parts.half_brokers import HalfSite
from tests.unit.test_client_timers import handle


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("2d", 172_800), ("0.25", 0.25), ("0", 0)],
)
def test_a_delay_is_read(delay: str, seconds: float) -> None:
    assert Timing.read(delay, "") == Timing(delay_s=seconds)


def test_a_moment_is_read() -> None:
    assert Timing.read("", "2026-01-31T12:00:00.250+00:00") == Timing(deliver_ms=1_769_860_800_250)
    assert Timing.read("", "1769860800250") == Timing(deliver_ms=1_769_860_800_250)
    assert Timing.read("", "") == Timing()


@pytest.mark.parametrize(
    ("delay", "moment"),
    [("soon", ""), ("-3", ""), ("3w", ""), ("1e9", ""), ("9" * 40, ""), ("3", "1769860800250"), ("", "soon"),
     ("", "begin"), ("", "end"), ("", "0")],
)  # fmt: skip
def test_what_is_no_time_ends_the_command(delay: str, moment: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        Timing.read(delay, moment)
    assert ended.value.exit_code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.fixture
async def site() -> AsyncIterator[HalfSite]:
    async with HalfSite() as made:
        yield made


async def typed(site: HalfSite, *arguments: str) -> Result:
    """Type a command beside the loop that the servers run in."""

    environment = {"NAMESRV_ADDR": site.namesrv, "TERM": "dumb"}
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, arguments, env=environment))


async def test_send_says_when_and_prints_the_handle_that_recall_takes(site: HalfSite) -> None:
    broker = site.brokers[0]
    sent = await typed(site, "send", "Orders", "later", "--delay", "15m", "--json")
    assert json.loads(sent.stdout)["recall_handle"] == "handle"
    shown = await typed(site, "send", "Orders", "later", "--deliver-at", "1769860800250")
    assert "recall handle" in shown.stdout
    told = [decode_properties((half.properties or "").encode()) for half in broker.halves]
    assert told[0]["TIMER_DELAY_SEC"] == "900"
    assert told[1]["TIMER_DELIVER_MS"] == "1769860800250"

    recalled = await typed(site, "message", "recall", "Orders", handle(), "--json")
    assert json.loads(recalled.stdout) == {"topic": "Orders", "recalled": "ID"}
    assert broker.recalls[0].producerGroup == "raftmq_cli"
    broker.recalled = (604, "recall failed, timestamp invalid")
    refused = await typed(site, "message", "recall", "Orders", handle())
    assert refused.exit_code == 1
    assert "recall failed, timestamp invalid" in refused.stderr
    wrong = await typed(site, "message", "recall", "Orders", "nonsense")
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (1, 1)
