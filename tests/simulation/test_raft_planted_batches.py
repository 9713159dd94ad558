"""A batch that is stored as two entries: it can be torn, and the invariants see it before it is."""

from raft.protocol.types import Fate
from tests.simulation import planted
from tests.simulation.script import Script
from tests.simulation.test_raft_planted_bugs import catch


def batches(script: Script) -> None:
    script.begin()
    for _ in range(2):
        # One of them is a batch.
        attempt = script.send("n0", records=3)
        script.until("acknowledged", lambda a=attempt: a.fate is Fate.COMMITTED)  # type: ignore[misc]  # a bound default


def test_a_batch_in_two_entries_is_caught() -> None:
    catch(batches, planted.split_batches, "AcknowledgedIsOnAMajoritysDisk")
