"""`raftmq local --secure` and `raftmq demo --secure`: users and TLS on every port, made on the spot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.test_raftmq_local import RAFTMQ, local

pytestmark = pytest.mark.timeout(150)


def raftmq(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*RAFTMQ, *arguments], capture_output=True, text=True, timeout=180, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_a_secured_cluster_twice_on_its_folder(tmp_path: Path) -> None:
    ports = ("--namesrv-port", "0", "--broker-port", "0")
    for number, options in enumerate((("--nodes", "3", "--secure", *ports), ())):
        with local(tmp_path, *options) as running:
            known = {"NAMESRV_ADDR": running.told["namesrv"], **running.told["environment"]}
            sent = raftmq(known, "send", "kept", f"m{number}", "--json")
            assert sent.returncode == 0, sent.stderr
            shown = raftmq(known, "consume", "kept", "--count", str(number + 1), "--timeout", "20", "--json")
            found = sorted(json.loads(line)["body"] for line in shown.stdout.splitlines())
            assert found == [f"m{each}" for each in range(number + 1)]
            # Without TLS, and without a signature, nothing is to be had.
            plain = raftmq({"NAMESRV_ADDR": known["NAMESRV_ADDR"]}, "topic", "list")
            assert (plain.returncode, "takes TLS only" in plain.stderr) == (1, True)
            nobody = {**known, "RAFTMQ_CREDENTIALS": ""}
            unsigned = raftmq(nobody, "topic", "list")
            assert unsigned.returncode == 1
            assert "username cannot be null" in unsigned.stderr
    security = tmp_path / "security"
    assert security.stat().st_mode & 0o077 == 0
    assert [path for path in tmp_path.glob("**/*.conf") if path.stat().st_mode & 0o077] == []


def test_the_demonstration() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "raftmq.cli.main", "demo", "--secure", "-m", "400", "--json"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
