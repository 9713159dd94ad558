"""chaos/proxy/listener.py: connections through a proxy in this very loop: hold, seeds, counters, limits."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from chaos.proxy import connection, listener
from chaos.proxy.journal import ProxyJournal
from chaos.proxy.listener import FaultProxy, Refused, split_address
from chaos.proxy.toxics import Stream, Toxic, parse_toxic

HOST = "127.0.0.1"
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Rig:
    """A proxy, and who answers behind it."""

    def __init__(self, seed: int) -> None:
        self.journal = ProxyJournal()
        self._seed = seed
        self._accepted: asyncio.Queue[Wire] = asyncio.Queue()
        self._wires: list[Wire] = []

    async def start(self) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._accepted.put_nowait((reader, writer))

        self._server = await asyncio.start_server(accept, HOST, 0)
        upstream = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        self.proxy = FaultProxy("a-b", f"{HOST}:0", upstream, self._seed, self.journal)
        await self.proxy.enable()

    async def dial(self) -> Wire:
        wire = await asyncio.open_connection(*split_address(self.proxy.listen))
        self._wires.append(wire)
        return wire

    async def pair(self) -> tuple[Wire, Wire]:
        near = await self.dial()
        far = await self._accepted.get()
        self._wires.append(far)
        return near, far

    async def close(self) -> None:
        await self.proxy.disable()
        for _, writer in self._wires:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        self._server.close()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(seed=5)
    await made.start()
    yield made
    await made.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


def hold(stream: Stream) -> Toxic:
    return parse_toxic({"type": "hold", "stream": stream, "name": f"hold_{stream}"})


async def test_hold_wakes_up_with_old_data(rig: Rig) -> None:
    near, far = await rig.pair()
    rig.proxy.add(hold("upstream"))
    rig.proxy.add(hold("downstream"))
    near[1].write(b"old ask")
    far[1].write(b"old answer")
    streams = rig.proxy.counters.upstream, rig.proxy.counters.downstream
    await until(lambda: (streams[0].kept, streams[1].kept) == (7, 10))
    # A connection of the time of the cut is accepted, and as silent.
    late_near, late_far = await rig.pair()
    late_near[1].write(b"late")
    await until(lambda: streams[0].kept == 11)
    rig.proxy.remove("hold_upstream")
    assert await far[0].readexactly(7) == b"old ask"
    assert await late_far[0].readexactly(4) == b"late"
    assert streams[1].sent == 0
    rig.proxy.remove("hold_downstream")
    assert await near[0].readexactly(10) == b"old answer"
    near[1].write(b"new")
    assert await far[0].readexactly(3) == b"new"
    assert (streams[0].lost, streams[1].lost, streams[0].kept) == (0, 0, 0)


async def test_hold_keeps_what_the_dead_have_said(rig: Rig) -> None:
    near, far = await rig.pair()
    rig.proxy.add(hold("upstream"))
    near[1].write(b"my will")
    near[1].close()
    await near[1].wait_closed()
    await until(lambda: rig.proxy.counters.upstream.kept == 7)
    far[1].write(b"still there?")
    await until(lambda: rig.proxy.counters.downstream.received == 12)
    assert rig.proxy.counters.open == 1
    rig.proxy.remove("hold_upstream")
    assert await far[0].read() == b"my will"
    await until(lambda: rig.proxy.counters.open == 0)


async def test_a_full_stage_holds_the_sender_back_and_loses_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KEPT_BYTES_MAX", 100_000)
    near, far = await rig.pair()
    rig.proxy.add(hold("upstream"))
    sent = bytes(range(256)) * 100_000

    async def send() -> None:
        near[1].write(sent)
        await near[1].drain()

    sending = asyncio.create_task(send())
    counters = rig.proxy.counters.upstream
    await until(lambda: counters.kept > 100_000)
    await asyncio.sleep(0.05)
    # What one read may bring comes on top of the limit.
    assert counters.kept < 1_000_000
    assert not sending.done()
    rig.proxy.remove("hold_upstream")
    assert await far[0].readexactly(len(sent)) == sent
    await sending
    assert (counters.received, counters.sent, counters.lost) == (len(sent), len(sent), 0)


async def test_a_peer_that_does_not_read_holds_the_sender_back(rig: Rig) -> None:
    near, far = await rig.pair()
    sent = bytes(64_000_000)
    near[1].write(sent)
    counters = rig.proxy.counters.upstream
    before = -1
    while before < counters.received:
        before = counters.received
        await asyncio.sleep(0.2)
    assert connection.WRITE_BUFFER_BYTES_MAX < counters.received < len(sent) // 2
    assert len(await far[0].readexactly(len(sent))) == len(sent)
    near[1].close()
    assert await far[0].read() == b""


async def test_the_same_seed_hits_the_same_connections() -> None:
    async def hit(seed: int) -> list[bool]:
        rig = Rig(seed)
        await rig.start()
        rig.proxy.add(parse_toxic({"type": "limit_data", "stream": "upstream", "toxicity": 0.5}))
        found = []
        for _ in range(24):
            near, far = await rig.pair()
            near[1].write(b"x")
            found.append(await far[0].read(1) == b"")
        await rig.close()
        return found

    first = await hit(1)
    assert first == await hit(1)
    assert first != await hit(2)
    assert 4 < sum(first) < 20


async def test_a_changed_toxicity_keeps_each_connections_chance(rig: Rig) -> None:
    half = parse_toxic({"type": "hold", "stream": "upstream", "toxicity": 0.5})
    pairs = [await rig.pair() for _ in range(12)]
    rig.proxy.add(half)
    for number, (near, _) in enumerate(pairs):
        near[1].write(bytes([number]))
    await until(lambda: rig.proxy.counters.upstream.received == 12)
    held = rig.proxy.counters.upstream.kept
    assert 0 < held < 12
    rig.proxy.update(Toxic(half.name, half.type, half.stream, 1.0, {}))
    assert rig.proxy.counters.upstream.kept == held
    for near, _ in pairs:
        near[1].write(b"+")
    await until(lambda: rig.proxy.counters.upstream.kept == held + 12)
    rig.proxy.update(Toxic(half.name, half.type, half.stream, 0.0, {}))
    for number, (_, far) in enumerate(pairs):
        assert await far[0].readexactly(2) == bytes([number]) + b"+"


async def test_the_journal_tells_the_story_in_order(rig: Rig) -> None:
    near, _ = await rig.pair()
    rig.proxy.add(parse_toxic({"type": "latency", "attributes": {"latency": 3}, "toxicity": 0.25}))
    rig.proxy.remove("latency_downstream")
    near[1].close()
    await until(lambda: rig.proxy.counters.open == 0)
    await rig.proxy.disable()
    events = list(rig.journal.since(0))
    assert [event.what for event in events] == ["enabled", "opened", "added", "removed", "closed", "disabled"]
    assert events[2].detail == "latency_downstream: latency downstream latency=3, jitter=0 toxicity=0.25"
    assert [event.number for event in events] == list(range(6))
    assert sorted(event.at for event in events) == [event.at for event in events]
    assert [event.what for event in rig.journal.since(4)] == ["closed", "disabled"]


async def test_reset_is_counted_and_seen_by_both(rig: Rig) -> None:
    near, far = await rig.pair()
    rig.proxy.add(parse_toxic({"type": "reset_peer", "stream": "downstream"}))
    far[1].write(b"x")
    with pytest.raises(ConnectionResetError):
        await near[0].read()
    with pytest.raises(ConnectionResetError):
        await far[0].read()
    await until(lambda: rig.proxy.counters.open == 0)
    assert rig.proxy.counters.reset == 1
    assert rig.proxy.counters.downstream.lost == 1


async def test_one_connection_too_many_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 1)
    near, far = await rig.pair()
    other = await rig.dial()
    assert await other[0].read() == b""
    await until(lambda: rig.proxy.counters.open == 1)
    assert (rig.proxy.counters.accepted, rig.proxy.counters.refused) == (2, 1)
    near[1].write(b"first stays")
    assert await far[0].readexactly(11) == b"first stays"


async def test_nobody_upstream_is_refused_with_words(rig: Rig) -> None:
    await rig.proxy.change(rig.proxy.listen, f"{HOST}:1", enabled=True)
    near = await rig.dial()
    near[1].write(b"anybody?")
    with contextlib.suppress(ConnectionResetError):
        assert await near[0].read() == b""
    await until(lambda: rig.proxy.counters.open == 0)
    assert rig.proxy.counters.refused == 1
    (refused,) = [event for event in rig.journal.since(0) if event.what == "refused"]
    assert f"{HOST}:1 did not answer" in refused.detail


async def test_limits_and_addresses_are_refused_with_words(rig: Rig) -> None:
    for number in range(listener.TOXICS_MAX):
        rig.proxy.add(parse_toxic({"type": "noop", "name": f"n{number}"}))
    with pytest.raises(Refused, match="has 64 toxics"):
        rig.proxy.add(parse_toxic({"type": "noop", "name": "one more"}))
    for address in ("nothing", "host:", "host:99999"):
        with pytest.raises(Refused, match="host:port"):
            split_address(address)
    assert split_address(":80") == (HOST, 80)
    assert split_address("[::1]:80") == ("::1", 80)
    with pytest.raises(Refused, match="listen tcp"):
        await rig.proxy.change(rig.proxy.upstream, rig.proxy.upstream, enabled=True)
