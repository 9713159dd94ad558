"""Delayed and sent-back messages that RocketMQ 5.5.0 delivered: what ours makes of the waiting records is the same."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from broker.messages.delayed_record import pending, real
from remoting.properties import decode_properties
from remoting.record import RecordError, decode_record
from remoting.topics import SCHEDULE_TOPIC

FOLDER = Path(__file__).parent / "data" / "store-single-clean.tar.xz"


def records() -> Iterator[memoryview]:
    """Yield the records of the recorded CommitLog."""
    with tarfile.open(FOLDER) as archive:
        for entry in archive:
            if "/commitlog/" not in f"/{entry.name}" or not entry.isfile():
                continue
            file = archive.extractfile(entry)
            assert file is not None
            content = memoryview(file.read())
            at = 0
            while (size := int.from_bytes(content[at : at + 4], "big")) > 0:
                try:
                    decode_record(content[at : at + size])
                except RecordError:
                    break
                yield content[at : at + size]
                at += size


def test_a_delivered_message_keeps_its_delay_and_its_real_place() -> None:
    found = list(records())
    waiting = [view for view in found if decode_record(view).topic == SCHEDULE_TOPIC]
    compared = set()
    for view in waiting:
        made = real(view)
        (recorded,) = [
            pending(other)
            for other in found
            if (message := decode_record(other)).topic == made.topic
            and message.queue_id == made.queue_id
            and message.reconsume_times == made.reconsume_times
            and message.msg_id == decode_record(view).msg_id
        ]
        assert msgspec.structs.asdict(made) == msgspec.structs.asdict(recorded)
        properties = decode_properties(made.properties)
        assert int(properties["DELAY"]) == decode_record(view).queue_id + 1
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (made.topic, str(made.queue_id))
        compared.add(made.topic)
    assert compared == {"GoldenDelay", "%RETRY%GoldenRetry"}
