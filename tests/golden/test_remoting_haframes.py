"""The HA connection recorded from RocketMQ 5.5.0, master to slave and back: read, and said again by our master."""

import asyncio
import json
from pathlib import Path

from remoting.haframes import HEAD_BYTES, HaFrameReader, ReportReader, head, report
from tests.parts.ha_master import MemoryLog, connect, serving

# As the recorded broker was set up (mappedFileSizeCommitLog).
FILE_BYTES = 16384


def recorded() -> list[tuple[bool, bytes]]:
    """(towards the master?, bytes) in the order of time."""
    lines = (Path(__file__).parent / "data" / "ha-stream.jsonl").read_text("utf-8").splitlines()
    return [(one["towardsMaster"], bytes.fromhex(one["bytes"])) for one in map(json.loads, lines)]


STREAM = recorded()
REPORTS = b"".join([data for towards_master, data in STREAM if towards_master])
FRAMES = b"".join([data for towards_master, data in STREAM if not towards_master])


def test_the_recorded_bytes_are_read_and_written_again_the_same() -> None:
    offsets = ReportReader().feed(REPORTS)
    assert len(offsets) == 15
    assert b"".join(map(report, offsets)) == REPORTS
    frames = HaFrameReader(32 * 1024).feed(FRAMES)
    assert len(frames) == 14
    assert b"".join([head(position, len(data)) + data for position, data in frames]) == FRAMES


def test_the_recorded_frames_follow_one_another_and_what_is_reported_was_sent() -> None:
    reports, frames = ReportReader(), HaFrameReader(32 * 1024)
    sent = acked = 0
    for towards_master, data in STREAM:
        if towards_master:
            for offset in reports.feed(data):
                assert acked <= offset <= sent
                acked = offset
        else:
            for position, piece in frames.feed(data):
                assert position == sent
                assert position // FILE_BYTES == max(position, position + len(piece) - 1) // FILE_BYTES
                sent += len(piece)
    assert sent == acked == 0x4344


async def test_our_master_says_the_same_to_the_recorded_slave() -> None:
    frames = [(position, piece) for position, piece in HaFrameReader(32 * 1024).feed(FRAMES) if piece]
    log = MemoryLog(frames[0][1], file_bytes=FILE_BYTES)
    async with serving(log) as master:
        slave = await connect(master)
        offsets = ReportReader().feed(REPORTS)
        slave.report(offsets[0])
        for position, piece in frames:
            if position == len(log.data):
                # The recorded master had rolled its log: both pieces were there at once.
                rest = frames[frames.index((position, piece)) + 1][1] if position % FILE_BYTES == 0x3FC2 else b""
                master.grow(piece + rest)
            size = HEAD_BYTES + len(piece)
            async with asyncio.timeout(20):
                assert await slave.reader.readexactly(size) == head(position, len(piece)) + piece
            for offset in sorted({offset for offset in offsets if position < offset <= position + len(piece)}):
                slave.report(offset)
        await master.until_acked(0x4344)
        assert master.server.in_sync() == 1
