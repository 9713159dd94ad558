"""V8: a guard against verdicts about stores that nobody looked at. The same for both engines."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.history.catalogue import finding, skipped
from pipeline.history.promises import Promises
from pipeline.history.results import Finding, Verdict

NOT_READ, EMPTY = "its store folder was not read", "its log holds nothing"


def check_v8(promises: Promises, read: Mapping[str, bool]) -> Finding:
    """Demand of every member that was promised a store that was read, and in which something stands.

    `read` tells of each member whose store folder was read whether its log holds anything.
    """
    names = {member for some in promises.group_members.values() for member in some} or set(read)
    looked_at = sum(1 for member in names if read.get(member))
    text = f"{looked_at} of {max(len(names), looked_at)} stores were judged"
    return finding("V8", _lacking(promises, read), bad=Verdict.UNKNOWN, text=text)


def no_stores_asked() -> Finding:
    """Return V8 of a history that is to be judged by itself."""
    return skipped("V8", "no store was to be looked at")


def _lacking(promises: Promises, read: Mapping[str, bool]) -> Iterator[dict[str, Any]]:
    for broker, members in (promises.group_members or {"": tuple(sorted(read))}).items():
        for member in members:
            if not read.get(member):
                yield {"broker": broker, "member": member, "why": EMPTY if member in read else NOT_READ}
    if not promises.group_members and not read:
        yield {"broker": "", "member": "", "why": "no store folder was read"}
