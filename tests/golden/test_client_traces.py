"""Traces of RocketMQ's Java client 5.5.0: read and written again they are the same bytes, under the same keys."""

import json
from pathlib import Path

import pytest

from client.trace.records import Pub, SubAfter, SubBefore, decode_traces, joined, trace_keys

DATA = Path(__file__).with_name("data") / "traces.jsonl"
RECORDED = [json.loads(line) for line in DATA.read_text().splitlines()]


@pytest.mark.parametrize("recorded", RECORDED)
def test_recorded_traces_are_read_and_written_alike(recorded: dict[str, str]) -> None:
    body = bytes.fromhex(recorded["bodyHex"])
    records = decode_traces(body)
    assert joined(records) == body
    assert set(recorded["keys"].split()) == {key for record in records for key in trace_keys(record)}


def test_the_fields_stand_where_they_belong() -> None:
    records = [record for recorded in RECORDED for record in decode_traces(bytes.fromhex(recorded["bodyHex"]))]
    (pub, *_) = [record for record in records if isinstance(record, Pub)]
    assert (pub.region, pub.group, pub.topic, pub.tags, pub.keys) == (
        "DefaultRegion",
        "FeatTraceProducer",
        "FeatTrace",
        "T",
        "traced",
    )
    assert (pub.store_host, pub.body_length, pub.message_type, pub.success) == ("127.0.0.1:32911", 6, 0, True)
    before = [record for record in records if isinstance(record, SubBefore)]
    after = [record for record in records if isinstance(record, SubAfter)]
    assert [record.request_id for record in before] == [record.request_id for record in after]
    assert {(record.group, record.context_code, record.success) for record in after} == {("FeatTraceGroup", 0, True)}
