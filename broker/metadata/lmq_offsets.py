"""lmqConsumerOffset.json: where RocketMQ keeps the offsets of all groups, of plain topics too, while enableLmq=true.

It reads and writes no consumerOffset.json then, so a folder that has both has an old one. Which of them is known where
one has nothing that is behind the other, and where ours says which lmqConsumerOffset.json it has seen: one that is not
that any more was written by RocketMQ since. In doubt a start is refused: the wrong file skips messages, or repeats
them. What is taken over goes into consumerOffset.json; the other file is left as it is.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from broker.metadata.offset_file import OffsetFile, check_keys
from broker.metadata.offset_keys import parts_of
from broker.metadata.table_file import MetadataError, Stamp, read_config
from remoting.bodies.registry import ConsumerOffsetTable
from runtime.crc import crc32

OFFSETS_FILE = "consumerOffset.json"
LMQ_FILE = "lmqConsumerOffset.json"
LMQ_PREFIX = "%LMQ%"
# Groups in one sentence.
NAMED_MAX = 3

_log = logging.getLogger(__name__)


def with_lmq(known: OffsetFile | None, stamp: Stamp | None, path: Path) -> OffsetFile | None:
    """Return what a broker is to begin with: `known`, of the file at `path`, or what lmqConsumerOffset.json holds.

    `stamp` is the known file's: a Raft group's log goes on from there. Raises MetadataError.
    """
    if stamp is not None:
        return known
    lmq_path = path.with_name(LMQ_FILE)
    found = read_config(lmq_path, _decoded)
    if found is None:
        return known
    table, content, _ = found
    seen = f"{crc32(content):08x}"
    if known is None or known.lmq_seen not in ("", seen):
        return _taken_over(table, seen, lmq_path)
    if known.lmq_seen == seen:
        return known
    ahead, behind = list(_ahead(table, known.table)), list(_ahead(known.table, table))
    if ahead and behind:
        raise MetadataError(
            f"{path} and {lmq_path} contradict each other: {_some(behind)} are further in the first, {_some(ahead)} in "
            "the second. RocketMQ keeps all offsets in the second while enableLmq=true, else in the first: move away, "
            "with its .bak, the one that it did not use last, and start again"
        )
    return _taken_over(table, seen, lmq_path) if ahead else known._replace(lmq_seen=seen)


def _decoded(content: bytes) -> ConsumerOffsetTable:
    table = ConsumerOffsetTable.decode(content)
    check_keys(table)
    return table


def _taken_over(table: ConsumerOffsetTable, seen: str, path: Path) -> OffsetFile:
    _log.warning(
        "offsets of %d groups and topics are taken over from %s, where RocketMQ keeps them with enableLmq=true; "
        "from now on they are in %s",
        len(table.offsetTable), path, OFFSETS_FILE,
    )  # fmt: skip
    return OffsetFile(table, {}, {}, {}, "", seen)


def _ahead(one: ConsumerOffsetTable, other: ConsumerOffsetTable) -> Iterator[str]:
    """Yield the keys, of plain topics, of which `one` has a queue further than `other`."""
    for key, queues in one.offsetTable.items():
        if key.startswith(LMQ_PREFIX):
            continue
        known = other.offsetTable.get(key, {})
        if any(offset > known.get(queue, -1) for queue, offset in queues.items()):
            yield key


def _some(keys: list[str]) -> str:
    named = [f"group {group} of {topic}" for topic, group in map(parts_of, sorted(keys)[:NAMED_MAX])]
    return ", ".join(named) + (f" and {len(keys) - NAMED_MAX} more" if len(keys) > NAMED_MAX else "")
