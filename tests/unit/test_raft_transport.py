"""Links between members over real loopback sockets: who is let in, what is kept bounded, what comes back by itself."""

import asyncio
import contextlib
import dataclasses
import logging
import socket
import struct

import pytest
import uvloop

from raft.network.transport import SecretRequired
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.wire import Piece, frame_message
from tests.parts.raft_links import IMPATIENT, QUICK, Party, Proxy, hello_of, introduce, note, started


async def test_messages_arrive_in_order_and_whole_both_ways() -> None:
    a, b = Party("n0", secret=b"s"), Party("n1", secret=b"s")
    async with started(a, b):
        await introduce(a, b)
        sent = []
        for round_ in range(200):
            data = bytes([round_]) * (700_000 if round_ % 50 == 0 else 100)
            fields = {"term": 1, "seq": round_, "prev_index": 0, "prev_term": 0, "commit": 0}
            sent.append(RaftMessage(MessageKind.APPEND, {**fields, "entries": [[1, 1, 0, len(data)]]}, (data,)))
        for message in sent:
            assert a.transport.send("n1", message)
            assert b.transport.send("n0", message)
        for side, other in ((a, "n1"), (b, "n0")):
            for message in sent:
                sender, got = await side.messages.get()
                assert sender == other
                assert got.fields == message.fields
                assert [bytes(part) for part in got.payload] == list(message.payload)


async def test_the_hello_is_made_for_each_link() -> None:
    clock = iter(range(1, 100))
    a, b = Party("n0"), Party("n1", hello=lambda: hello_of("n1", clock_ms=next(clock)))
    async with started(a, b):
        a.transport.set_peers({"n1": b.address})
        b.transport.set_peers({"n0": ("127.0.0.1", 1)})
        first = await a.linked("n1")
        b.transport.set_peers({})
        await a.parted("n1")
        b.transport.set_peers({"n0": ("127.0.0.1", 1)})
        assert (await a.linked("n1")).clock_ms > first.clock_ms


async def test_the_first_message_of_a_turn_leaves_at_once_the_others_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = Party("n0"), Party("n1")
    async with started(a, b):
        await introduce(a, b)
        transport = a.transport._out["n1"]._transport
        writes: list[int] = []
        writelines = transport.writelines

        def counted(pieces: list[bytes]) -> None:
            writes.append(len(pieces))
            writelines(pieces)

        monkeypatch.setattr(transport, "writelines", counted)
        for turn in range(2):
            a.transport.send("n1", note(0))
            assert writes == [1], "it waits for nothing"
            for round_ in range(1, 50):
                a.transport.send("n1", note(round_))
            for round_ in range(50):
                assert (await b.messages.get())[1].fields["round"] == round_
            assert writes == [1, 49], turn
            writes.clear()


async def test_what_goes_to_several_members_is_framed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = Party("n0"), Party("n1"), Party("n2")
    async with started(a, b, c):
        await introduce(a, b, c)
        framed: list[RaftMessage] = []

        def counted(message: RaftMessage, *, fixed: bool) -> tuple[list[Piece], int]:
            framed.append(message)
            return frame_message(message, fixed=fixed)

        monkeypatch.setattr("raft.network.transport.frame_message", counted)
        first, second = note(1), note(2)
        for message in (first, second):
            for peer in ("n1", "n2"):
                assert a.transport.send(peer, message)
        assert framed == [first, second]
        for party in (b, c):
            assert [(await party.messages.get())[1].fields["round"] for _ in range(2)] == [1, 2]
        # Whoever knows no heads of fixed form gets its own.
        a.transport._out["n2"].fixed_heads = not a.transport._out["n1"].fixed_heads
        for peer in ("n1", "n2"):
            a.transport.send(peer, first)
        assert framed == [first, second, first, first]


async def test_without_a_link_send_says_no() -> None:
    a = Party("n0")
    assert not a.transport.send("n1", note(1))
    async with started(a):
        a.transport.set_peers({"n1": ("127.0.0.1", 1)})
        assert not a.transport.send("n1", note(1))


async def test_a_restarted_peer_is_linked_again() -> None:
    a, b = Party("n0"), Party("n1")
    async with started(a, b):
        await introduce(a, b)
        port = b.transport.port
        await b.transport.close()
        await a.parted("n1")
        assert not a.transport.send("n1", note(1))
        again = Party("n1")
        again.transport.set_peers({"n0": a.address})
        await again.start(port)
        try:
            await a.linked("n1")
            await again.linked("n0")
            assert a.transport.send("n1", note(2))
            assert (await again.messages.get())[1] == note(2)
        finally:
            await again.transport.close()


async def test_a_peer_that_comes_back_is_dialled_at_once() -> None:
    # The wait would be a minute; the other side's own link is the sign of life.
    slow = dataclasses.replace(QUICK, backoff_first_seconds=60.0, backoff_max_seconds=60.0)
    a, b = Party("n0", limits=slow), Party("n1")
    async with started(a, b):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            a.transport.set_peers({"n1": taken.getsockname()})
            await asyncio.sleep(0.05)
            port = taken.getsockname()[1]
        late = Party("n1")
        late.transport.set_peers({"n0": a.address})
        await late.start(port)
        try:
            await a.linked("n1")
        finally:
            await late.transport.close()


async def test_another_secret_gets_one_line_and_no_link(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Party("n0", secret=b"right"), Party("n1", secret=b"wrong")
    with caplog.at_level(logging.WARNING, "raft"), caplog.at_level(logging.INFO, "audit"):
        async with started(a, b):
            a.transport.set_peers({"n1": b.address})
            b.transport.set_peers({"n0": ("127.0.0.1", 1)})
            # It is the side that dials which finds out, says so, and is told so; again and again.
            async with asyncio.timeout(20):
                while a.transport.refused["secret"] + b.transport.refused["secret"] < 4:
                    await asyncio.sleep(0.01)
                while "link from n0" not in caplog.text:
                    await asyncio.sleep(0.01)
            assert a.transport.connected == set()
            assert b.messages.empty()
            assert not a.transport.refused["late"] + b.transport.refused["late"] + b.transport.refused["ended"]
    lines = [record.message for record in caplog.records if "n0" in record.message or "n1 at" in record.message]
    ours = [line for line in lines if "link to n1" in line]
    assert len(ours) == 1, "said once, not at each attempt"
    assert "same secret (raftSecretFile)" in ours[0]
    (audited,) = [record.getMessage() for record in caplog.records if record.name == "audit"]
    assert audited.startswith("127.0.0.1 asked for Raft connection: refused (")
    assert "same secret (raftSecretFile)" in audited
    assert any("link from n0" in line and "it refuses" in line for line in lines)


async def test_who_is_no_member_or_refused_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    a, b, c = Party("n0"), Party("n1"), Party("n2")
    with caplog.at_level(logging.WARNING, "raft"):
        async with started(a, b, c):
            b.transport.set_peers({"n2": c.address})
            b.refusals["n2"] = "another disk"
            a.transport.set_peers({"n1": b.address})
            c.transport.set_peers({"n1": b.address})
            told = (
                "it refuses: n0 is no member of the group g that n1 knows of",
                "it refuses: another disk",
                "this member refuses: another disk",
            )
            async with asyncio.timeout(20):
                while not all(words in caplog.text for words in told):
                    await asyncio.sleep(0.01)
            assert not a.transport.connected | b.transport.connected | c.transport.connected


async def test_strangers_get_few_lines_whatever_they_send(caplog: pytest.LogCaptureFixture) -> None:
    a = Party("n0")
    async with started(a):
        for number in range(100):
            reader, writer = await asyncio.open_connection(*a.address)
            writer.write(struct.pack(">I", 0x7F000000 + number))
            async with asyncio.timeout(20):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
    lines = {record.message for record in caplog.records if "from somebody" in record.message}
    assert 16 <= len(lines) <= 64


@pytest.mark.parametrize(
    ("hello", "said"), [(hello_of("n5").encode(), "n1 calls itself n5"), (b"junk", "a hello that cannot be read")]
)
async def test_a_hello_that_makes_no_sense_ends_the_link(
    hello: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = Party("n0"), Party("n1")
    async with started(a, b):
        b.transport._identity = b.transport._identity._replace(hello=lambda: hello)
        a.transport.set_peers({"n1": b.address})
        b.transport.set_peers({"n0": a.address})
        while f"this member refuses: {said}" not in caplog.text or f"it refuses: {said}" not in caplog.text:
            await asyncio.sleep(0.001)
        assert not a.transport.connected | b.transport.connected


async def test_a_wrong_address_is_named(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Party("n0"), Party("n1")
    with caplog.at_level(logging.WARNING, "raft"):
        async with started(a, b):
            a.transport.set_peers({"n2": b.address})
            async with asyncio.timeout(20):
                while "it refuses: this is the member n1, not n2" not in caplog.text:
                    await asyncio.sleep(0.01)


async def test_garbage_and_oversize_frames_cost_their_sender_the_connection_only() -> None:
    a, b = Party("n0"), Party("n1")
    async with started(a, b):
        await introduce(a, b)
        for data in (b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 1 << 30), struct.pack(">IH", 5, 3) + b"abc"):
            reader, writer = await asyncio.open_connection(*b.address)
            writer.write(data)
            await reader.read()
            writer.close()
        assert a.transport.send("n1", note(1))
        assert (await b.messages.get())[1] == note(1)


async def test_who_proves_nothing_is_closed_after_a_moment() -> None:
    b = Party("n1", limits=IMPATIENT)
    async with started(b):
        reader, writer = await asyncio.open_connection(*b.address)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_beyond_the_limit_the_oldest_connection_that_proved_nothing_is_closed() -> None:
    limits = dataclasses.replace(QUICK, incoming_max=2, handshake_seconds=30.0)
    a, b = Party("n0"), Party("n1", limits=limits)
    async with started(a, b):
        await introduce(a, b)
        pairs = [await asyncio.open_connection(*b.address) for _ in range(3)]
        for reader, _ in pairs[:2]:
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
        assert not pairs[2][0].at_eof()
        assert a.transport.send("n1", note(1)), "who was proved stays"
        assert (await b.messages.get())[1] == note(1)
        for _, writer in pairs:
            writer.close()


async def test_a_message_that_cannot_be_read_closes_the_link_which_comes_back() -> None:
    a, b = Party("n0"), Party("n1")
    async with started(a, b):
        await introduce(a, b)
        link = a.transport._out["n1"]
        link._write([struct.pack(">IH", 4, 2) + b"\x81\x18"], 8)
        await a.parted("n1")
        await a.linked("n1")
        assert a.transport.send("n1", note(1))
        assert (await b.messages.get())[1] == note(1)


async def test_a_peer_that_reads_nothing_costs_a_bounded_buffer_and_then_the_link() -> None:
    limits = dataclasses.replace(IMPATIENT, output_bytes_max=4 << 20)
    a, b = Party("n0", limits=limits), Party("n1", limits=dataclasses.replace(QUICK))
    async with started(a, b):
        await introduce(a, b)
        b.transport._in["n0"]._transport.pause_reading()
        data = bytes(1 << 20)
        fields = {"token": 1, "name": "x", "start": 0, "ok": True, "why": "", "crc": 0}
        big = RaftMessage(MessageKind.RESET_BYTES, fields, (data,))
        sent = 0
        while a.transport.send("n1", big):
            sent += 1
            await asyncio.sleep(0)
            assert sent < 1000
        assert a.transport._out["n1"].unsent <= 4 << 20
        assert not a.transport.send("n1", big)
        await a.parted("n1")


async def test_links_that_are_quiet_stay_and_those_that_are_dead_do_not() -> None:
    a, b = Party("n0", limits=IMPATIENT), Party("n1", limits=IMPATIENT)
    async with started(a, b):
        await introduce(a, b)
        # Four times as long as silence may last.
        await asyncio.sleep(IMPATIENT.beat_seconds * IMPATIENT.beats_max * 4)
        assert a.links.empty()
        assert b.links.empty()
        # A process that hangs answers nothing, though its kernel still does.
        await b.transport._tasks.close()
        await a.parted("n1")


@pytest.mark.parametrize("way", ["forth", "back"])
async def test_a_link_that_is_cut_in_one_direction_only_is_noticed_and_comes_back(way: str) -> None:
    a, b = Party("n0", limits=IMPATIENT), Party("n1", limits=IMPATIENT)
    async with started(a, b), Proxy(b.address) as proxy:
        a.transport.set_peers({"n1": proxy.address})
        b.transport.set_peers({"n0": a.address})
        await a.linked("n1")
        await b.linked("n0")
        getattr(proxy, way).clear()
        await a.parted("n1")
        assert b.transport.connected == {"n0"}, "the other direction is another link"
        assert not a.transport.send("n1", note(1))
        proxy.heal()
        await a.linked("n1")
        assert a.transport.send("n1", note(2))
        assert (await b.messages.get())[1] == note(2)


async def test_a_removed_member_is_cut_off_and_a_moved_one_followed() -> None:
    a, b, c = Party("n0"), Party("n1"), Party("n1")
    async with started(a, b, c):
        c.transport.set_peers({"n0": a.address})
        await introduce(a, b)
        a.transport.set_peers({"n1": c.address})
        await a.linked("n1")
        assert a.transport.send("n1", note(1))
        assert (await c.messages.get())[1] == note(1)
        a.transport.set_peers({})
        assert not a.transport.send("n1", note(1)) or a.transport.connected == {"n1"}
        await a.parted("n1")
        await c.parted("n0")


async def test_the_newest_of_two_links_from_one_member_counts() -> None:
    a, b, twin = Party("n0"), Party("n1"), Party("n0")
    async with started(a, b, twin):
        await introduce(a, b)
        twin.transport.set_peers({"n1": b.address})
        await twin.linked("n1")
        await a.parted("n1")


async def test_a_member_that_is_not_on_loopback_needs_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    a = Party("n0")
    a.transport.set_peers({"n1": ("192.0.2.1", 40911)})
    with pytest.raises(SecretRequired, match="members n1 are not on loopback"):
        await a.transport.start("127.0.0.1", 0)
    # One that is added later is not dialled, and that is said.
    b = Party("n0")
    async with started(b):
        b.transport.set_peers({"n1": ("192.0.2.1", 40911)})
        assert "raftSecretFile is not set: no link" in caplog.text


def test_it_works_the_same_on_the_loop_of_the_product() -> None:
    async def main() -> None:
        await test_messages_arrive_in_order_and_whole_both_ways()
        await test_a_restarted_peer_is_linked_again()
        await test_a_peer_that_reads_nothing_costs_a_bounded_buffer_and_then_the_link()
        await test_links_that_are_quiet_stay_and_those_that_are_dead_do_not()

    uvloop.run(main(), debug=True)
