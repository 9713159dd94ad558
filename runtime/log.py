"""Log lines of a process: one line an event, on standard error or in a file that rotates."""

import logging
import logging.handlers
from pathlib import Path

FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_KEPT = 10


def set_up_logging(level: str = "INFO", path: Path | None = None) -> None:
    """Send the root logger to `path` (rotating) or standard error; raises ValueError for an unknown level."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s - %(message)s"))
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers[:] = [handler]
