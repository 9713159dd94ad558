"""`raftmq bench peers`: its order, its arithmetic over made-up rounds, what it reads, and its command line."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.host.processes import ProcessError
from raftmq.bench.frames import BadAnswer
from raftmq.bench.peers.processes import ProcessTime, family_seconds, process_time
from raftmq.bench.peers.rawclient import RawLoad, result_of
from raftmq.bench.peers.rounds import PeerRound, PeersLoad, run_peers, turns
from raftmq.bench.peers.summary import peer_noise, peer_rows
from raftmq.bench.peers.systems import SYSTEMS, lacking
from raftmq.cli.main import app

FIRST, OTHER = "raftmq-raft", "rocketmq-dledger"


def measured(
    system: str, number: int, rate: int, *, again: bool = False, in_flight: int = 64, failed: str | None = None
) -> PeerRound:
    promise = SYSTEMS[system].promise
    return PeerRound(
        number, system, again, promise, in_flight, 100, rate * 2, 2.0, rate, 1.0 + number, 5.0, 9.0, 10.0 + number,
        0.25, 0.05, 0, failed,
    )  # fmt: skip


def test_each_comes_first_in_its_turn_and_the_first_system_comes_twice() -> None:
    orders = [[(one.system, one.again) for one in turns(["a", "b", "c"], number)] for number in range(4)]
    assert orders[0] == [("a", False), ("b", False), ("a", True), ("c", False)]
    assert [order[0] for order in orders] == [("a", False), ("b", False), ("a", True), ("c", False)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert turns(["a"], 0) == [("a", False), ("a", True)]


def test_a_ratio_is_reckoned_in_each_round_against_the_first_system_of_that_round() -> None:
    """A machine that is half as fast in one round changes no ratio."""
    rounds = [
        measured(FIRST, 0, 1000), measured(OTHER, 0, 250), measured(FIRST, 0, 500, again=True),
        measured(FIRST, 1, 500), measured(OTHER, 1, 125), measured(FIRST, 1, 500, again=True),
        measured(FIRST, 2, 2000), measured(OTHER, 2, 1000), measured(FIRST, 2, 2200, again=True),
    ]  # fmt: skip
    first, again, other = peer_rows(rounds)
    assert [(row.system, row.again) for row in (first, again, other)] == [(FIRST, False), (FIRST, True), (OTHER, False)]
    assert (first.messages_per_s, first.first_times) == (1000, 1.0)
    assert (other.messages_per_s, other.first_times, other.rounds, other.failed) == (250, 4.0, 3, 0)
    assert (other.p50_ms, other.cpu_us_per_message, other.client_busy) == (2.0, 11.0, 0.25)
    (noise,) = peer_noise(rounds)
    assert (noise.system, noise.in_flight, noise.ratio, noise.lowest, noise.highest) == (FIRST, 64, 1.0, 0.5, 1.1)


def test_a_round_that_failed_counts_for_nothing() -> None:
    rounds = [
        measured(FIRST, 0, 1000), measured(OTHER, 0, 500, failed="refused"),
        measured(FIRST, 0, 1, again=True, failed="-"),
        measured(FIRST, 1, 1, failed="broke off"), measured(OTHER, 1, 100), measured(FIRST, 1, 900, again=True),
    ]  # fmt: skip
    first, again, other = peer_rows(rounds)
    assert (first.rounds, first.failed, first.messages_per_s) == (1, 1, 1000)
    assert (again.rounds, again.messages_per_s) == (1, 900)
    assert (other.messages_per_s, other.first_times) == (100, None), "its only round has no first system"
    assert peer_noise(rounds) == []
    (alone,) = peer_rows([measured(OTHER, 0, 5, failed="refused")])
    assert (alone.rounds, alone.failed, alone.messages_per_s, alone.cpu_us_per_message) == (0, 1, 0, None)


def test_rows_are_sorted_by_what_is_in_flight_then_as_they_were_named() -> None:
    rounds = [measured(name, 0, 10, in_flight=number) for number in (512, 1) for name in (OTHER, FIRST)]
    assert [(row.in_flight, row.system) for row in peer_rows(rounds)] == [
        (1, OTHER), (1, FIRST), (512, OTHER), (512, FIRST)
    ]  # fmt: skip


def test_a_systems_time_is_that_of_all_its_descendants_and_of_children_that_ended() -> None:
    line = "77 (a (odd) name) S 5 77 77 0 -1 4194560 1 2 3 4 100 50 30 20 20 0 1 0 900 1 1"
    assert process_time(line, 100) == ProcessTime(parent=5, seconds=2.0)
    known = {
        5: ProcessTime(1, 1.0), 77: ProcessTime(5, 2.0), 78: ProcessTime(77, 4.0), 9: ProcessTime(1, 8.0),
    }  # fmt: skip
    assert family_seconds(known, [5]) == pytest.approx(7.0)
    assert family_seconds(known, [5, 78, 9]) == pytest.approx(15.0), "each once"
    assert family_seconds(known, [4711]) == 0.0


def test_the_loads_line_is_read_or_named() -> None:
    line = (
        '{"acknowledged":7,"errors":1,"first_error":"busy","seconds":1.5,"p50_ms":0.1,"p99_ms":2.0,"max_ms":3.0,'
        '"client_busy":0.5}'
    )
    found = result_of(line)
    assert (found.acknowledged, found.errors, found.first_error, found.client_busy) == (7, 1, "busy", 0.5)
    for wrong in ("", "end", '{"acknowledged":7}', line.replace("errors", "mistakes")):
        with pytest.raises(BadAnswer, match="no result"):
            result_of(wrong)


def test_numbers_reach_the_load_as_they_are() -> None:
    words = RawLoad("nats", 13_002, "t", 65_535, 1024 * 1024, 0.5, 2.0).words()
    assert words == ["nats", "13002", "t", "65535", "1048576", "0.500", "2.000"]


def test_what_is_compiled_as_it_runs_is_warmed_up_longer() -> None:
    load = PeersLoad([FIRST, OTHER])
    assert [load.warm_up_of(name) for name in load.systems] == [3.0, 25.0]
    assert PeersLoad([FIRST], warm_up_s=1.0).warm_up_of(FIRST) == 1.0
    assert PeersLoad([FIRST, OTHER], body_bytes=1024).disk_bytes() > 2 * load.disk_bytes()
    assert PeersLoad([FIRST, OTHER], together=True).disk_bytes() > 1.5 * load.disk_bytes()


async def test_who_has_no_room_is_told_before_anything_starts(tmp_path: Path) -> None:
    load = PeersLoad([FIRST], body_bytes=1024 * 1024, rounds=1000, seconds=600)
    with pytest.raises(ProcessError, match="fewer --systems"):
        await anext(run_peers(load, print, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_system_that_is_not_here_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("raftmq.bench.peers.rabbitmq.DEBIAN", tmp_path)
    why = lacking(SYSTEMS)
    assert {SYSTEMS[name].family for name in SYSTEMS if name not in why} == {"RaftMQ"}
    for name, package in (("nats-r3", "nats-server"), ("rabbitmq-quorum", "rabbitmq-server"), (OTHER, "maven")):
        assert f"apt-get install {package}" in why[name]


def command(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["bench", "peers", *words])
    return found.exit_code, found.stdout, found.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--systems", "kafka"], f"--systems kafka: there is no such system; it takes {', '.join(SYSTEMS)}"),
        (["--systems", FIRST, "-w", "1,many"], "--in-flight 1,many: it takes numbers from 1 to 65535"),
        (["--systems", FIRST, "-w", "0"], "--in-flight 0: it takes numbers from 1 to 65535"),
        (["--systems", FIRST, "-w", "65535", "-s", "1000000"], "--in-flight times --size"),
        (["--systems", FIRST, "--pulls", "-w", "1", "-s", "8000"], "--pulls with --size 8000: a broker gives no 32 of"),
        (["--systems", FIRST, "--pulls", "-w", "65535", "-s", "1000"], "--in-flight times 32 times --size is above"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(words: list[str], said: str) -> None:
    code, out, errors = command(*words)
    assert (code, out) == (2, "")
    assert errors.startswith(f"raftmq: {said}")
    assert len(errors.splitlines()) == 1


def test_pulls_are_measured_of_single_brokers_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PeersLoad] = []

    async def rounds(load: PeersLoad, _say: object, _folder: object) -> AsyncIterator[PeerRound]:
        asked.append(load)
        yield measured("raftmq-single", 0, 1000)

    monkeypatch.setattr("raftmq.bench.peers.rounds.run_peers", rounds)
    monkeypatch.setattr("raftmq.bench.peers.systems.lacking", lambda _names: {"rocketmq-single": "no Java"})
    code, _, errors = command("--pulls", "--rounds", "1", "-w", "8")
    assert code == 0, errors
    assert "rocketmq-single is left out: no Java" in errors
    assert [(load.systems, load.pulls) for load in asked] == [(["raftmq-single"], True)]
    monkeypatch.setattr("raftmq.bench.peers.systems.lacking", lambda _names: {})
    code, _, errors = command("--pulls", "--systems", "nats-r3")
    assert (code, "nats-r3 does not speak RocketMQ's protocol" in errors) == (2, True)


def test_the_command_prints_rounds_and_what_they_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PeersLoad] = []

    async def rounds(load: PeersLoad, _say: object, _folder: object) -> AsyncIterator[PeerRound]:
        asked.append(load)
        for number in range(load.rounds):
            yield measured(FIRST, number, 1000)
            yield measured(OTHER, number, 250, failed="refused" if load.seconds > 5 and not number else None)
            yield measured(FIRST, number, 950, again=True)

    monkeypatch.setattr("raftmq.bench.peers.rounds.run_peers", rounds)
    monkeypatch.setattr(
        "raftmq.bench.peers.systems.lacking",
        lambda names: {name: "it is not here" for name in names if name == "nats-r3"},
    )
    code, out, errors = command("--rounds", "2", "-w", "64,64", "--warm-up", "0", "-s", "1024")
    assert code == 0, errors
    assert asked == [PeersLoad([name for name in SYSTEMS if name != "nats-r3"], [64], 1024, 2, 2.0, 0.0)]
    assert "nats-r3 is left out: it is not here" in errors
    assert f"round 1, 64 in flight, {OTHER}: 250 msgs/s" in out
    assert "page caches of a majority of three" in out
    assert "4 x" in out
    assert f"{FIRST} against itself, 64 in flight: 0.95 times (0.95 to 0.95)" in out
    code, out, errors = command("--systems", f"{FIRST},{OTHER}", "--json", "--seconds", "6")
    assert code == 1
    assert "1 of 9 measurements do not count, the first of rocketmq-dledger: refused" in errors
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["round"], one["system"], one["again"], one["failed"]) for one in told[:3]] == [
        (0, FIRST, False, None), (0, OTHER, False, "refused"), (0, FIRST, True, None)
    ]  # fmt: skip
    code, _, errors = command("--systems", f"{FIRST},nats-r3")
    assert (code, errors) == (1, "raftmq: nats-r3 cannot be measured here: it is not here\n")
