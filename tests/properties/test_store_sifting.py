"""Sifted reads against a list: whatever the limits, reading on gives each wanted message once, in order, and ends."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from remoting.properties import decode_properties, encode_properties
from remoting.record import decode_records
from runtime.clock import ManualClock
from store.messagestore import MessageStore
from store.types import GetStatus
from tests.parts.store_tools import HOST, make_config, record

# Of each message: whether it is wanted, its body's size, and how many of another topic follow it.
messages = st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 900, 3000]), st.integers(0, 2)), max_size=150)


@given(
    messages, st.integers(1, 40), st.sampled_from([1, 500, 5000, 1 << 20]), st.sampled_from([20, 20 * 70, 16_000]),
    st.sampled_from([1 << 16, 1 << 20]),
)  # fmt: skip
def test_reading_on_gives_what_is_wanted(
    sent: list[tuple[bool, int, int]], count: int, size: int, scanned: int, file_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(Path(folder), maxFilterMessageSize=scanned, mappedFileSizeCommitLog=file_bytes)
        store = MessageStore.open(config, store_host=HOST, clock=ManualClock(), stepped=True)
        for wanted, body_bytes, others in sent:
            store.put(record(bytes(body_bytes), properties=encode_properties({"w": "y" if wanted else "n"})))
            for _ in range(others):
                store.put(record(topic="U"))
        store.write()
        at, found, shown = 0, list[int](), 0

        def wants(properties: memoryview) -> bool:
            nonlocal shown
            shown += 1
            return decode_properties(properties)["w"] == "y"

        while at < len(sent):
            result = store.sift("T", 0, at, count, size, wants)
            given_now = [message for buffer in result.buffers for message in decode_records(buffer)]
            offsets = [message.queue_offset for message in given_now]
            found += offsets
            assert result.status is (GetStatus.FOUND if offsets else GetStatus.NO_MATCHED_MESSAGE)
            assert (result.count, result.size) == (len(offsets), sum(message.size for message in given_now))
            assert result.count <= min(count, 32)
            assert result.count == 1 or result.size <= size
            assert at < result.next_offset <= len(sent), "each read moves on"
            assert all(at <= offset < result.next_offset for offset in offsets)
            at = result.next_offset
        assert found == [number for number, (wanted, _, _) in enumerate(sent) if wanted]
        # A message at which an answer was full is looked at again, and no other.
        assert shown <= 2 * len(sent)
        store.close()
