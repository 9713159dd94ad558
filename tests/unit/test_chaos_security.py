"""chaos/host/security.py: what certificates name, and as whom a process's clients connect for a time."""

import os
import ssl
import subprocess
from pathlib import Path

import pytest

from chaos.host.security import CLIENT_VARIABLES, Security, connecting_to
from client.credentials import credentials_for
from client.tls import tls_of


def test_the_certificate_names_the_addresses_that_were_asked_for(tmp_path: Path) -> None:
    made = Security(tmp_path / "made", ("10.77.0.254", "10.77.0.1", "10.77.0.1"))
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", tmp_path / "made" / "server.pem"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.splitlines()[1].strip() == "IP Address:10.77.0.254, IP Address:10.77.0.1, DNS:localhost"
    assert made.trusting().verify_mode is ssl.CERT_REQUIRED
    # Found again, and not made anew.
    assert Security(tmp_path / "made").secret_key == made.secret_key


def test_slaves_come_by_a_secret_also_in_a_folder_that_is_older_than_it(tmp_path: Path) -> None:
    made = Security(tmp_path)
    assert "haSecretFile" not in made.settings()
    path = Path(str(made.broker_settings(raft=False)["haSecretFile"]))
    path.unlink()
    assert Security(tmp_path).broker_settings(raft=True)["haSecretFile"] == str(path)
    assert path.stat().st_mode & 0o077 == 0
    assert len(path.read_text()) >= 16
    assert "haSecretFile" not in Security(tmp_path, users=False).broker_settings(raft=False)


def test_clients_of_a_process_connect_as_the_administrator_for_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CLIENT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAFTMQ_ACCESS_KEY", "somebody")
    monkeypatch.setenv("RAFTMQ_SECRET_KEY", "else")
    monkeypatch.setenv("RAFTMQ_TLS", "true")
    before = dict(os.environ)
    made = Security(tmp_path / "made")
    with connecting_to(made):
        found = credentials_for(None)
        assert found is not None
        assert (found.access_key, found.secret_key) == (made.access_key, made.secret_key)
        assert tls_of(None) is not None
    assert dict(os.environ) == before
    # A plain cluster is asked plainly, whatever the shell says.
    with connecting_to(None):
        assert (credentials_for(None), tls_of(None)) == (None, None)
    assert dict(os.environ) == before
