"""`raftmq transaction` against a real broker: what is pending, what was given up, and asking again."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chaos.host.processes import ServerProcess, broker_process, namesrv_process
from raftmq.cli.main import app
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from tests.cluster.process_group import registered, until
from tests.cluster.small_files import SMALL_FILES
from tests.parts.transaction_parts import COMMIT, GROUP, ends, prepared

QUICK = {**SMALL_FILES, "transactionTimeOut": 1, "transactionCheckInterval": 100, "transactionCheckMax": 1}


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    namesrv = namesrv_process(tmp_path / "namesrv")
    process = broker_process(tmp_path / "broker", namesrv=namesrv.address, settings=QUICK)
    monkeypatch.setenv("NAMESRV_ADDR", namesrv.address)
    try:
        namesrv.start()
        process.start()
        asyncio.run(registered(namesrv.address, "broker-a"))
        yield process
    finally:
        process.kill()
        namesrv.kill()


def typed(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["transaction", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["transaction", *arguments], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["transaction", *arguments])
    assert done.exit_code == 1, done.output
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


async def prepare(address: str, more: str = "") -> dict[str, str]:
    client = RemotingClient()
    try:
        answer = await client.invoke(
            address, Command.request(RequestCode.SEND_MESSAGE_V2, prepared("K1", more=more)), 5
        )
        assert answer.code == ResponseCode.SUCCESS
        return dict(answer.ext)
    finally:
        await client.close()


async def commit(address: str, stored: dict[str, str]) -> int:
    client = RemotingClient()
    try:
        request = Command.request(RequestCode.END_TRANSACTION, ends(stored, COMMIT, checked=True))
        return (await client.invoke(address, request, 5)).code
    finally:
        await client.close()


def test_pending_discarded_and_asked_again(broker: ServerProcess) -> None:
    address = broker.address
    assert "no transaction is undecided" in shown("pending")
    stored = asyncio.run(prepare(address, "CHECK_IMMUNITY_TIME_IN_SECONDS\x013600\x02"))
    [half] = typed("pending")[address]["halves"]
    assert (half["transactionId"], half["producerGroup"], half["topic"], half["checks"]) == ("K1", GROUP, "T", 0)
    assert "K1" in shown("pending")
    assert len(typed("pending", "--group", GROUP, "--limit", "1")[address]["halves"]) == 1
    assert "no transaction is undecided" in shown("pending", "--group", "others")
    assert asyncio.run(commit(address, stored)) == ResponseCode.SUCCESS
    assert typed("pending")[address]["pending"] == 0
    assert "over" in refused("check", half["id"])

    # Nobody is there to be asked: after one round it is given up.
    stored = asyncio.run(prepare(address))
    until("it is given up", lambda: bool(typed("discarded")[address]["discardedHalves"]), 30)
    [given_up] = typed("discarded")[address]["discardedHalves"]
    assert "K1" in shown("discarded")
    assert typed("check", given_up["id"]) == {"id": given_up["id"], "broker": address}
    assert "asks about it" in shown("check", given_up["id"], "-b", address)
    assert asyncio.run(commit(address, stored)) == ResponseCode.SUCCESS
    assert "over" in refused("check", given_up["id"])


def test_an_id_that_is_none_is_one_line(broker: ServerProcess) -> None:
    assert "no message id" in refused("check", "xyz")
    assert "no half message" in refused("check", "F" * 32, "-b", broker.address)
