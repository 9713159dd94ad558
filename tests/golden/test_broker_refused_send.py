"""A send that RocketMQ 5.5.0 refused, put to our broker byte for byte: the refusal has the same fields."""

import json
from pathlib import Path

import pytest

from remoting.codec import decode
from remoting.command import JSON, ROCKETMQ
from tests.golden.test_broker_answers import Wire, wire

__all__ = ["wire"]

FRAMES = Path(__file__).parent / "data" / "refused-send.jsonl"


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
async def test_a_refused_send_says_region_and_tracing(wire: Wire, kind: int) -> None:  # it is the fixture
    entries = [json.loads(line) for line in FRAMES.read_text().splitlines()]
    asked, answered = [bytes.fromhex(entry["frame"]) for entry in entries if entry["serializeType"] == kind]
    assert decode(asked[4:]).serialize_type == kind
    expected, answer = decode(answered[4:]), await wire.ask(asked)
    assert (answer.code, answer.ext) == (expected.code, expected.ext)
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
