"""A secured cluster on this machine: an authority, a certificate of it, an administrator and what brokers sign with.

All of it is made by openssl and the system's random numbers, in a folder that only its owner may read, and is found
there again. Keys of configuration are RocketMQ's own (docs/tls.md, docs/security.md).
"""

import json
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from chaos.host.processes import HOST, ProcessError

ADMIN, INNER = "admin", "brokers"
# For how long certificates hold, days: as long as somebody develops against one folder.
DAYS = "825"
_OPENSSL_S = 60.0


class Security:
    """The files of one folder; `settings` are keys for brokers and NameServers alike."""

    def __init__(self, folder: Path) -> None:
        """Find what is there, and make what is not. Raises ProcessError, OSError."""
        self.folder = folder
        self.authority = folder / "ca.pem"
        self.credentials = folder / "admin.credentials"
        self._certificate, self._key = folder / "server.pem", folder / "server.key"
        if not self.is_in(folder):
            self._make()
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

    def settings(self, *, raft: bool = False) -> dict[str, object]:
        """Return keys of broker.conf and namesrv.conf; with `raft` those for links between members, too."""
        user = json.dumps({"username": self.access_key, "password": self._secret_key})
        certificate, key, authority = str(self._certificate), str(self._key), str(self.authority)
        links = {"raftTlsCertFile": certificate, "raftTlsKeyFile": key, "raftTlsCaFile": authority} if raft else {}
        return {
            "authenticationEnabled": True,
            "authorizationEnabled": True,
            "initAuthenticationUser": user,
            "innerClientAuthenticationCredentials": (self.folder / "inner.json").read_text(encoding="ascii"),
            "tls.server.mode": "enforcing",
            "tls.server.certPath": certificate,
            "tls.server.keyPath": key,
            "useTLS": True,
            "tls.client.trustCertPath": authority,
            **links,
        }

    def environment(self) -> Mapping[str, str]:
        """Return the variables by which clients and commands connect as the administrator."""
        return {
            "RAFTMQ_TLS": "true",
            "RAFTMQ_TLS_CA": str(self.authority),
            "RAFTMQ_CREDENTIALS": str(self.credentials),
        }

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
        extensions.write_text(f"subjectAltName=IP:{HOST},DNS:localhost\n", encoding="ascii")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
            "-days", DAYS, "-extfile", extensions, "-out", self._certificate,
        )  # fmt: skip
        for path in (self.folder / "ca.key", self._key):
            path.chmod(0o600)
        _write(self.credentials, f"accessKey={ADMIN}\nsecretKey={secrets.token_urlsafe(24)}\n")
        inner = {"accessKey": INNER, "secretKey": secrets.token_urlsafe(24)}
        _write(self.folder / "inner.json", json.dumps(inner))


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
