"""Files that hold what only the store's owner may read: messages, and in a group's log users' secret keys."""

import logging
import stat
from pathlib import Path

from store.config import StoreConfig

_log = logging.getLogger(__name__)

# What a store makes its log files with.
FILE_MODE = 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# In the store's folder, and in the log's where that is on another disk: what was cut off and kept.
CUT_FOLDER = "cut"


def close_log_to_others(config: StoreConfig) -> int:
    """Take from everybody but their owner the log files that are there, those kept aside too; return how many.

    They were made by RocketMQ, or before this store made them so. One that is another user's stays, and is told.
    """
    closed = 0
    for path in _log_files(config):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) or not mode & _OTHERS:
            continue
        try:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        except PermissionError as error:
            _log.warning("%s may be read by others, which cannot be changed: %s", path, error.strerror)
        else:
            closed += 1
    if closed:
        _log.warning(
            "%d files of messages could be read or changed by others: they are their owner's alone now", closed
        )
    return closed


def _log_files(config: StoreConfig) -> list[Path]:
    kept = {config.root / CUT_FOLDER, config.log_folder / CUT_FOLDER}
    return [*config.log_folder.glob("*"), *(path for folder in kept for path in folder.rglob("*"))]
