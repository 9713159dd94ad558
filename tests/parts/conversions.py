"""What the tests of conversions share: other brokers, and a folder that was a classic broker's."""

import asyncio
from pathlib import Path
from typing import Any, cast

import orjson

from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError
from remoting.server import Connection
from store.messagestore import MessageStore
from tests.parts.store_tools import HOST, make_config, record

NOBODY = cast(Connection, None)
PEERS = "n0-127.0.0.1:{0};n1-127.0.0.1:{1}"
GROUP_ID = "ab" * 16
LEADER = "10.0.0.1:10911"


class Net:
    """Answers for other brokers: their states by (address, code)."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], dict[str, Any]] = {}

    async def call(self, address: str, code: int, **_more: Any) -> Command:
        await asyncio.sleep(0)
        if (address, int(code)) not in self.states:
            raise ConnectError(f"no connection to {address}")
        return Command.response(ResponseCode.SUCCESS, body=orjson.dumps(self.states[address, int(code)]))


def held(folder: Path) -> int:
    """A classic store with a message; returns where its log ends."""
    store = MessageStore.open(make_config(folder), store_host=HOST)
    store.put(record(b"one"))
    store.write()
    store.close()
    return store.written
