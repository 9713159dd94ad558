"""Files with a shared secret: one, or two while the secret is being changed ("old;new"; docs/raft.md)."""

import os
import stat
from pathlib import Path

from runtime.config import ConfigError

# Bytes of a secret, blanks around them not counted: fewer can be guessed, more are a wrong file.
SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096
# Files of one key: while a secret is being changed there are two.
SECRETS_MAX = 2
# What other users than the file's owner and group may not do with it. A group may: that is how some are handed out.
OTHERS_MAY = stat.S_IROTH | stat.S_IWOTH


def secret_paths(text: str) -> list[str]:
    """Return the files that a key names, several with ";" between them."""
    return [path.strip() for path in text.split(";") if path.strip()]


def read_secret_files(key: str, text: str) -> tuple[bytes, ...]:
    """Return what the files hold that a key names, () when it names none; raises ConfigError."""
    paths = secret_paths(text)
    if len(paths) > SECRETS_MAX:
        raise ConfigError(f"{key} names {len(paths)} files, it takes the old one and the new one at most")
    return tuple(_read_secret(key, path) for path in paths)


def _read_secret(key: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise ConfigError(f"{key}={path}: {error.strerror or error}") from error
    if mode & OTHERS_MAY:
        raise ConfigError(f"{key}={path}: any user of this machine may read or change it: chmod o= {path}")
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ConfigError(
            f"{key}={path}: it holds {len(secret)} bytes, it takes {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
        )
    return secret
