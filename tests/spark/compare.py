"""Holds a Spark check against its twin, over many histories at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import orjson

from pipeline.history import catalogue
from pipeline.history.results import WITNESSES_MAX, Finding
from pipeline.plain.evidence import History


def plain(witness: Mapping[str, Any]) -> str:
    """A witness as text that is equal for equal ones."""
    return orjson.dumps(witness, option=orjson.OPT_SORT_KEYS).decode()


def assert_same(
    spark_findings: Mapping[int, Finding], histories: Sequence[History], twin: Callable[[History], Finding]
) -> int:
    """Assert that every history has the same finding twice; returns how many had witnesses.

    Of more witnesses than are shown the count must be the same, and all that are shown must be among the twin's.
    """
    wrong = []
    with_witnesses = 0
    for number, history in enumerate(histories):
        here, there = spark_findings[number], _unlimited(twin, history)
        with_witnesses += bool(there.count)
        same = (here.check, here.title, here.verdict, here.count, here.text) == (
            there.check, there.title, there.verdict, there.count, there.text
        )  # fmt: skip
        mine, theirs = sorted(map(plain, here.witnesses)), sorted(map(plain, there.witnesses))
        same = same and (mine == theirs if there.count <= WITNESSES_MAX else set(mine) <= set(theirs))
        if not same:
            wrong.append(f"run {number}\n spark {here}\n twin  {there}")
    assert not wrong, f"{len(wrong)} of {len(histories)} differ:\n" + "\n".join(wrong[:5])
    return with_witnesses


def _unlimited(twin: Callable[[History], Finding], history: History) -> Finding:
    """The twin's finding with all witnesses."""
    with mock.patch.object(catalogue, "WITNESSES_MAX", 1_000_000):
        return twin(history)
