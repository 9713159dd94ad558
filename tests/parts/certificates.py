"""Certificates for tests of TLS, made by openssl: an authority, and what it signs."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Signed(NamedTuple):
    """A certificate and its key, PEM files."""

    cert: str
    key: str


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        made = self._key_and(name, "-x509", "-days", "2", "-subj", f"/CN={name}", "-addext", "keyUsage=keyCertSign")
        self.cert, self._key = made

    def sign(self, name: str, *, names: str = "IP:127.0.0.1", days: str = "2", password: str = "") -> Signed:
        """Make a certificate for `names`; `days` "-1" makes one that has expired."""
        request = self._folder / f"{name}.csr"
        secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        key = self._folder / f"{name}.key"
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *secret, "-keyout", key, "-out",
                 request, "-subj", f"/CN={name}")  # fmt: skip
        key.chmod(0o600)
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n", encoding="ascii")
        cert = self._folder / f"{name}.pem"
        by = ["-CA", self.cert, "-CAkey", self._key, "-CAcreateserial", "-days", days]
        _openssl("x509", "-req", "-in", request, *by, "-extfile", extensions, "-out", cert)
        return Signed(str(cert), str(key))

    def _key_and(self, name: str, *options: str) -> Signed:
        key, cert = self._folder / f"{name}.key", self._folder / f"{name}.pem"
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out",
                 cert, *options)  # fmt: skip
        key.chmod(0o600)
        return Signed(str(cert), str(key))


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
