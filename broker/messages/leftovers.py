"""What a store from RocketMQ holds that this broker does not serve: found at start, and said loudly.

Such a store works, and what is in it stays there; but whoever waits for a message that nobody will deliver should not
have to find out why. Looked at are attributes of topics, and whether folders hold anything: nothing is searched in the
log.
"""

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path

from broker.metadata.lmq_offsets import LMQ_PREFIX
from remoting.bodies.registry import TopicConfig
from remoting.errors import HeaderError
from remoting.fastjson import loads

QUEUE_TYPE = "queue.type"
CLEANUP = "cleanup.policy"
# Names of topics in one sentence.
NAMED_MAX = 5
_WITH_ROCKETMQ = "run RocketMQ's broker on this folder until they are settled"


def leftovers(root: Path, topics: Mapping[str, TopicConfig]) -> list[str]:
    """Return a sentence for each thing that is there and not served. Raises OSError."""
    return [
        *_pops(root),
        *_odd_topics(root, topics),
        *_extended(root),
        *_light(root),
    ]


def _pops(root: Path) -> Iterator[str]:
    if _holds(root / "kvStore"):
        yield (
            "POP consumption in RocksDB (kvStore): messages that were taken and not acknowledged do not come again; "
            f"{_WITH_ROCKETMQ}, with its consumers stopped"
        )
    if _holds_order(root / "config" / "consumerOrderInfo.json"):
        yield (
            "POP in order (config/consumerOrderInfo.json): messages that were taken in order and not acknowledged come "
            "again at once, and with them those behind them that were"
        )


def _holds_order(path: Path) -> bool:
    try:
        found = loads(path.read_bytes())
    except (OSError, HeaderError):
        return False
    return isinstance(found, dict) and bool(found.get("table"))


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


def _light(root: Path) -> Iterator[str]:
    found = [folder.name for folder in root.glob(f"consumequeue/{glob.escape(LMQ_PREFIX)}*") if _holds(folder)]
    if found:
        yield (
            f"light message queues ({_some(sorted(found))}): messages of lite topics are kept in the log and given to "
            "nobody here, while offsets of groups in them are kept; have them consumed by RocketMQ first"
        )


def _holds(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
