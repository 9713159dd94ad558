"""The commands of Raft groups against three real processes: what they do, what they print, how they fail."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.local import LocalCluster
from chaos.host.processes import HOST, ServerProcess, broker_process, free_ports
from tests.cluster.raft_cluster import CALM
from tests.cluster.test_raftmq_cli import Terminal
from tests.cluster.test_raftmq_servers import ENVIRONMENT, RAFTMQ, raftmq

GROUP = "broker-a"
# Who leads, and in which term, is asked for more than once.
SETTINGS = {**CALM, "shutdownForwardMs": 50, "mappedFileSizeCommitLog": 1 << 20}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with LocalCluster(tmp_path_factory.mktemp("raft"), nodes=3, broker_settings=SETTINGS) as cluster:
        yield Terminal(cluster)


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def states(terminal: Terminal) -> dict[str, dict[str, Any]]:
    """What raft-status says, by member."""
    return {state["self"]: state for state in terminal.json("cluster", "raft-status").values()}


def voters(terminal: Terminal) -> set[str]:
    """Who votes, as the leader has it; empty while the last change is not over."""
    for state in states(terminal).values():
        if state["leads"] and state["applied"] >= state["config_index"]:
            return {member["id"] for member in state["members"] if member["voter"]}
    return set()


def leader(terminal: Terminal) -> str:
    """Who leads, once the NameServer says so too."""
    found = ""

    def known() -> bool:
        nonlocal found
        found = next((member for member, state in states(terminal).items() if state["leads"]), "")
        addresses = {row["address"] for row in terminal.json("cluster", "list") if row["id"] == 0}
        return bool(found) and addresses == {states(terminal)[found]["brokerAddress"]}

    until(known)
    return found


def fourth(terminal: Terminal) -> tuple[ServerProcess, str]:
    """Make one more member, and the address of its Raft port."""
    (port,) = free_ports(1)
    members = next(iter(states(terminal).values()))["members"]
    peers = [f"{member['id']}-{member['address']}" for member in members] + [f"n3-{HOST}:{port}"]
    keys = {
        "enableDLegerCommitLog": True,
        "dLegerGroup": GROUP,
        "dLegerPeers": ";".join(peers),
        "dLegerSelfId": "n3",
        **SETTINGS,
    }
    folder = terminal.cluster.folder / "n3"
    return broker_process(folder, namesrv=terminal.address, settings=keys, name="broker n3"), f"{HOST}:{port}"


def test_raft_status(terminal: Terminal) -> None:
    first = leader(terminal)
    # Who follows knows its leader by the first word from it.
    until(lambda: {state["leader"] for state in states(terminal).values()} == {first})
    found = states(terminal)
    assert set(found) == {"n0", "n1", "n2"}
    assert {state["role"] for state in found.values()} == {"LEADER", "FOLLOWER"}
    one = terminal.json("cluster", "raft-status", "--broker", found["n1"]["brokerAddress"])
    assert [state["self"] for state in one.values()] == ["n1"]
    lines = terminal.text("cluster", "raft-status").splitlines()
    assert lines[0].split() == [
        "broker", "id", "role", "term", "leader", "last", "commit", "applied", "on", "disk", "lag", "flush", "election",
    ]  # fmt: skip
    assert sorted(line.split()[1] for line in lines[1:]) == ["n0", "n1", "n2"]
    assert all("SYNC_FLUSH" in line for line in lines[1:])
    assert terminal.json("topic", "route", "TBW102")[0]["id"] == 0


def test_status_shows_the_essence_at_eighty_columns(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    first = leader(terminal)
    term = str(states(terminal)[first]["term"])
    for number in range(3):
        terminal.text("send", "TBW102", str(number))
    monkeypatch.setitem(ENVIRONMENT, "COLUMNS", "80")
    table = raftmq("cluster", "status", "-n", terminal.address)
    assert table.returncode == 0, table.stderr
    lines = table.stdout.splitlines()
    assert lines[0].split() == ["broker", "id", "role", "term", "behind", "disk", "in/s", "out/s", "p99", "ms"]
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines[1:]]
    assert [row[0] for row in rows] == [GROUP] * 3
    assert sorted(row[2] for row in rows) == ["follower", "follower", "leader"]
    led = next(row for row in rows if row[2] == "leader")
    assert (led[1], led[3]) == ("0", term)
    assert all(row[4].isdigit() and row[5].endswith("%") and row[6].isdigit() for row in rows)
    figures = terminal.json("cluster", "status")
    assert len(figures) == 3
    assert {each["raftTerm"] for each in figures.values()} == {term}
    assert all(int(each["raftCommitIndex"]) > 0 for each in figures.values())
    assert any(float(each["putLatency99"]) > 0 for each in figures.values())


def test_the_lead_is_transferred(terminal: Terminal) -> None:
    first = leader(terminal)
    to = next(member for member in ("n0", "n1", "n2") if member != first)
    said = terminal.json("cluster", "transfer-leader", GROUP, to)
    assert said == {"leader": to, "address": states(terminal)[to]["brokerAddress"]}
    assert leader(terminal) == to
    assert "leads broker-a now" in terminal.text("cluster", "transfer-leader", GROUP)
    assert leader(terminal) != to


def test_what_cannot_be_done_is_said_in_one_line(terminal: Terminal) -> None:
    first = leader(terminal)
    assert "no broker named nobody leads a group" in terminal.error("cluster", "transfer-leader", "nobody")
    assert "n7 is no member" in terminal.error("cluster", "remove-peer", GROUP, "n7")
    assert "transfer the lead" in terminal.error("cluster", "remove-peer", GROUP, first)
    assert "cannot be left: remove all members but one" in terminal.error("cluster", "leave-raft", GROUP)
    assert "is no member id" in terminal.error("cluster", "add-peer", GROUP, "third", "127.0.0.1:1")
    assert "is no address" in terminal.error("cluster", "add-peer", GROUP, "n3", "nowhere")
    assert "is a member already" in terminal.error(
        "cluster", "add-peer", GROUP, "n1", states(terminal)["n1"]["members"][1]["address"]
    )
    assert "n3 was not met at 127.0.0.1:1" in terminal.error("cluster", "add-peer", GROUP, "n3", "127.0.0.1:1")


def test_a_member_is_added_others_are_removed_and_the_last_one_leaves(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes=3, broker_settings=SETTINGS) as cluster:
        _grow_and_shrink(Terminal(cluster))


def _grow_and_shrink(terminal: Terminal) -> None:
    terminal.text("send", "kept", typed="one\ntwo\nthree\n")
    newcomer, address = fourth(terminal)
    cluster = terminal.cluster
    running = {f"n{number}": broker for number, broker in enumerate(cluster.brokers)} | {"n3": newcomer}
    try:
        newcomer.launch()
        # Started, and in no group: it does not serve.
        until(lambda: newcomer.state("/v1/raft") is not None)
        assert not newcomer.ready()
        assert "n3 is a learner of broker-a now" in terminal.text("cluster", "add-peer", GROUP, "n3", address)
        until(lambda: voters(terminal) == set(running))
        newcomer.wait_ready()
        terminal.text("cluster", "transfer-leader", GROUP, "n3")
        for gone in ("n0", "n1", "n2"):
            assert leader(terminal) == "n3"
            left = terminal.json("cluster", "remove-peer", GROUP, gone)
            assert gone not in {member["id"] for member in left["members"]}
            assert running[gone].stop() == 0
            until(lambda gone=gone: gone not in voters(terminal) != set())  # type: ignore[misc] # bound at once
        assert "restart it with enableDLegerCommitLog=false" in terminal.text("cluster", "leave-raft", GROUP)
        assert newcomer.stop() == 0
        alone = broker_process(cluster.folder / "n3", namesrv=terminal.address, settings=SETTINGS)
        try:
            alone.start()
            seen = terminal.lines("consume", "kept", "--count", "3", "--timeout", "10")
            assert sorted(message["body"] for message in seen) == ["one", "three", "two"]
            assert "no broker belongs to a Raft group" in terminal.text("cluster", "raft-status")
            assert "raftmq: " in terminal.error("cluster", "raft-status", "--broker", alone.address)
        finally:
            alone.kill()
    finally:
        newcomer.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_local_runs_a_group_and_ends_it_within_seconds(tmp_path: Path, number: signal.Signals) -> None:
    arguments = ["local", "--nodes", "3", "--dir", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0", "--json"]
    with subprocess.Popen([*RAFTMQ, *arguments], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as local:
        try:
            assert local.stdout is not None
            told = json.loads(local.stdout.readline())
            assert len(told["brokers"]) == 3
            sent = raftmq("send", "local_topic", "hello", "-n", told["namesrv"], "--json")
            assert json.loads(sent.stdout)["status"] == "SEND_OK"
            began = time.monotonic()
            local.send_signal(number)
            assert local.wait(30) == 0
            assert time.monotonic() - began < 20
        finally:
            local.kill()
    for member in ("n0", "n1", "n2"):
        assert not (tmp_path / member / "store" / "abort").exists()
