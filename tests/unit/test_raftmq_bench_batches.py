"""`raftmq bench batches`: its frames, and its arithmetic over made-up rounds."""

import pytest

from raftmq.bench.batches import BATCH, SINGLE, BatchRound, figures, ratio
from raftmq.bench.frames import batch_templates
from raftmq.bench.load import BatchSends, Result
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.properties import decode_properties
from remoting.record import split_batch


def measured(kind: str, number: int, rate: int, cpu: float | None = 10.0) -> BatchRound:
    return BatchRound(kind, number, Result(kind, 1, 8, 100, 1.0, 5, 5, rate, 1.0, 2.0, 3.0, {}, cpu, 0.5))


def test_each_frame_is_a_batch_of_so_many_messages() -> None:
    work = BatchSends("T", 100, 32)
    frames = [decode(frame[4:]) for frame in work.frames(range(1_000_000, 1_000_009))]
    assert [frame.opaque for frame in frames] == list(range(1_000_000, 1_000_009))
    assert {frame.code for frame in frames} == {RequestCode.SEND_BATCH_MESSAGE}
    assert [frame.header(SendMessageRequestHeaderV2).queueId for frame in frames] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    messages = list(split_batch(frames[0].body))
    assert [len(body) for _, body, _ in messages] == [100] * 32
    keys = [decode_properties(properties)["UNIQ_KEY"] for _, _, properties in messages]
    assert len(set(keys)) == 32
    assert f"UNIQ_KEY\x01{','.join(keys)}\x02" in (frames[0].header(SendMessageRequestHeaderV2).properties or "")
    assert len(batch_templates("T", 1, 2)) == 8


def test_an_answer_stands_for_a_whole_batch_or_for_none() -> None:
    assert BatchSends("T", 10, 32).messages([(1_000_000, 0, b""), (1_000_001, 2, b""), (1_000_002, 0, b"")]) == 64


def test_the_ratio_is_the_median_of_the_rounds_that_have_both() -> None:
    rounds = [measured(SINGLE, 0, 100), measured(BATCH, 0, 300), measured(SINGLE, 1, 50), measured(BATCH, 1, 100)]
    rounds += [measured(SINGLE, 2, 10), measured(BATCH, 2, 50), measured(SINGLE, 3, 1)]
    assert ratio(rounds) == pytest.approx(3.0)
    assert ratio(rounds[:1]) is None
    rows = figures(rounds)
    assert [(row.what, row.rounds, row.messages_per_s) for row in rows] == [("send", 4, 30), ("batch", 3, 100)]
    assert figures([measured(BATCH, 0, 5, None)])[0].server_cpu_us_per_message is None
