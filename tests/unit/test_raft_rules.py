"""docs/durability.md: each rule of a Raft group has tests of its name, and each test that the page names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def names_in(path: Path) -> set[str]:
    return set(re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("rule", [f"R{number}" for number in range(1, 18)])
def test_every_rule_has_tests_of_its_name_and_a_row(rule: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {rule} |")]
    named = [name for _, name in REFERENCE.findall(row)]
    assert sum(re.search(rf"_{rule}(_|$)", name) is not None for name in named) >= 2


def test_every_test_that_is_named_exists() -> None:
    named = REFERENCE.findall(PAGE)
    assert len(named) > 50
    assert [name for path, name in named if name not in names_in(ROOT / path)] == []
