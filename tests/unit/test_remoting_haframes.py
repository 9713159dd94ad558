"""remoting/haframes.py: RocketMQ's bytes of the HA port, cut anywhere."""

import pytest

from remoting.errors import FrameError
from remoting.haframes import HEAD_BYTES, REPORT_BYTES, HaFrameReader, ReportReader, head, report

BODY_MAX = 100


def test_the_bytes_are_rocketmqs() -> None:
    assert (REPORT_BYTES, HEAD_BYTES) == (8, 12)
    assert report(0x2EDF).hex() == "0000000000002edf"
    assert head(0x3016, 0x194).hex() == "000000000000301600000194"


def test_reports_are_cut_at_any_byte() -> None:
    offsets = [0, 1, 2**40, -5]
    stream = b"".join(map(report, offsets))
    for step in range(1, len(stream) + 1):
        reader = ReportReader()
        got = [offset for at in range(0, len(stream), step) for offset in reader.feed(stream[at : at + step])]
        assert got == offsets


def test_frames_are_cut_at_any_byte() -> None:
    frames = [(0, b"abc"), (3, b""), (3, bytes(BODY_MAX)), (103, b"x")]
    stream = b"".join([head(position, len(data)) + data for position, data in frames])
    for step in range(1, len(stream) + 1):
        reader = HaFrameReader(BODY_MAX)
        got = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at : at + step])]
        assert got == frames
        assert reader.buffered == 0


@pytest.mark.parametrize(
    ("position", "size"), [(-1, 0), (0, -1), (0, BODY_MAX + 1), (-(2**63), 2**31 - 1), (2**62, -(2**31))]
)
def test_what_cannot_be_a_frame_is_refused_by_its_head(position: int, size: int) -> None:
    reader = HaFrameReader(BODY_MAX)
    assert reader.feed(head(0, 2) + b"ab" + head(position, size)[:-1]) == [(0, b"ab")]
    with pytest.raises(FrameError, match=f"{size} bytes at {position}"):
        reader.feed(head(position, size)[-1:])


def test_no_more_is_kept_than_a_frame() -> None:
    reader = HaFrameReader(BODY_MAX)
    assert reader.feed(head(7, BODY_MAX)) == []
    for count in range(1, BODY_MAX):
        assert reader.feed(b"x") == []
        assert reader.buffered == HEAD_BYTES + count
    assert reader.feed(b"x") == [(7, b"x" * BODY_MAX)]
    assert reader.buffered == 0
