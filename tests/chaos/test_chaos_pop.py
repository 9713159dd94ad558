"""Short runs of POP under faults, from start to verdict: one without a bug, and one whose brokers have one."""

from pathlib import Path

import orjson
import pytest

from chaos.apps.judge import RESULTS
from chaos.pop.verdict import judge_pop_folder
from pipeline.history.results import Verdict
from tests.chaos.planted.bugs import BUGS
from tests.chaos.planted.poptrial import MESSAGES, POP_TRIAL
from tests.chaos.test_chaos_apps import processes_of
from tests.chaos.verdicts import assert_valid
from tests.parts.processes_left import left_of

SEED = 1


@pytest.mark.timeout(240)
async def test_consumers_and_the_leader_are_killed_and_each_message_is_acknowledged_once(tmp_path: Path) -> None:
    results = await POP_TRIAL.run("", SEED, tmp_path)
    assert_valid(results, tmp_path)
    assert results.figures["messages"]["acked"] >= MESSAGES
    assert results.figures["again"]["holder killed"] > 0
    assert orjson.loads((tmp_path / RESULTS).read_bytes())["verdict"] == "valid"
    assert left_of(processes_of, tmp_path) == []
    # The same run, had the last life of one consumer acknowledged nothing: it is found in the very files.
    path = max((tmp_path / "apps").glob("pop0-*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2]))
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines if line["e"] not in {"settling", "settled"}))
    assert "I-open" in [one.check for one in judge_pop_folder(tmp_path).findings if one.verdict is Verdict.INVALID]


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_broker_that_forgets_an_acknowledgement_is_found(tmp_path: Path) -> None:
    bug = BUGS["pop-ack-not-stored"]
    results = await POP_TRIAL.run(bug.plant, SEED, tmp_path)
    invalid = {one.check for one in results.findings if one.verdict is Verdict.INVALID}
    assert results.verdict is Verdict.INVALID
    assert bug.checks & invalid, invalid
