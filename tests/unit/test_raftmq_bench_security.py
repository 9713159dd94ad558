"""`raftmq bench security`: its arithmetic over made-up rounds."""

import orjson
import pytest
from typer.testing import CliRunner

from raftmq.bench.load import Result
from raftmq.bench.security import SecurityLoad, SecurityRound, aims, costs, turned
from raftmq.cli.main import app


def measured(
    protection: str, number: int, rate: int, cpu: float | None = None, *, in_flight: int = 64, mode: str = "single"
) -> SecurityRound:
    result = Result(
        "send", 1, in_flight, 100, 2.0, rate * 2, rate * 2, rate, 1.0 * number, 2.0, 3.0, {}, cpu, 0.5
    )  # fmt: skip
    return SecurityRound(mode, protection, number, result)


def test_a_cost_is_reckoned_in_each_round_against_its_own_plain_sends() -> None:
    """A machine that is half as fast in one round changes no cost."""
    rows = costs([
        measured("plain", 0, 1000, 10.0), measured("signed", 0, 900, 11.0),
        measured("plain", 1, 500, 20.0), measured("signed", 1, 450, 22.0),
        measured("plain", 2, 2000, 5.0), measured("signed", 2, 1000, 6.0),
    ])  # fmt: skip
    plain, signed = rows
    assert (plain.messages_per_s, plain.cost_percent, plain.cpu_cost_percent) == (1000, None, None)
    assert (signed.messages_per_s, signed.cost_percent, signed.cpu_cost_percent) == (900, 10.0, 10.0)
    assert (signed.rounds, signed.server_cpu_us_per_message, signed.p50_ms, signed.client_busy) == (3, 11.0, 1.0, 0.5)


def test_rows_are_in_order_and_only_compared_with_their_own_kind() -> None:
    rows = costs([
        measured("both", 0, 100, mode="raft"), measured("plain", 0, 200, mode="raft"),
        measured("tls", 0, 300), measured("plain", 0, 400), measured("tls", 0, 10, in_flight=1),
    ])  # fmt: skip
    assert [(row.mode, row.in_flight, row.protection, row.cost_percent) for row in rows] == [
        ("single", 1, "tls", None),
        ("single", 64, "plain", None),
        ("single", 64, "tls", 25.0),
        ("raft", 64, "plain", None),
        ("raft", 64, "both", 50.0),
    ]
    assert all(row.server_cpu_us_per_message is None for row in rows)


@pytest.mark.parametrize(("signed", "tls", "met"), [(850, 400, [True, True]), (849, 399, [False, False])])
def test_aims_are_about_sixty_four_in_flight(signed: int, tls: int, met: list[bool]) -> None:
    rounds = [measured("plain", 0, 1000), measured("signed", 0, signed), measured("tls", 0, tls)]
    others = [measured("plain", 0, 1000, in_flight=1), measured("signed", 0, 1, in_flight=1), measured("both", 0, 1)]
    found = aims(costs([*rounds, *others]))
    assert [(aim.protection, aim.in_flight) for aim in found] == [("signed", 64), ("tls", 64)]
    assert [aim.met for aim in found] == met


def test_each_protection_comes_first_in_its_turn() -> None:
    assert [turned("abcd", by) for by in (0, 1, 5)] == [list("abcd"), list("bcda"), list("bcda")]


def test_the_command_prints_costs_and_aims(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], SecurityLoad]] = []

    async def rounds(modes: list[str], load: SecurityLoad, _folder: object) -> object:
        asked.append((modes, load))
        for number in range(load.rounds):
            yield measured("plain", number, 1000, 10.0)
            yield measured("signed", number, 900, 11.0)

    monkeypatch.setattr("raftmq.bench.security.run_security", rounds)
    words = ["bench", "security", "--mode", "single", "-w", "64", "--rounds", "2", "--seconds", "0.5"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    assert asked == [(["single"], SecurityLoad((64,), 100, 2, 0.5))]
    assert "single, signed, 64 in flight: 10 % fewer, at most 15 % are to be: met" in found.stdout
    told = orjson.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [row["cost_percent"] for row in told["rows"]] == [None, 10.0]
    assert told["aims"][0]["met"] is True
    wrong = CliRunner().invoke(app, ["bench", "security", "--mode", "pair"])
    assert wrong.exit_code == 2
