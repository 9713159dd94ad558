"""What is kept of a local cluster between two starts, read from its configuration files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.host import localfolder
from chaos.host.local import LocalCluster
from chaos.host.localfolder import FolderInUse, kept_nodes, taken, users
from runtime.config import ConfigError, load_properties


def files(folder: Path) -> dict[str, dict[str, str]]:
    return {path.parent.name: load_properties(path) for path in folder.glob("*/*.conf")}


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_cluster_that_is_kept_has_the_same_files_again(tmp_path: Path, nodes: int) -> None:
    made = LocalCluster(tmp_path, nodes=nodes, keep=True)
    first = files(tmp_path)
    again = LocalCluster(tmp_path, nodes=nodes, keep=True)
    assert files(tmp_path) == first
    assert [server.address for server in again.servers] == [server.address for server in made.servers]
    assert kept_nodes(tmp_path) == nodes


def test_a_member_whose_folder_is_gone_gets_the_raft_port_that_the_others_know(tmp_path: Path) -> None:
    LocalCluster(tmp_path, nodes=3, keep=True)
    peers = files(tmp_path)["n1"]["dLegerPeers"]
    (tmp_path / "n0" / "broker.conf").unlink()
    LocalCluster(tmp_path, nodes=3, keep=True)
    assert {values["dLegerPeers"] for name, values in files(tmp_path).items() if name != "namesrv"} == {peers}
    assert kept_nodes(tmp_path) == 3


def test_what_a_person_wrote_stays_and_what_is_asked_for_counts(tmp_path: Path) -> None:
    LocalCluster(tmp_path, keep=True)
    path = tmp_path / "broker" / "broker.conf"
    path.write_text(path.read_text() + "fileReservedTime=71\n")
    LocalCluster(tmp_path, broker_port=20911, broker_settings={"shutdownForwardMs": 50}, keep=True)
    kept = files(tmp_path)["broker"]
    assert (kept["fileReservedTime"], kept["listenPort"], kept["shutdownForwardMs"]) == ("71", "20911", "50")


def test_a_folder_that_was_moved_uses_the_store_in_it(tmp_path: Path) -> None:
    LocalCluster(tmp_path / "before", keep=True)
    (tmp_path / "before").rename(tmp_path / "after")
    LocalCluster(tmp_path / "after", keep=True)
    kept = files(tmp_path / "after")
    assert kept["broker"]["storePathRootDir"] == str(tmp_path / "after" / "broker" / "store")
    assert kept["namesrv"]["kvConfigPath"] == str(tmp_path / "after" / "namesrv" / "kvConfig.json")


@pytest.mark.parametrize("line", ["listenPort=many", "httpPort=x"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, line: str) -> None:
    LocalCluster(tmp_path, keep=True)
    path = tmp_path / "broker" / "broker.conf"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ConfigError, match=f"{path}: {line}: it takes a whole number"):
        LocalCluster(tmp_path, keep=True)


def test_a_folder_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    with taken(tmp_path):
        assert users(tmp_path) == []
        with pytest.raises(FolderInUse, match="used by another `raftmq local`, process"), taken(tmp_path):
            pass
    with taken(tmp_path):
        pass


def test_who_uses_a_folder_is_found_by_its_file_however_long_command_lines_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command line of some ten thousand arguments, of each process there is, took seconds of the processor."""
    cluster = LocalCluster(tmp_path / "cluster", nodes=3)
    elsewhere = cluster.folder.parent / "elsewhere"
    long = b"\0" * 100_000
    lines = {
        "11": (cluster.folder, b"raftmq\0broker\0-c\0n1/broker.conf\0" + long),
        "12": (elsewhere, b"raftmq\0namesrv\0-c\0" + bytes(cluster.folder / "namesrv" / "namesrv.conf")),
        "13": (elsewhere, b"raftmq\0broker\0-c\0n0/broker.conf\0" + long),
        "14": (cluster.folder, b"editor\0n2/broker.conf.bak\0n2/store\0" + long),
    }
    for pid, (folder, line) in lines.items():
        process = tmp_path / "proc" / pid
        process.mkdir(parents=True)
        (process / "cwd").symlink_to(folder)
        (process / "cmdline").write_bytes(line)
    looked_at = []

    def resolved(path: Path) -> Path:
        looked_at.append(path)
        return resolve(path)

    resolve = Path.resolve
    monkeypatch.setattr(localfolder, "PROC", tmp_path / "proc")
    monkeypatch.setattr(Path, "resolve", resolved)
    monkeypatch.setattr(Path, "__truediv__", counted_join := Counted(Path.__truediv__))
    assert users(cluster.folder) == [("n1", 11), ("namesrv", 12)]
    assert len(looked_at) == 3
    assert counted_join.calls < 100


class Counted:
    """A method that counts its calls."""

    def __init__(self, method: Callable[[Path, str], Path]) -> None:
        self._method = method
        self.calls = 0

    def __get__(self, path: Path, _kind: type[Path]) -> Callable[[str], Path]:
        def call(part: str) -> Path:
            self.calls += 1
            return self._method(path, part)

        return call
