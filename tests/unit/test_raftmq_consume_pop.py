"""`raftmq consume --pop`: messages are printed and acknowledged, and no more are taken than are printed."""

import asyncio
import json

from typer.testing import CliRunner, Result

from raftmq.cli.main import app
from tests.parts.pop_brokers import PopSite


async def consume(*options: str) -> Result:
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, ["consume", "Orders", "--pop", *options]))


async def test_messages_are_printed_and_acknowledged() -> None:
    async with PopSite() as site:
        broker = site.broker
        broker.give("Orders", *[b"order %d" % number for number in range(40)])
        done = await consume("--namesrv", site.namesrv, "--group", "readers", "--count", "35", "--json")
        assert done.exit_code == 0, done.output
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        assert [one["offset"] for one in shown] == list(range(35))
        assert broker.acknowledged() == set(range(35))
        assert broker.pops[0].initMode == 0
        done = await consume("--namesrv", site.namesrv, "--group", "readers", "--timeout", "0.3", "--from-end")
        assert done.exit_code == 0, done.output
        assert done.stdout.count("order 3") == 5
        assert broker.acknowledged() == set(range(40))
        assert broker.pops[-1].initMode == 1
        done = await consume("--namesrv", site.namesrv, "--group", "readers", "--timeout", "0.1", "--count", "1")
        assert done.exit_code == 1
        assert "0 of 1 messages came within 0.1 s" in done.output


async def test_a_group_must_be_named() -> None:
    done = await consume()
    assert done.exit_code != 0
    assert "name the group by --group" in done.output


async def test_in_order_when_it_is_asked_for() -> None:
    async with PopSite() as site:
        site.broker.give("Orders", b"one")
        done = await consume("--namesrv", site.namesrv, "--group", "readers", "--count", "1", "--ordered")
        assert done.exit_code == 0, done.output
        assert {asked.order for asked in site.broker.pops} == {True}
    done = await asyncio.to_thread(lambda: CliRunner().invoke(app, ["consume", "Orders", "--ordered"]))
    assert done.exit_code != 0
    assert "--ordered is for --pop" in done.output
