"""A secured cluster on this machine: an authority, a certificate of it, an administrator and what brokers sign with.

All of it is made by openssl and the system's random numbers, in a folder that only its owner may read, and is found
there again. Keys of configuration are RocketMQ's own (docs/tls.md, docs/security.md).
"""

import contextlib
import json
import os
import secrets
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from chaos.host.processes import HOST, ProcessError
from client import credentials as names
from client.tls import VARIABLE

ADMIN, INNER = "admin", "brokers"
# All that clients are told by the environment of who they are, and of TLS.
CLIENT_VARIABLES = (
    names.ACCESS_KEY_VARIABLE,
    names.SECRET_KEY_VARIABLE,
    names.TOKEN_VARIABLE,
    names.FILE_VARIABLE,
    VARIABLE,
    *(f"{VARIABLE}_{part}" for part in ("CA", "CERT", "KEY")),
)
# For how long certificates hold, days: as long as somebody develops against one folder.
DAYS = "825"
_OPENSSL_S = 60.0


class Security:
    """The files of one folder; `settings` are keys for brokers and NameServers alike, `broker_settings` for brokers."""

    def __init__(self, folder: Path, hosts: Sequence[str] = (HOST,), *, users: bool = True, tls: bool = True) -> None:
        """Find what is there, and make what is not. Raises ProcessError, OSError.

        `hosts` are the addresses by which servers are reached: what is made names them. `users`, `tls`: whether
        signatures are asked for, and TLS; both are made.
        """
        self.folder = folder
        self._hosts = hosts
        self.users, self.tls = users, tls
        self.authority = folder / "ca.pem"
        self.credentials = folder / "admin.credentials"
        self._certificate, self._key = folder / "server.pem", folder / "server.key"
        self._ha_secret = folder / "ha.secret"
        if not self.is_in(folder):
            self._make()
        if not self._ha_secret.exists():
            # One that was made before there was such a file.
            _write(self._ha_secret, secrets.token_hex(32))
        said = dict(line.split("=", 1) for line in self.credentials.read_text(encoding="ascii").splitlines())
        self.access_key, self._secret_key = said["accessKey"], said["secretKey"]

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Tell whether all of it is there: the file that is written last."""
        return (folder / "inner.json").exists()

    @property
    def secret_key(self) -> str:
        """The administrator's, for clients of the same process."""
        return self._secret_key

    def settings(self) -> dict[str, object]:
        """Return keys of broker.conf and namesrv.conf."""
        return {**(self._access() if self.users else {}), **(self._encryption() if self.tls else {})}

    def broker_settings(self, *, raft: bool) -> dict[str, object]:
        """Return those of a broker, which guard what its slaves, or with `raft` the members of its group, come by."""
        certificate, key, authority = str(self._certificate), str(self._key), str(self.authority)
        links = {"raftTlsCertFile": certificate, "raftTlsKeyFile": key, "raftTlsCaFile": authority}
        return {
            **self.settings(),
            # In a group too: for what it may become.
            **({"haSecretFile": str(self._ha_secret)} if self.users else {}),
            **(links if raft and self.tls else {}),
        }

    def _access(self) -> dict[str, object]:
        user = json.dumps({"username": self.access_key, "password": self._secret_key})
        return {
            "authenticationEnabled": True,
            "authorizationEnabled": True,
            "initAuthenticationUser": user,
            "innerClientAuthenticationCredentials": (self.folder / "inner.json").read_text(encoding="ascii"),
        }

    def _encryption(self) -> dict[str, object]:
        return {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": str(self._certificate),
            "tls.server.keyPath": str(self._key),
            "useTLS": True,
            "tls.client.trustCertPath": str(self.authority),
        }

    def environment(self) -> Mapping[str, str]:
        """Return the variables by which clients and commands connect as the administrator."""
        encrypted = {VARIABLE: "true", f"{VARIABLE}_CA": str(self.authority)} if self.tls else {}
        return {**encrypted, **({names.FILE_VARIABLE: str(self.credentials)} if self.users else {})}

    def trusting(self) -> ssl.SSLContext:
        """Return what servers are asked with by whoever trusts the authority, and shows nothing."""
        return ssl.create_default_context(cafile=str(self.authority))

    def _make(self) -> None:
        if shutil.which("openssl") is None:
            raise ProcessError("openssl is needed to make certificates (on Debian: apt-get install openssl)")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")
        _openssl(
            "req", "-x509", *new, self.folder / "ca.key", "-out", self.authority, "-days", DAYS,
            "-subj", "/CN=raftmq-local", "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip
        request, extensions = self.folder / "server.csr", self.folder / "server.ext"
        _openssl("req", *new, self._key, "-out", request, "-subj", "/CN=raftmq-server")
        addresses = "".join(f"IP:{host}," for host in dict.fromkeys(self._hosts))
        extensions.write_text(f"subjectAltName={addresses}DNS:localhost\n", encoding="ascii")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
            "-days", DAYS, "-extfile", extensions, "-out", self._certificate,
        )  # fmt: skip
        for path in (self.folder / "ca.key", self._key):
            path.chmod(0o600)
        _write(self.credentials, f"accessKey={ADMIN}\nsecretKey={secrets.token_urlsafe(24)}\n")
        inner = {"accessKey": INNER, "secretKey": secrets.token_urlsafe(24)}
        _write(self.folder / "inner.json", json.dumps(inner))


@contextlib.contextmanager
def connecting_to(security: Security | None) -> Iterator[None]:
    """For a time, have all clients of this process connect as the administrator of a secured cluster; None: plainly.

    By the environment, which is how whole applications are told: what somebody else's workload makes obeys it too.
    """
    before = {name: os.environ.pop(name) for name in CLIENT_VARIABLES if name in os.environ}
    if security is not None:
        os.environ.update(security.environment())
    try:
        yield
    finally:
        for name in CLIENT_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")


def _openssl(*words: str | Path) -> None:
    try:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, text=True, timeout=_OPENSSL_S)
    except subprocess.CalledProcessError as error:
        raise ProcessError(f"openssl {words[0]} failed: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"openssl {words[0]} did not end within {_OPENSSL_S:g} s") from error
