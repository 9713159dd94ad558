"""Who may read /metrics and /v1/… (httpAllowFrom): real processes, asked from an address that is not loopback."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.settings.config import outgoing_ip
from chaos.host.processes import ServerProcess, broker_process, namesrv_process
from tests.cluster.process_group import until
from tests.cluster.small_files import SMALL_FILES

# This machine's, but to a server on loopback an address like any other.
ELSEWHERE = outgoing_ip()
pytestmark = pytest.mark.skipif(ELSEWHERE == "127.0.0.1", reason="this machine has loopback only")
USER = '{"username":"admin","password":"12345678"}'
INNER = '{"accessKey":"brokers","secretKey":"12345678"}'
GUARDED = {"authenticationEnabled": True, "initAuthenticationUser": USER, "innerClientAuthenticationCredentials": INNER}


@contextmanager
def running(server: str, folder: Path, settings: dict[str, object]) -> Iterator[ServerProcess]:
    made = {"broker": broker_process, "namesrv": namesrv_process}[server]
    files = SMALL_FILES if server == "broker" else {}
    process = made(folder / server, settings={**files, "auditLogPath": folder / "audit.log", **settings})
    try:
        process.launch()
        process.wait_ready()
        yield process
    finally:
        process.kill()


def asked(process: ServerProcess, path: str, host: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", process.http_port, timeout=10, source_address=(host, 0))
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("server", ["broker", "namesrv"])
@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, 200),
        (GUARDED, 403),
        ({"httpAllowFrom": "10.9.9.9"}, 403),
        ({**GUARDED, "httpAllowFrom": f"10.9.9.9,{ELSEWHERE}"}, 200),
    ],
)
def test_from_elsewhere_metrics_are_for_whom_the_key_names(
    tmp_path: Path, server: str, settings: dict[str, object], status: int
) -> None:
    with running(server, tmp_path, settings) as process:
        for path in ("/metrics", "/v1/status"):
            found, said = asked(process, path, ELSEWHERE)
            assert found == status, said
            assert status == 200 or f"{ELSEWHERE} may not ask here: httpAllowFrom of this server" in said
        # Load balancers and this machine.
        assert asked(process, "/readyz", ELSEWHERE)[0] == 200
        assert asked(process, "/metrics", "127.0.0.1")[0] == 200
        if status != 200:
            # The answer may be here before the line.
            until("the audit log says so", lambda: bool(audited(tmp_path)))
        assert audited(tmp_path) == ([] if status == 200 else [(ELSEWHERE, "HTTP GET /metrics", "403")])


def audited(folder: Path) -> list[tuple[str, str, str]]:
    """What was asked by HTTP; a line that is not whole yet is none."""
    lines = (folder / "audit.log").read_text().splitlines(keepends=True)
    told = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(line["from"], line["fields"], line["code"]) for line in told if line.get("asked") == "HTTP"]
