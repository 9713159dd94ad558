"""chaos/runs/closing.py: what is read at the end of a run has time by how much of it there is."""

from chaos.runs.closing import SCANNED_A_SECOND, reading_s


def test_a_long_run_has_more_time_for_its_scans() -> None:
    """Six million messages through three members: 120 s for any run left the verdict of a long one unknown."""
    assert reading_s({("t", 0): 3_000_000, ("t", 1): 3_000_000}, 3) == 18_000_000 / SCANNED_A_SECOND > 1000
    assert reading_s({}, 3) == 0
