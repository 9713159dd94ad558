"""What a batch of records that came into the queues adds up to: looked at once, for all that count."""

from collections.abc import Sequence

from remoting.compiled.door import COMPILED, hotpath
from store.types import Dispatched


def sums_of(batch: Sequence[Dispatched]) -> tuple[dict[str, list[int]], int]:
    """Return ({topic: [records, bytes]}, all bits that are set in any record's sysFlag)."""
    if len(batch) == 1:
        # What comes of clients that wait for each answer: then every call counts.
        only = batch[0]
        return {only[0]: [1, only[4]]}, only[9]
    if COMPILED and type(batch) is list:
        return hotpath.sums(batch)
    sums: dict[str, list[int]] = {}
    sys_flags = 0
    for entry in batch:
        found = sums.get(entry[0])
        if found is None:
            sums[entry[0]] = [1, entry[4]]
        else:
            found[0] += 1
            found[1] += entry[4]
        sys_flags |= entry[9]
    return sums, sys_flags
