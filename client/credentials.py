"""Who a client is: credentials by argument, by the environment, or in a file that the environment names.

    RAFTMQ_ACCESS_KEY, RAFTMQ_SECRET_KEY, RAFTMQ_SECURITY_TOKEN (where one is asked for)
    RAFTMQ_CREDENTIALS      a file of lines accessKey=…, secretKey=…, securityToken=…, which only its owner may read

An argument counts more than variables, those more than the file. Without any of them nothing is signed. Secrets stand
in no error.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from client.errors import ClientError
from remoting.signing import Credentials
from runtime.config import parse_properties

__all__ = ["Credentials", "credentials_for", "read_credentials"]

ACCESS_KEY_VARIABLE = "RAFTMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE = "RAFTMQ_SECRET_KEY"
TOKEN_VARIABLE = "RAFTMQ_SECURITY_TOKEN"
FILE_VARIABLE = "RAFTMQ_CREDENTIALS"
# Bytes of a file with credentials; more is another file.
FILE_BYTES_MAX = 16 * 1024


def credentials_for(given: Credentials | None, environment: Mapping[str, str] | None = None) -> Credentials | None:
    """Return what a client signs with: `given`, or what the environment says; None when nobody says anything.

    Raises ClientError for half of a pair, and for a file that cannot be used.
    """
    if given is not None:
        return given
    said = os.environ if environment is None else environment
    access, secret = said.get(ACCESS_KEY_VARIABLE, ""), said.get(SECRET_KEY_VARIABLE, "")
    if access and secret:
        return _made(access, secret, said.get(TOKEN_VARIABLE, ""), "the environment")
    if access or secret:
        missing = SECRET_KEY_VARIABLE if access else ACCESS_KEY_VARIABLE
        raise ClientError(f"{missing} is not set: {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} go together")
    path = said.get(FILE_VARIABLE, "")
    return read_credentials(Path(path)) if path else None


def read_credentials(path: Path) -> Credentials:
    """Return the credentials of a file; raises ClientError when it cannot be used, or others may read it."""
    values = parse_properties(read_secret(path))
    if not values.get("accessKey") or not values.get("secretKey"):
        raise ClientError(f"{path}: it takes a line accessKey=… and a line secretKey=…")
    return _made(values["accessKey"], values["secretKey"], values.get("securityToken", ""), str(path))


def read_secret(path: Path) -> str:
    """Return the text of a file that only its owner may read; raises ClientError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror or error}") from None
    # Of what is no file, such as a terminal or a pipe, the mode says something else.
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ClientError(f"{path}: other users of this machine may read or change it: chmod 600 {path}")
    if len(content) > FILE_BYTES_MAX:
        raise ClientError(f"{path}: it has more than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ClientError(f"{path}: it is no text") from None


def _made(access: str, secret: str, token: str, where: str) -> Credentials:
    try:
        return Credentials(access, secret, token)
    except ValueError as error:
        raise ClientError(f"{where}: {error}") from None
