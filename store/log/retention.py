"""What is forgotten when, and when writes are refused: a pure decision, carried out by the store.

* Files whose last change is older than fileReservedTime hours go, oldest first, during the hours of deleteWhen; above
  diskMaxUsedSpaceRatio, or when an administrator asks for it, at any hour.
* From diskSpaceCleanForciblyRatio on the oldest files go even before they expire (cleanFileForciblyEnable).
* From diskSpaceWarningLevelRatio on writes are refused, until a pass finds the disk below it again.

At most deleteFileBatchMax files go per pass, never the last one, and never one behind one that stays.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from store.config import StoreConfig

_HOUR_MS = 3_600_000


class KeptFile(NamedTuple):
    """A CommitLog file, in the order of the log."""

    start: int
    """Position of its first byte."""
    size: int
    """Bytes."""
    modified_ms: int
    """When it was last written to, ms since the epoch."""


class RetentionDecision(NamedTuple):
    """What a pass does."""

    delete: list[int]
    """Start positions of the files to delete, oldest first."""
    refuse_writes: bool
    """Whether the disk is too full to write."""
    reason: str
    """Why files are deleted, or why not."""
    forced: bool = False
    """Whether they go before they expire."""


def decide(
    files: Sequence[KeptFile], config: StoreConfig, *, now_ms: int, disk_ratio: float, asked: bool = False
) -> RetentionDecision:
    """Decide one pass. `disk_ratio`: used part of the log's file system, 0 to 1; `asked`: an administrator wants it."""
    refuse = disk_ratio >= config.warning_ratio
    forced = config.cleanFileForciblyEnable and disk_ratio >= config.forcibly_ratio
    if forced:
        reason = f"the disk is {disk_ratio:.0%} full: the oldest files go before they expire"
    elif disk_ratio > config.diskMaxUsedSpaceRatio / 100:
        reason = f"the disk is {disk_ratio:.0%} full: expired files go at any hour"
    elif asked:
        reason = "an administrator asked: expired files go at any hour"
    elif _is_hour(config.deleteWhen, now_ms):
        reason = f"it is the hour of deleteWhen={config.deleteWhen}: expired files go"
    else:
        return RetentionDecision([], refuse, f"not the hour of deleteWhen={config.deleteWhen}, and the disk has room")
    expired_before = now_ms - config.fileReservedTime * _HOUR_MS
    delete = []
    for file in files[: min(config.deleteFileBatchMax, len(files) - 1)]:
        if not forced and file.modified_ms > expired_before:
            break
        delete.append(file.start)
    return RetentionDecision(delete, refuse, reason if delete else f"{reason}; none is there", forced)


def _is_hour(delete_when: str, now_ms: int) -> bool:
    hours = {int(hour) for hour in delete_when.split(";") if hour.strip()}
    return time.localtime(now_ms / 1000).tm_hour in hours
