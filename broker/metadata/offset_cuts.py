"""What is changed in a table of consumer offsets that was read or copied, before it counts."""

import logging
from collections.abc import Callable, Mapping

from broker.metadata.offset_batches import Place
from broker.metadata.offset_keys import parts_of

_log = logging.getLogger(__name__)

_Offsets = dict[str, dict[int, int]]


def keep_greater(
    table: _Offsets, own: Mapping[Place, int], settled: Mapping[tuple[str, str, int], int]
) -> dict[Place, int]:
    """Put into a table what is greater of a slave's own commits, unless it is settled, and return that."""
    kept = {}
    for (key, queue_id), offset in own.items():
        if offset > table.get(key, {}).get(queue_id, -1) and settled.get((*parts_of(key), queue_id)) != offset:
            kept[key, queue_id] = offset
            table.setdefault(key, {})[queue_id] = offset
    return kept


def cut_to_ends(table: _Offsets, end_of: Callable[[str, int], int]) -> int:
    """Cut every offset down to its queue's end; return how many lay beyond."""
    beyond = 0
    for key, offsets in table.items():
        topic = parts_of(key)[0]
        for queue_id, offset in offsets.items():
            end = end_of(topic, queue_id)
            if offset > end:
                _log.warning("%s queue %d: offset %d lies beyond the end and becomes %d", key, queue_id, offset, end)
                offsets[queue_id] = end
                beyond += 1
    return beyond
