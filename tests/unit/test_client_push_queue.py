"""How much of a topic one of its queues may have unfinished (client/consume/push_queue.py)."""

import pytest

from client.consume.push_queue import PullLimits


@pytest.mark.parametrize(
    ("limits", "queues", "share"),
    [
        (PullLimits(unfinished_max=100, unfinished_bytes_max=1000), 4, (100, 1000)),
        (PullLimits(unfinished_max=100, topic_unfinished_max=40, unfinished_bytes_max=1000), 4, (10, 1000)),
        (PullLimits(unfinished_max=100, topic_unfinished_bytes_max=40, unfinished_bytes_max=1000), 4, (100, 10)),
        # The smaller of both counts, and a queue that is there gets something.
        (PullLimits(unfinished_max=5, topic_unfinished_max=40), 4, (5, 100 * 1024 * 1024)),
        (PullLimits(topic_unfinished_max=3, topic_unfinished_bytes_max=3), 4, (1, 1)),
        (PullLimits(topic_unfinished_max=3), 0, (3, 100 * 1024 * 1024)),
    ],
)
def test_each_queue_of_a_topic_has_its_share(limits: PullLimits, queues: int, share: tuple[int, int]) -> None:
    assert limits.share(lambda: queues) == share
