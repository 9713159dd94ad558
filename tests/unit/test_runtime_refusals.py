"""runtime/refusals.py: lines in the audit log about who was refused at a door, and how many there may be."""

import pytest

from runtime import refusals
from runtime.quiet import EVERY_S
from runtime.refusals import DoorRefusals


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "audit"]


def test_one_who_repeats_himself_costs_a_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "audit")
    now = 100.0
    door = DoorRefusals("HA", lambda: now)
    for _ in range(5):
        door.tell("10.0.0.9", "proof", "it does not know the secret")
    # Another address of the same customer's network is no other.
    for last in (1, 2):
        door.tell(f"fd00::{last}", "proof", "it does not know the secret")
    door.tell("10.0.0.9", "limit", "it is one too many", code=16, asked="a place")
    refused = "HA connection: refused (it does not know the secret)"
    first = [f"10.0.0.9 asked for {refused}", f"fd00::1 asked for {refused}"]
    first.append("10.0.0.9 asked for HA a place: refused with 16 (it is one too many)")
    assert lines(caplog) == first
    told = caplog.records[0].__dict__["audit"]
    assert (told["from"], told["asked"], told["code"]) == ("10.0.0.9", "HA", "")
    now += EVERY_S
    door.tell("10.0.0.9", "proof", "it does not know the secret")
    assert lines(caplog)[3:] == [
        "5 more were refused at HA since the last such lines: 4 of 10.0.0.9, 1 of fd00::/64",
        first[0],
    ]


def test_so_many_lines_in_all_and_none_with_what_a_stranger_breaks_it_with(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "audit")
    monkeypatch.setattr(refusals, "LINES_MAX", 2)
    door = DoorRefusals("HTTP", lambda: 0.0)
    for number in range(4):
        door.tell(f"10.0.0.{number}", "403", "may not", asked="GET /\n" + "x" * 1000)
    assert len(lines(caplog)) == 2
    assert "\n" not in lines(caplog)[0]
    assert len(lines(caplog)[0]) < 300
