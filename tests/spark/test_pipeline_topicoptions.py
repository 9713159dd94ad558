from collections.abc import Mapping

import pytest

from pipeline.spark.topic.batch import QueueRange, split_ranges
from pipeline.spark.topic.options import COLUMNS, Bound, OptionError, topic_options
from pipeline.spark.topic.stream import limited, read, written

LEAST = {"namesrv": "127.0.0.1:9876", "topic": "T"}


def test_the_least_that_must_be_said() -> None:
    options = topic_options(LEAST)
    assert options.namesrv == ("127.0.0.1:9876",)
    assert (options.start, options.end) == (None, Bound("latest"))
    assert options.columns == COLUMNS
    assert options.fail_on_data_loss
    assert options.tags == frozenset()


def test_everything_is_read_whatever_its_case() -> None:
    options = topic_options(
        LEAST
        | {
            "STARTINGOFFSETS": '{"broker-a": {"0": 12, "1": "latest", "2": -2}}',
            "endingTimestamp": "1700000000000",
            "Tags": "a || b",
            "columns": "body, queueid",
            "minPartitions": "7",
            "maxOffsetsPerTrigger": "100",
            "failOnDataLoss": "False",
            "pullBatchCount": "32",
            "pullBatchBytes": "4096",
            "retryTimeoutMs": "1500",
            "dedupKey": "",
            "checkpointLocation": "anywhere",
        }
    )
    assert options.start == Bound("earliest", {"broker-a": {0: 12, 1: "latest", 2: "earliest"}})
    assert options.end.timestamp_ms == 1_700_000_000_000
    assert options.tags == {"a", "b"}
    assert options.columns == ("body", "queueId")
    assert (options.partitions_min, options.offsets_per_trigger) == (7, 100)
    assert not options.fail_on_data_loss
    assert (options.pull_count, options.pull_bytes, options.retry_s, options.dedup_key) == (32, 4096, 1.5, "")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"topic": ""}, "needs the option topic"),
        ({"namesrv": " "}, "needs the option namesrv"),
        ({"namesrv": "host:x"}, "host:port"),
        ({"topic": "a b"}, "a b"),
        ({"group": "a b"}, "a b"),
        ({"colums": "body"}, "has no option colums: it takes namesrv, topic"),
        ({"columns": "body,offset"}, "columns takes each of these at most once"),
        ({"columns": "body,body"}, "columns takes each of these at most once"),
        ({"startingOffsets": "first"}, 'startingOffsets takes "earliest", "latest" or JSON'),
        ({"startingOffsets": '{"broker-a": 3}'}, 'startingOffsets takes "earliest"'),
        ({"endingOffsets": '{"broker-a": {"0": -3}}'}, "not '0': -3 for broker-a"),
        ({"endingOffsets": '{"broker-a": {"0": true}}'}, "not '0': True for broker-a"),
        ({"endingOffsets": '{"broker-a": {"x": 1}}'}, "not 'x': 1 for broker-a"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "leave one of them out"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp takes a whole number"),
        ({"minPartitions": "0"}, "minPartitions takes a whole number from 1"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss takes true or false, not 'no'"),
        ({"pullBatchBytes": "99999999"}, "pullBatchBytes takes a whole number from 1 to 15728640"),
        ({"tags": "||"}, "names no tag"),
    ],
)
def test_what_is_wrong_is_said(wrong: Mapping[str, str], told: str) -> None:
    with pytest.raises(OptionError) as error:
        topic_options({**LEAST, **wrong})
    assert told in str(error.value)


def test_ranges_are_cut_until_there_are_enough() -> None:
    def cut(*sizes: int, least: int) -> list[tuple[int, int, int]]:
        ranges = [QueueRange("a", number, 10, 10 + size) for number, size in enumerate(sizes)]
        return [(one.queue_id, one.start, one.end) for one in split_ranges(ranges, least)]

    assert cut(5, 0, 3, least=1) == [(0, 10, 15), (2, 10, 13)]
    assert cut(0, 0, least=4) == []
    assert cut(10, least=4) == [(0, 10, 12), (0, 12, 15), (0, 15, 17), (0, 17, 20)]
    # One message is one partition, however many are asked for.
    assert cut(1, 2, least=9) == [(0, 10, 11), (1, 10, 11), (1, 11, 12)]
    many = cut(1000, 10, 500, least=7)
    assert len(many) >= 7
    assert sum(end - start for _, start, end in many) == 1510


def test_a_micro_batch_takes_of_each_queue_its_share() -> None:
    begun = {("a", 0): 10, ("a", 1): 0, ("b", 0): 5}
    ends = {("a", 0): 110, ("a", 1): 100, ("b", 0): 5, ("c", 0): 7}
    assert limited(begun, ends, None) == {("a", 0): 110, ("a", 1): 100, ("b", 0): 5}
    assert limited(begun, ends, 50) == {("a", 0): 35, ("a", 1): 25, ("b", 0): 5}
    assert limited(begun, ends, 1000) == limited(begun, ends, None)
    # A limit below the number of queues still brings the query on.
    assert sum(limited(begun, ends, 1).values()) == sum(begun.values()) + 1
    # A queue that is in no route keeps its offset, and one whose end went back too.
    assert limited(begun, {("a", 0): 3}, None) == begun


def test_offsets_survive_spark() -> None:
    table = {("b", 0): 5, ("a", 11): 3, ("a", 2): 0}
    assert written(table) == {"a": {"2": 0, "11": 3}, "b": {"0": 5}}
    assert read(written(table)) == table
