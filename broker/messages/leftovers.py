"""What a store from RocketMQ holds that this broker does not serve: found at start, and said loudly.

Such a store works, and what is in it stays there; but whoever waits for a message that nobody will deliver should not
have to find out why. Looked at are ends of queues, offsets of RocketMQ's own groups, attributes of topics, and whether
folders hold anything: nothing is searched in the log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from remoting.bodies.registry import TopicConfig
from remoting.topics import REVIVE_LOG_PREFIX, TIMER_TOPIC

# The group by which RocketMQ notes how far it has come with POP's check points.
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
QUEUE_TYPE = "queue.type"
CLEANUP = "cleanup.policy"
# Names of topics in one sentence.
NAMED_MAX = 5
_WITH_ROCKETMQ = "run RocketMQ's broker on this folder until they are settled"

# Where a queue begins or ends: (topic, queue) → offset.
Bound = Callable[[str, int], int]
# An offset of a group: (group, topic, queue) → offset, below 0 for none.
Committed = Callable[[str, str, int], int]


def leftovers(
    root: Path,
    topics: Mapping[str, TopicConfig],
    queues: Mapping[str, Iterable[int]],
    begin: Bound,
    end: Bound,
    committed: Committed,
    timers: int,
) -> list[str]:
    """Return a sentence for each thing that is there and not served.

    `queues` are those that the store has, by topic; `timers` is what store.timerwheel counts. Raises OSError.
    """

    def open_in(topic: str, group: str) -> int:
        return sum(
            max(0, end(topic, queue) - max(committed(group, topic, queue), begin(topic, queue)))
            for queue in queues.get(topic, ())
        )

    revive = sum(open_in(topic, REVIVE_GROUP) for topic in queues if topic.startswith(REVIVE_LOG_PREFIX))
    return [
        *_timers(timers),
        *_pops(root, revive),
        *_odd_topics(root, topics),
        *_extended(root),
    ]


def _timers(count: int) -> Iterator[str]:
    if count:
        yield (
            f"timer messages (up to {count} in timerwheel and {TIMER_TOPIC}, POP's check points among them): nobody "
            f"delivers them here, and retention deletes them with the log; {_WITH_ROCKETMQ}"
        )


def _pops(root: Path, count: int) -> Iterator[str]:
    if count or _holds(root / "kvStore"):
        of = f"{count} check points and answers in {REVIVE_LOG_PREFIX}*" if count else "kvStore"
        yield (
            f"POP consumption ({of}): messages that were taken and not acknowledged do not come again, and groups that "
            f"POP cannot go on; {_WITH_ROCKETMQ}, with its consumers stopped"
        )


def _odd_topics(root: Path, topics: Mapping[str, TopicConfig]) -> Iterator[str]:
    batch = sorted(name for name, topic in topics.items() if topic.attributes.get(QUEUE_TYPE) == "BatchCQ")
    if batch or _holds(root / "batchconsumequeue"):
        yield (
            f"topics with batch queues ({_some(batch) or 'in batchconsumequeue'}): this broker numbers their messages "
            "in other queues, so offsets of their groups mean other messages; have them consumed by RocketMQ first"
        )
    compacted = sorted(name for name, topic in topics.items() if topic.attributes.get(CLEANUP) == "COMPACTION")
    if compacted:
        yield (
            f"compacted topics ({_some(compacted)}): here they are deleted by age like all others (fileReservedTime); "
            "copy what must be kept"
        )


def _extended(root: Path) -> Iterator[str]:
    if _holds(root / "consumequeue_ext"):
        yield (
            "queues written with enableConsumeQueueExt (consumequeue_ext): consumers that select by tag may miss "
            "messages in them; stop this broker, move consumequeue and consumequeue_ext away, and start it again: the "
            "queues are built anew from the log"
        )


def _holds(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
