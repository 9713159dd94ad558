"""Servers of the tests' nursery are processes as others are: what a test may ask of one, and what is begun plainly."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.host.begun import begin
from chaos.host.processes import ServerProcess, broker_process
from tests.parts.nursery import Nursling


def made(folder: Path) -> ServerProcess:
    return broker_process(folder, namesrv="")


def held(server: ServerProcess, name: str) -> bytes:
    return Path(f"/proc/{server.pid}/{name}").read_bytes()


def opened(server: ServerProcess) -> list[Path]:
    """Its open files; what it closes meanwhile is none."""
    found = []
    for path in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(path.readlink())
    return found


def test_a_server_has_a_life_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A worker that had a Spark session has such variables for good.
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    one.start()
    other.start()
    try:
        assert isinstance(one._process, Nursling)
        assert os.getsid(one.pid) == one.pid != other.pid
        assert os.fsdecode(held(one, "stat").rpartition(b")")[2].split()[1]) == str(os.getpid()), "a child of ours"
        plainly = [os.fsencode(word) for word in one._arguments]
        assert held(one, "cmdline").rstrip(b"\0").split(b"\0") == plainly
        assert Path(f"/proc/{one.pid}/cwd").readlink() == tmp_path
        links = opened(one)
        assert not [path for path in links if "nursery" in str(path)]
        assert [path for path in links if path == one.log] == [one.log, one.log], "it says all into its own log"
        one.signal(signal.SIGSTOP)
        assert other.ready()
        one.signal(signal.SIGCONT)
        one.kill()
        assert one.exit_code == -signal.SIGKILL
        assert other.stop() == 0
        one.start()
        assert one.stop() == 0, "a second time"
    finally:
        one.kill()
        other.kill()
    assert "broker-a serves at" in one.last_words()


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = made(tmp_path)
    server.log.parent.mkdir(parents=True, exist_ok=True)
    config = tmp_path / "broker.conf"
    config.write_text(config.read_text(encoding="utf-8") + "flushDiskType=never\n", encoding="utf-8")
    server.launch()
    assert server._process is not None
    assert server._process.wait(20) == 1
    assert "flushDiskType" in server.last_words()
    assert [server.exit_code, server.running] == [1, False]


def test_waiting_ends_with_its_time(tmp_path: Path) -> None:
    server = made(tmp_path)
    server.start()
    try:
        assert server._process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            server._process.wait(0.05)
    finally:
        server.kill()


@pytest.mark.parametrize("how", ["environment", "setenv", "within"])
def test_what_is_not_plain_is_begun_as_ever(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = made(tmp_path)
    if how == "environment":
        server.environment["LOUD"] = "1"
    elif how == "setenv":
        monkeypatch.setenv("LOUD", "1")
    else:
        server.within = ("env", "LOUD=1")
    server.start()
    try:
        assert isinstance(server._process, subprocess.Popen)
        assert b"LOUD=1" in held(server, "environ")
    finally:
        server.kill()


def test_a_command_s_servers_are_begun_plainly() -> None:
    """What users run knows nothing of the nursery: only tests put it in (tests/conftest.py)."""
    assert ServerProcess.begin is not begin
    said = "from chaos.host.processes import ServerProcess, begin; print(ServerProcess.begin is begin)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "True\n"
