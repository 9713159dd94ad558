"""The two bugs that the straight lane invites: it acknowledges before a sync, or goes on when its term has ended."""

from tests.simulation import planted_lane
from tests.simulation.test_raft_planted_bugs import _quiet, catch, figure_eight, slow_disks

__all__ = ["_quiet"]


def test_a_lane_that_acknowledges_before_the_sync_is_caught() -> None:
    catch(slow_disks, planted_lane.lane_before_the_sync, "AcknowledgedIsOnAMajoritysDisk")


def test_a_lane_that_outlasts_its_term_is_caught() -> None:
    catch(figure_eight, planted_lane.lane_after_its_term, "LeadersHaveAllThatIsCommitted")
