"""Ports that two processes never both choose."""

import os
import socket
from pathlib import Path

import pytest

from chaos.host.ports import BLOCK_PORTS, HOST, REST_S, STRIDE, Ports

PORTS = BLOCK_PORTS // STRIDE


def test_two_choosers_never_meet(tmp_path: Path) -> None:
    one, other = Ports(tmp_path), Ports(tmp_path)
    mine = {port for _ in range(30) for port in one.take(2)}
    assert not mine & {port for _ in range(30) for port in other.take(2)}


def test_ports_are_different_and_rest_before_they_are_given_again(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    first = ports.take(10)
    assert len(set(first)) == 10
    assert not set(first) & set(ports.take(10))


def listens(one: socket.socket, port: int) -> bool:
    """Let a socket listen on a port of the loopback interface, unless somebody has it."""
    try:
        one.bind((HOST, port))
    except OSError:
        return False
    one.listen()
    return True


def test_a_port_that_somebody_listens_on_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Ports(tmp_path)
    given = ports.take(PORTS)
    monkeypatch.setattr("chaos.host.ports.REST_S", 0.0)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The folder is the test's own, so servers of the tests beside it may have come to some of these ports.
        port = next(port for port in given if listens(taken, port))
        again = ports.take(PORTS * 2)
    assert set(given) & set(again), "the ports of this block are given again, and one is not"
    assert port not in again


def test_more_than_a_block_is_more_than_one_block(tmp_path: Path) -> None:
    assert len(set(Ports(tmp_path).take(PORTS * 2))) == PORTS * 2


def test_none_is_given_again_before_its_server_can_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports, now = Ports(tmp_path), 1000.0
    monkeypatch.setattr("chaos.host.ports.time.monotonic", lambda: now)
    given = [port for count in (PORTS - 2, 3, 2, 7) for port in ports.take(count)]
    assert len(set(given)) == len(given)
    now += REST_S
    assert set(ports.take(PORTS)) & set(given)


def test_the_ports_beside_one_are_given_to_nobody(tmp_path: Path) -> None:
    ports = sorted(Ports(tmp_path).take(PORTS * 2))
    assert not {near for port in ports for near in (port - 2, port + 1)} & set(ports)


def test_a_fork_chooses_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Ports(tmp_path)
    before = ports.take(3)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not set(before) & set(ports.take(PORTS))
