"""Ports that two processes never both choose."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.ports import BLOCK_PORTS, HOST, HTTP_ABOVE, PORT_MIN, REST_S, STRIDE, Ports

# Of one block.
PORTS = HTTP_ABOVE // STRIDE
# Below those that servers of tests have, above RocketMQ's own.
APART = 11_400


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Ports]]:
    """All that a test makes; their blocks are others' behind it."""
    every: list[Ports] = []
    begin = Ports.__init__

    def note(ports: Ports) -> None:
        begin(ports)
        every.append(ports)

    monkeypatch.setattr(Ports, "__init__", note)
    yield every
    for ports in every:
        ports.close()


def test_two_choosers_never_meet() -> None:
    one, other = Ports(), Ports()
    mine = {port for _ in range(30) for port in one.take(2)}
    assert not mine & {port for _ in range(30) for port in other.take(2)}


def test_ports_are_different_and_rest_before_they_are_given_again() -> None:
    ports = Ports()
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


def test_a_port_that_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Ports()
    given = ports.take(PORTS)
    monkeypatch.setattr("chaos.host.ports.REST_S", 0.0)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = next(port for port in given if listens(taken, port))
        again = ports.take(PORTS * 2)
    assert set(given) & set(again), "the ports of this block are given again, and one is not"
    assert port not in again


def test_more_than_a_block_is_more_than_one_block() -> None:
    assert len(set(Ports().take(PORTS * 2))) == PORTS * 2


def test_none_is_given_again_before_its_server_can_have_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports, now = Ports(), 1000.0
    monkeypatch.setattr("chaos.host.ports.time.monotonic", lambda: now)
    given = [port for count in (PORTS - 2, 3, 2, 7) for port in ports.take(count)]
    assert len(set(given)) == len(given)
    now += REST_S
    assert set(ports.take(PORTS)) & set(given)


def test_the_ports_beside_one_are_given_to_nobody() -> None:
    ports = Ports()
    given = set(ports.take(PORTS * 2))
    beside = {near for port in given for near in (port - 2, port + 1, port + 100)}
    assert not beside & given
    # To no other process either: they are of the same blocks.
    assert {block(port) for port in beside} == {block(port) for port in given}
    assert len({block(port) for port in given}) == len(ports._signs)


def block(port: int) -> int:
    return (port - PORT_MIN) // BLOCK_PORTS


def test_a_fork_chooses_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Ports()
    before = ports.take(3)
    parents = [os.dup(sign) for sign in ports._signs]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not set(before) & set(ports.take(PORTS))
    for sign in parents:
        os.close(sign)


@pytest.fixture
def two_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Ports that tests beside this one do not use; returns the first one's number."""
    monkeypatch.setattr("chaos.host.ports.PORT_MIN", APART)
    monkeypatch.setattr("chaos.host.ports._first_given_port", lambda: APART + 3 * BLOCK_PORTS)
    return APART


def test_another_process_has_other_ports_whatever_its_temporary_folder_is(tmp_path: Path, two_blocks: int) -> None:
    mine = Ports()
    assert len(set(mine.take(2 * PORTS))) == 2 * PORTS
    signs = [two_blocks + number * BLOCK_PORTS for number in range(3)]
    said = f"from chaos.host.ports import Ports; print([Ports()._have(one) for one in {signs}])"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    assert said_by(said, environment) == "[False, False, True]\n"
    with pytest.raises(OSError, match="are taken by other processes"):
        Ports().take(1)
    mine.close()
    assert said_by(said, environment) == "[True, True, True]\n"


def said_by(program: str, environment: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=30
    ).stdout


def test_what_was_given_in_an_earlier_life_is_given_to_no_newcomer(two_blocks: int) -> None:
    before, again, other = Ports(), Ports(), Ports()
    port = before.take(1)[0]
    before.close()
    again.keep(port)
    again.keep(port)
    found = {*again.take(PORTS)}
    assert port // BLOCK_PORTS not in {one // BLOCK_PORTS for one in found}
    with pytest.raises(OSError, match="are taken by other processes"):
        other.take(1)
    again.close()
    assert other.take(1)


@pytest.mark.parametrize("port", [-1, 0, 80, PORT_MIN - 1, 65_535, 100_000])
def test_a_port_of_no_block_is_nothing_to_keep(port: int) -> None:
    Ports().keep(port)
