"""`raftmq local` in a folder that is used again: typed twice, beside itself, with members killed by hand."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.local import LocalCluster
from chaos.host.localfolder import users
from chaos.host.processes import ServerProcess, free_ports
from tests.cluster.process_group import until

RAFTMQ = [sys.executable, "-m", "raftmq.cli.main"]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
ENDS_WITHIN_S = 180

pytestmark = pytest.mark.timeout(120)


class Local:
    """One `raftmq local` that serves."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*RAFTMQ, "local", "--dir", str(folder), "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=ENDS_WITHIN_S)[1]
        self.told: dict[str, Any] = json.loads(line)

    def says(self) -> str:
        """The next line on standard error."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self) -> str:
        """Ctrl-C; returns what was still said."""
        self.process.send_signal(signal.SIGINT)
        rest = self.process.communicate(timeout=ENDS_WITHIN_S)[1]
        assert self.process.returncode == 0, rest
        return rest


@contextlib.contextmanager
def local(folder: Path, *arguments: str) -> Iterator[Local]:
    one = Local(folder, *arguments)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.end()


def raftmq(*arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [*RAFTMQ, *arguments], capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False, env=ENVIRONMENT
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def send(namesrv: str, *bodies: str) -> None:
    for body in bodies:
        assert json.loads(raftmq("send", "kept", body, "-n", namesrv, "--json").stdout)["status"] == "SEND_OK"


def bodies(namesrv: str, count: int) -> set[str]:
    shown = raftmq("consume", "kept", "-n", namesrv, "--count", str(count), "--timeout", "20", "--json").stdout
    return {json.loads(line)["body"] for line in shown.splitlines()}


def pid_of(folder: Path) -> int:
    """The process that uses a member's store, as its `abort` file says."""
    return int((folder / "store" / "abort").read_text())


def leader_of(folder: Path, namesrv: str) -> Path:
    found: list[str] = []

    def one_leads() -> bool:
        """On a busy machine a lead may have ended, and nobody has the next one yet."""
        states = json.loads(raftmq("cluster", "raft-status", "-n", namesrv, "--json").stdout)
        found[:] = [state["self"] for state in states.values() if state["role"] == "LEADER"]
        return bool(found)

    until("somebody leads", one_leads)
    return folder / found[0]


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in [*folder.glob("*/*.conf"), folder / "local.lock"]
    }


def test_typed_twice_with_a_leader_killed_in_between_nothing_is_lost(tmp_path: Path) -> None:
    with local(tmp_path, "--nodes", "3", "--namesrv-port", "0", "--broker-port", "0") as first:
        send(first.told["namesrv"], "one")
        killed = leader_of(tmp_path, first.told["namesrv"])
        os.kill(pid_of(killed), signal.SIGKILL)
        said = first.says()
        assert f"broker {killed.name} was ended by SIGKILL; the others go on" in said
        assert said.rstrip().endswith(f"raftmq broker -c {killed / 'broker.conf'}")
        send(first.told["namesrv"], "two")
    # The user's own line in a file stays as well.
    file = tmp_path / "n1" / "broker.conf"
    file.write_text(file.read_text() + "fileReservedTime=71\n")
    with local(tmp_path) as second:
        assert second.told == first.told
        send(second.told["namesrv"], "three")
        assert bodies(second.told["namesrv"], 3) == {"one", "two", "three"}
    assert "fileReservedTime=71\n" in file.read_text()


def test_a_member_started_by_hand_is_back_and_is_named_at_the_end(tmp_path: Path) -> None:
    with local(tmp_path, "--namesrv-port", "0", "--broker-port", "0") as one:
        os.kill(pid_of(tmp_path / "broker"), signal.SIGKILL)
        command = one.says().rstrip().partition("To start it again: raftmq ")[2].split()
        by_hand = subprocess.Popen([*RAFTMQ, *command], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        try:
            assert by_hand.stderr is not None
            assert any("broker broker-a serves at" in line for line in by_hand.stderr)
            draining = threading.Thread(target=by_hand.stderr.read)
            draining.start()
            send(one.told["namesrv"], "again")
            rest = one.end()
            assert f"broker (process {by_hand.pid}) was started by hand and goes on" in rest
            said = raftmq("local", "--dir", str(tmp_path), code=1).stderr
            assert f"{tmp_path} is used by broker (process {by_hand.pid})" in said
        finally:
            by_hand.terminate()
            assert by_hand.wait(ENDS_WITHIN_S) == 0
            draining.join()
            if by_hand.stderr is not None:
                by_hand.stderr.close()


def test_a_folder_in_use_is_refused_and_not_touched(tmp_path: Path) -> None:
    with local(tmp_path, "--namesrv-port", "0", "--broker-port", "0") as first:
        before = files_of(tmp_path)
        refused = raftmq("local", "--dir", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0", code=1)
        assert f"{tmp_path} is used by another `raftmq local`, process {first.process.pid}: " in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert files_of(tmp_path) == before
        send(first.told["namesrv"], "still there")


def test_a_local_that_is_killed_takes_its_servers_along_and_starts_again(tmp_path: Path) -> None:
    one = Local(tmp_path, "--nodes", "3", "--namesrv-port", "0", "--broker-port", "0")
    send(one.told["namesrv"], "one")
    one.process.kill()
    one.process.communicate(timeout=ENDS_WITHIN_S)
    # At once: whoever comes next waits for the moment that the servers still need.
    with local(tmp_path) as second:
        assert second.told == one.told
        send(second.told["namesrv"], "two")
        assert bodies(second.told["namesrv"], 2) == {"one", "two"}
    assert users(tmp_path) == []


def test_servers_that_were_started_by_hand_are_named(tmp_path: Path) -> None:
    with local(tmp_path, "--namesrv-port", "0", "--broker-port", "0"):
        pass
    before = files_of(tmp_path)
    names = {"broker": "broker.conf", "namesrv": "namesrv.conf"}
    servers = [
        subprocess.Popen([*RAFTMQ, name, "-c", str(tmp_path / name / file)], stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        for name, file in names.items()
    ]
    try:
        said = raftmq("local", "--dir", str(tmp_path), code=1).stderr
        pids = [server.pid for server in servers]
        assert f"is used by broker (process {pids[0]}), namesrv (process {pids[1]}): end that first" in said
        assert f"kill {pids[0]} {pids[1]}" in said
        assert files_of(tmp_path) == before
    finally:
        for server in servers:
            server.terminate()
            # It may have been about to start.
            assert server.wait(ENDS_WITHIN_S) in {0, -signal.SIGTERM}


def test_a_closed_terminal_ends_the_servers_too(tmp_path: Path) -> None:
    one = Local(tmp_path, "--namesrv-port", "0", "--broker-port", "0")
    one.process.send_signal(signal.SIGHUP)
    one.process.communicate(timeout=ENDS_WITHIN_S)
    assert one.process.returncode == 0
    assert not (tmp_path / "broker" / "store" / "abort").exists()


def test_a_cluster_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "broker.conf").write_text("listenPort=1\n")
    refused = raftmq("local", "--dir", str(tmp_path), "--nodes", "3", code=2).stderr
    assert f"--nodes 3: {tmp_path} has a cluster of 1: leave --nodes out, or give another --dir" in refused


def test_R9_members_at_other_addresses_than_the_files_are_a_sentence(tmp_path: Path) -> None:
    with local(tmp_path, "--nodes", "3", "--namesrv-port", "0", "--broker-port", "0"):
        pass
    moved = free_ports(1)[0]
    for path in tmp_path.glob("n*/broker.conf"):
        path.write_text(re.sub(r"n0-127\.0\.0\.1:\d+", f"n0-127.0.0.1:{moved}", path.read_text()))
    cluster = LocalCluster(tmp_path, nodes=3, keep=True)
    try:
        for broker in cluster.brokers[1:]:
            broker.launch()
        for broker in cluster.brokers[1:]:
            broker.wait_ready()
            told: list[str] = []

            def warned(broker: ServerProcess = broker, told: list[str] = told) -> bool:
                state = cluster.state_of(broker)
                told[:] = [text for text in (state or {"warnings": []})["warnings"] if "the group knows n0 at" in text]
                return bool(told) and told[0] in broker.log.read_text()

            until("its state and its log say so", warned)
            assert f"dLegerPeers says n0 at 127.0.0.1:{moved}" in told[0]
    finally:
        cluster.kill()
