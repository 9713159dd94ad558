"""A lost CommitLog file under load, with real processes: what raftmq bench recovery --lost-file measures, in small."""

from pathlib import Path

import pytest

from raftmq.bench.lostfile import lost_file

FILE_MIB = 16


@pytest.mark.timeout(120)
async def test_R4_a_lost_file_is_repaired_under_load_without_an_election(tmp_path: Path) -> None:
    found = await lost_file(FILE_MIB, 1024, 1024, 64, 16, tmp_path)
    assert (found["elections"], found["same_leader"], found["send_errors_during"]) == (0, True, 0)
    assert found["repaired_mib"] >= FILE_MIB - 1
    assert found["sends_per_s_during"] > 0
