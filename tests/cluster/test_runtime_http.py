"""/healthz of real processes: beside a Remoting port at its limit of connections, and beside idle HTTP connections."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from chaos.host.processes import free_ports

# With as many open files as this a server takes 150 connections (runtime/descriptors.py).
FILES = 300
CONNECTIONS = 150


@contextmanager
def process(server: str, folder: Path) -> Iterator[tuple[int, int]]:
    """A server that may open few files; yields its port and its HTTP port."""
    port, http = free_ports(2)
    settings = {"bindAddress": "127.0.0.1", "listenPort": port, "httpPort": http}
    if server == "broker":
        settings |= {"vipPortEnable": "false", "haListenPort": -1, "storePathRootDir": folder / "store"}
    else:
        settings |= {"kvConfigPath": folder / "kv.json", "configStorePath": folder / "namesrv.properties"}
    command = [sys.executable, "-m", "raftmq.cli.main", server, *(f"--set={k}={v}" for k, v in settings.items())]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            ["sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", *command], stdout=log, stderr=subprocess.STDOUT
        ) as running,
    ):
        try:
            deadline = time.monotonic() + 40
            while not healthy(http):
                assert running.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.05)
            yield port, http
        finally:
            running.terminate()


def healthy(port: int) -> bool:
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        asking.request("GET", "/healthz")
        return bool(json.load(asking.getresponse()) == {"status": "UP"})
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


@pytest.mark.parametrize("server", ["namesrv", "broker"])
def test_healthz_beside_as_many_connections_as_there_may_be(server: str, tmp_path: Path) -> None:
    with ExitStack() as stack, process(server, tmp_path) as (port, http):
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        over = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        assert over.recv(1) == b""
        assert healthy(http)
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", http)))
        assert healthy(http)
