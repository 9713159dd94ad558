"""The commands that run servers, and the demonstration, as real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RAFTMQ = [sys.executable, "-m", "raftmq.cli.main"]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}


def raftmq(*arguments: str, timeout: float = 180) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*RAFTMQ, *arguments], capture_output=True, text=True, timeout=timeout, check=False, env=ENVIRONMENT
    )


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    """The error as users see it: one line on standard error, nothing else."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("raftmq: ")
    return lines[0]


def test_effective_configuration_of_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b-7\nflushDiskType=SYNC_FLUSH\n")
    done = raftmq("broker", "-c", str(file), "-n", "10.0.0.1:9876", "--set", "listenPort=20911", "-p")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"brokerName=b-7", "flushDiskType=SYNC_FLUSH", "listenPort=20911", "namesrvAddr=10.0.0.1:9876"} <= set(lines)
    assert lines == sorted(lines)


def test_effective_configuration_of_a_namesrv() -> None:
    done = raftmq("namesrv", "-p", "19876", "--print-config")
    assert done.returncode == 0, done.stderr
    assert "listenPort=19876" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("broker", "--set", "listenPort=many"), "listenPort=many: it takes a whole number"),
        (("broker", "--set", "enableDLegerCommitLog=true"), "dLeger"),
        (("broker", "-c", "missing.conf"), "cannot read configuration file missing.conf"),
        (("namesrv", "--set", "listenPort=99999"), "listenPort=99999: it takes a port"),
    ],
)
def test_configuration_errors_are_one_line(arguments: tuple[str, ...], words: str) -> None:
    assert words in one_line(raftmq(*arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("local", "--nodes", "2"), "it takes 1, 3 or 5"),
        (("broker", "--set", "listenPort"), "it takes key=value"),
        (("frobnicate",), "No such command"),
    ],
)
def test_wrong_command_lines_end_with_2(arguments: tuple[str, ...], words: str) -> None:
    done = raftmq(*arguments)
    assert done.returncode == 2
    assert words in done.stderr


SECRET = '{"username":"admin","password":"hunter22"}'


@pytest.mark.parametrize("server", ["broker", "namesrv"])
def test_a_secret_is_no_argument_and_in_no_file_that_others_may_read(server: str, tmp_path: Path) -> None:
    said = one_line(raftmq(server, "--set", f"initAuthenticationUser={SECRET}", "--print-config"))
    assert "--set initAuthenticationUser=…: any user of this machine may read a command's arguments" in said
    file, key = tmp_path / "server.conf", tmp_path / "server.key"
    file.write_text(f"initAuthenticationUser={SECRET}\ntls.server.certPath=none\ntls.server.keyPath={key}\n")
    key.write_text("none")
    looks = raftmq(server, "-c", str(file), "--print-config")
    assert looks.returncode == 0, "who only looks is told"
    for path in (file, key):
        done = raftmq(server, "-c", str(file))
        assert done.returncode == 1
        assert done.stderr.endswith(f"other users of this machine may read or change it: chmod 600 {path}\n")
        assert "hunter22" not in said + looks.stdout + done.stderr
        path.chmod(0o600)


def test_unknown_configuration_keys_are_named(tmp_path: Path) -> None:
    """The broker warns and goes on; here it ends at once because its folder is no folder."""
    (tmp_path / "file").write_text("")
    done = raftmq("broker", "--set", "noSuchKey=1", "--set", f"storePathRootDir={tmp_path / 'file'}")
    assert done.returncode == 1
    assert "noSuchKey" in done.stderr


def test_local_announces_itself_serves_and_ends_in_good_order(tmp_path: Path) -> None:
    arguments = ["local", "--dir", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0", "--json"]
    local = subprocess.Popen([*RAFTMQ, *arguments], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert local.stdout is not None
        told: dict[str, Any] = json.loads(local.stdout.readline())
        sent = raftmq("send", "local_topic", "hello", "-n", told["namesrv"], "--json")
        assert json.loads(sent.stdout)["status"] == "SEND_OK"
        local.send_signal(signal.SIGINT)
        assert local.wait(30) == 0
        local.stdout.close()
    finally:
        local.kill()
        local.wait()
    assert not (tmp_path / "broker" / "store" / "abort").exists()
    inspected = json.loads(raftmq("inspect", str(tmp_path / "broker" / "store"), "--json").stdout)
    assert "local_topic" in {queue["topic"] for queue in inspected["queues"]}


@pytest.mark.timeout(100)
def test_demo_loses_nothing(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line number {number}\n" for number in range(3000)))
    done = raftmq("demo", "--input", str(lines), "--json", timeout=270)
    verdict = json.loads(done.stdout)
    assert done.returncode == 0, verdict
    assert verdict["ok"] is True
    assert (verdict["sent"], verdict["acknowledged"], verdict["consumed"], verdict["lost"]) == (3000, 3000, 3000, 0)
    assert verdict["leader_kills"] == 1
    assert verdict["leaderless_s"] > 0
    assert verdict["records"] == "lines of lines.txt"


@pytest.mark.timeout(100)
def test_demo_speaks_to_people() -> None:
    done = raftmq("demo", "--messages", "2000", timeout=270)
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    for expected in (
        "records flights",
        "messages sent 2,000",
        "acknowledged 2,000",
        "consumed 2,000",
        "lost 0",
        "killed the leader",
        "was elected in term",
        "time without a leader",
    ):
        assert expected in words
    assert done.stdout.splitlines()[-1].startswith("OK: ")


def test_a_missing_input_file_is_one_line() -> None:
    assert "cannot read nowhere.txt" in one_line(raftmq("demo", "--input", "nowhere.txt"))


def test_bench_measures_a_broker_of_its_own() -> None:
    done = raftmq("bench", "send", "--spawn", "--in-flight", "16", "--seconds", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # More than are in flight at once.
    assert result["messages"] > 16
    assert result["errors"] == {}
    assert result["server_cpu_us_per_message"] > 0
    done = raftmq("bench", "pull", "--spawn", "--seconds", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["messages"] == result["requests"] * 32
    assert result["errors"] == {}
