"""Idempotent sends of a chaos run: what is repeated, to whom, and how the one operation of them ends."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from chaos.load import clients
from chaos.load.clients import Leaders, LoadClient, connections
from chaos.load.recorder import Recorder
from pipeline.history.body import Tag
from pipeline.history.rows import Kind
from remoting.client import RemotingClient
from remoting.codes import MessageSysFlag, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError, ConnectionLost, ResponseError
from remoting.headers.registry import SendMessageRequestHeaderV2

STANDS = {"queue": 1, "offset": 7, "position": 99}
BUSY = ResponseError(ResponseCode.SYSTEM_BUSY, "", "a:1")
LOST = ConnectionLost("gone")
NOBODY = ConnectError("refused")


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        ([STANDS], Kind.OK),
        ([LOST, BUSY, STANDS], Kind.OK),
        ([NOBODY, BUSY], Kind.FAIL),
        ([BUSY, LOST], Kind.INFO),
        # What one attempt left open, a later refusal does not settle.
        ([LOST, BUSY], Kind.INFO),
        ([LOST, NOBODY], Kind.INFO),
    ],
)
async def test_an_idempotent_send_ends_as_all_its_attempts_say(
    ends: list[Any], kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "AGAIN_S", 0.0)
    asked: list[tuple[str, str, int]] = []
    patience = 60.0 if kind == Kind.OK else 0.05

    class Client(LoadClient):
        async def _stored(self, address: str, request: Command, count: int) -> list[dict[str, Any]]:
            assert count == 1
            header = request.header(SendMessageRequestHeaderV2)
            asked.append((address, header.properties or "", header.sysFlag))
            end = ends[len(asked) - 1]
            if isinstance(end, Exception):
                if len(asked) == len(ends):
                    # The time is over with this one.
                    await asyncio.sleep(patience)
                raise end
            return [end]

    remoting: RemotingClient = connections("test")
    recorder = Recorder(tmp_path)
    client = Client(recorder, remoting, "127.0.0.1:1", "one")
    leaders = Leaders(["a:1", "b:2"])
    done = await client.send_once(leaders, "T", 1, Tag(1, 2, 0), random.Random(1).randbytes(10), patience)
    recorder.close()
    await remoting.close()
    assert done.kind == kind
    assert [address for address, _, _ in asked] == [("a:1", "b:2")[number % 2] for number in range(len(asked))]
    assert len({properties for _, properties, _ in asked}) == 1
    assert {flags for _, _, flags in asked} == {int(MessageSysFlag.IDEMPOTENT)}
    if kind == Kind.OK:
        assert (done.queue, done.offset, done.position) == (1, 7, 99)
