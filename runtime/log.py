"""Log lines of a process: one line an event, on standard error or in a file that rotates."""

import json
import logging
import logging.handlers
import os
import stat
import time
from io import TextIOWrapper
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


class _AuditLines(logging.Formatter):
    """Makes a JSON object of each record: when, and what its `audit` says; of one without, its text."""

    def format(self, record: logging.LogRecord) -> str:
        told = getattr(record, "audit", None) or {"note": record.getMessage()}
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return json.dumps({"at": f"{at}.{int(record.msecs):03d}Z", **told})


class _OwnersFile(logging.handlers.RotatingFileHandler):
    """A file that rotates and that only its owner reads."""

    def _open(self) -> TextIOWrapper:
        file = os.fdopen(
            os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8"
        )
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            # It was there, made by something else.
            os.fchmod(file.fileno(), 0o600)
        return file


def audit_to(path: Path) -> None:
    """Have the log "audit" written to `path` too, as JSON lines, rotating. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _OwnersFile(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8")
    handler.setFormatter(_AuditLines())
    logging.getLogger("audit").addHandler(handler)
