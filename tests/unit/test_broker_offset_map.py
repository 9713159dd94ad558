"""offset_map.py: offsets by topic and group are those of the whole map, and a snapshot is of one moment."""

import json
import random

import pytest

from broker.metadata import offset_map
from broker.metadata.offset_map import OffsetMap, encoded
from remoting.bodies.registry import ConsumerOffsetTable, DataVersion

VERSION = DataVersion(1, 2, 3)
TOPICS, GROUPS = ("T", "Tt", "%RETRY%g", "t"), ("g", "gg", "g@broadcast", "h")


def keys_by_scan(table: OffsetMap, topic: str, group: str) -> set[str]:
    """What the index must say, the slow way."""
    pairs = {key: key.split("@", 1) for key in table}
    return {key for key, (its, of) in pairs.items() if topic in ("", its) and group in ("", of)}


@pytest.mark.parametrize("seed", range(5))
def test_the_index_is_that_of_a_scan_whatever_comes_and_goes(seed: int) -> None:
    chance, table = random.Random(seed), OffsetMap([("T@g", {0: 5})])
    for number in range(300):
        topic, group = chance.choice(TOPICS), chance.choice(GROUPS)
        key = f"{topic}@{group}"
        if chance.random() < 0.6:
            table.of(key)[chance.randrange(4)] = number
        elif key in table:
            gone = dict(table[key])
            assert table.drop(key) == gone
        for its in ("", *TOPICS):
            for of in ("", *GROUPS):
                found = table.keys_of(its, of)
                assert len(found) == len(set(found))
                assert set(found) == keys_by_scan(table, its, of)
    for key in list(table):
        table.drop(key)
    assert not table._of_topic
    assert not table._of_group


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
def test_it_is_encoded_as_rocketmq_does_in_portions(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(offset_map, "PORTION", 2)
    table = OffsetMap((f"T{number}é@g", {0: number, 7: 1 << 60}) for number in range(size))
    whole = b"".join(encoded(table, VERSION))
    assert whole == ConsumerOffsetTable(dataVersion=VERSION, offsetTable=dict(table)).encode()
    assert ConsumerOffsetTable.decode(whole).offsetTable == table


def test_a_snapshot_is_of_the_moment_in_which_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "PORTION", 1)
    table = OffsetMap((f"T@{number}", {0: number}) for number in range(6))
    before = {key: dict(queues) for key, queues in table.items()}
    snapshot = table.snapshot(VERSION)
    pieces = [next(snapshot)]
    table.of("T@0")[0] = 100
    table.of("T@5")[0] = 105
    table.of("T@5")[1] = 106
    table.drop("T@4")
    table.of("new@g")[0] = 1
    # Whoever asks for all of it meanwhile gets what there is now, and disturbs nobody.
    assert json.loads(b"".join(encoded(table, VERSION)))["offsetTable"]["T@5"] == {"0": 105, "1": 106}
    table.of("T@3")[0] = 103
    assert ConsumerOffsetTable.decode(b"".join([*pieces, *snapshot])).offsetTable == before
    assert table["T@5"] == {0: 105, 1: 106}
    # What is changed afterwards costs no copy.
    offsets = table["T@1"]
    assert table.of("T@1") is offsets
