"""Server processes: awaited until ready, and clear words when they do not come up."""

import sys
from pathlib import Path

import pytest

from raftmq.processes import ProcessError, ServerProcess, broker_process, free_ports, namesrv_process
from runtime.config import load_properties

SERVER = """
import http.server, sys
class Face(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
print("serving")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Face).serve_forever()
"""


def process(tmp_path: Path, code: str) -> ServerProcess:
    """A process that runs `code` in place of the raftmq command."""
    http_port = free_ports(1)[0]
    made = ServerProcess("server", [], port=1, http_port=http_port, log=tmp_path / "log" / "server.log")
    made._arguments = [sys.executable, "-c", code, str(http_port)]
    return made


def test_ready_killed_and_started_again(tmp_path: Path) -> None:
    server = process(tmp_path, SERVER)
    server.start()
    try:
        assert server.running
        assert server.exit_code is None
        assert server.cpu_seconds() >= 0
        first = server.pid
        server.kill()
        assert not server.running
        assert server.exit_code == -9
        server.start()
        assert server.pid != first
    finally:
        server.kill()


def test_stopping_asks_first(tmp_path: Path) -> None:
    server = process(tmp_path, SERVER)
    server.start()
    assert server.stop() == -15
    assert server.stop() == -15


def test_a_process_that_ends_early_is_quoted(tmp_path: Path) -> None:
    server = process(tmp_path, "import sys; print('port 10911 is taken'); sys.exit(3)")
    with pytest.raises(ProcessError, match=r"ended with 3 before it was ready:\nport 10911 is taken"):
        server.start()


def test_a_process_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    server = process(tmp_path, "import time; print('thinking', flush=True); time.sleep(60)")
    with pytest.raises(ProcessError, match=r"not ready after 0\.5 s"):
        server.start(timeout_s=0.5)
    assert not server.running


def test_configuration_files_keep_everything_in_the_folder(tmp_path: Path) -> None:
    namesrv = namesrv_process(tmp_path / "n", settings={"orderMessageEnable": True})
    broker = broker_process(tmp_path / "b", namesrv=namesrv.address, settings={"flushDiskType": "SYNC_FLUSH"})
    written = load_properties(tmp_path / "b" / "broker.conf")
    assert written["namesrvAddr"] == namesrv.address
    assert written["storePathRootDir"] == str(tmp_path / "b" / "store")
    assert written["flushDiskType"] == "SYNC_FLUSH"
    assert f"127.0.0.1:{written['listenPort']}" == broker.address
    assert load_properties(tmp_path / "n" / "namesrv.conf")["orderMessageEnable"] == "true"


def test_free_ports_differ() -> None:
    assert len(set(free_ports(10))) == 10
