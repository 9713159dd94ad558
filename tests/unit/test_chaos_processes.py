"""Server processes: awaited until ready, and clear words when they do not come up."""

import sys
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from chaos.host.processes import (
    ProcessError,
    ServerProcess,
    broker_process,
    classic_processes,
    free_ports,
    namesrv_process,
)
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


def test_brokers_of_one_machine_do_not_meet_at_the_slaves_port(tmp_path: Path) -> None:
    broker_process(tmp_path / "b")
    assert load_properties(tmp_path / "b" / "broker.conf")["haListenPort"] == "-1"
    broker_process(tmp_path / "c", settings={"haListenPort": 10912})
    assert load_properties(tmp_path / "c" / "broker.conf")["haListenPort"] == "10912"


def test_a_master_and_its_slaves_have_ids_and_ports_of_their_own(tmp_path: Path) -> None:
    made = classic_processes(
        tmp_path, 2, role="SYNC_MASTER", flush="SYNC_FLUSH", namesrv="h:1", port=20911, settings={"inSyncReplicas": 3}
    )
    files = [load_properties(tmp_path / name / "broker.conf") for name in ("master", "slave1", "slave2")]
    assert [process.address.rpartition(":")[2] for process in made] == ["20911", "20921", "20931"]
    assert [file["brokerRole"] for file in files] == ["SYNC_MASTER", "SLAVE", "SLAVE"]
    assert [file["brokerId"] for file in files] == ["0", "1", "2"]
    assert len({file["haListenPort"] for file in files} - {"-1", "0"}) == 3
    assert {(file["flushDiskType"], file["inSyncReplicas"], file["namesrvAddr"]) for file in files} == {
        ("SYNC_FLUSH", "3", "h:1")
    }


def test_a_local_cluster_is_made_of_what_its_mode_needs(tmp_path: Path) -> None:
    def roles(cluster: LocalCluster) -> list[str | None]:
        found = []
        for broker in cluster.brokers:
            file = load_properties(broker.log.with_name("broker.conf"))
            found.append(file.get("dLegerSelfId") or file.get("brokerRole"))
        return found

    assert roles(LocalCluster(tmp_path / "1")) == [None]
    assert roles(LocalCluster(tmp_path / "2", nodes=3)) == ["n0", "n1", "n2"]
    assert roles(LocalCluster(tmp_path / "3", nodes=2, mode="async")) == ["ASYNC_MASTER", "SLAVE"]
    assert roles(LocalCluster(tmp_path / "4", nodes=3, mode="sync")) == ["SYNC_MASTER", "SLAVE", "SLAVE"]


def test_free_ports_differ() -> None:
    assert len(set(free_ports(10))) == 10
