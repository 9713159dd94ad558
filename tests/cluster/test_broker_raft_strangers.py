"""Strangers at the Raft ports of a real group: what cost the leader its lead costs nobody but them anything."""

import asyncio
import struct
import time
from contextlib import suppress
from pathlib import Path

import cbor2
import pytest

from chaos.host.local import LocalCluster
from chaos.host.localfolder import kept_peers
from chaos.host.processes import ServerProcess
from client.message import Message
from client.produce.producer import Producer
from raft.protocol.wire import GREETING_BYTES_MAX

SECONDS = 4.0
# Such floods, until one cost nothing: a machine that gives the leader no time takes its lead as well.
ROUNDS = 5
# A list in a list in a list, a number of many bytes, a promise of more than comes: each in as many bytes as a greeting
# may have, or fewer.
STRANGE = (
    b"\x81" * (GREETING_BYTES_MAX - 100),
    cbor2.dumps({"kind": 1 << 4000}),
    b"\xc2\x5a\xff\xff\xff\xff",
    b"\xbf" + b"\x01\x02" * 4000,
)


def pattern(number: int) -> bytes:
    """Return 700 bytes of CBOR that a lenient reader compiles to a regular expression, 1.4 s; each to another."""
    return b"\xd8\x23" + cbor2.dumps(f"(?i){number}" + "[\u0100-\uffff]" * 80)


def frame(head: bytes) -> bytes:
    return struct.pack(">IH", 2 + len(head), len(head)) + head


async def strangers(ports: list[int], until: float) -> int:
    """Greet every member with all of these, again and again; return how often one hung up on it."""
    ended = 0
    while time.monotonic() < until:
        for port in ports:
            for head in (pattern(ended), *STRANGE):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with suppress(ConnectionError):
                    writer.write(frame(head))
                    async with asyncio.timeout(10):
                        await reader.read()
                ended += 1
                writer.close()
        await asyncio.sleep(0.01)
    return ended


@pytest.mark.timeout(120)
async def test_strange_greetings_cost_no_lead_and_no_send(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=3, mode="raft")
    with cluster:
        ports = list(kept_peers(tmp_path).values())
        assert len(ports) == 3
        async with Producer("quiet", cluster.address, send_timeout=10) as producer:
            await producer.send(Message("strangers_topic", b"before"))
            for _ in range(ROUNDS):
                leader = await asyncio.to_thread(cluster.wait_for_leader)
                before = lead_of(leader)
                until, sent = time.monotonic() + SECONDS, 0
                flood = asyncio.create_task(strangers(ports, until))
                while not flood.done():
                    await producer.send(Message("strangers_topic", b"beside"))
                    sent += 1
                assert await flood > 0
                assert sent > 0
                after = lead_of(leader)
                if after == before is not None:
                    break
    assert after == before is not None, "the lead was lost"


def lead_of(member: ServerProcess) -> tuple[str, int] | None:
    """Return a member's role and term, None of one that does not answer in time."""
    state = member.state("/v1/raft")
    return None if state is None else (state["role"], state["term"])
