"""Secrets of a configuration, looked at when a server is started: none is an argument, none stands where others read.

Files that only hold a secret (raftSecretFile, haSecretFile) are looked at when they are read.
"""

import stat
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from auth.settings import SECRET_KEYS
from runtime.config import ConfigError, key_of
from runtime.tls import TlsKeys

# Keys whose values are secrets.
SECRETS = SECRET_KEYS | frozenset(key_of(field) for field in fields(TlsKeys) if "secret" in field.metadata)
# Keys that name the private key of a certificate.
KEY_FILES = ("tls.server.keyPath", "tls.client.keyPath", "raftTlsKeyFile")
# What nobody but a file's owner may do with it. Its group may read it: that is how some systems hand secrets out.
OTHERS_MAY = stat.S_IRWXO | stat.S_IWGRP


def check_arguments(values: Mapping[str, str]) -> None:
    """Raise ConfigError when an argument of a command is a secret."""
    for key in sorted(SECRETS & values.keys()):
        if values[key]:
            raise ConfigError(
                f"--set {key}=…: any user of this machine may read a command's arguments; put the line into the "
                "configuration file (-c), with chmod 600"
            )


def check_config_file(path: Path, values: Mapping[str, str]) -> None:
    """Raise ConfigError when a configuration file with these values holds secrets that others may read or change."""
    held = sorted(key for key in SECRETS & values.keys() if values[key])
    if held and _others_may(path):
        raise ConfigError(
            f"{path} holds {', '.join(held)}, and other users of this machine may read or change it: chmod 600 {path}"
        )


def check_key_files(values: Mapping[str, str]) -> None:
    """Raise ConfigError when others may read or change a certificate's key."""
    for key in KEY_FILES:
        path = values.get(key, "")
        if path and _others_may(Path(path)):
            raise ConfigError(f"{key}={path}: other users of this machine may read or change it: chmod 600 {path}")


def _others_may(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS_MAY)
    except OSError:
        # Whoever opens it says what is wrong.
        return False
