"""docs/rules.md: each rule of a Raft group has a section and tests of its name, and each test that is named exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
RULES = [f"R{number}" for number in range(1, 19)]
SECTIONS = {section.partition(":")[0]: section for section in PAGE.split("\n## ")[1:]}


def names_in(path: Path) -> set[str]:
    return set(re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_tests_of_its_name_and_a_section(rule: str) -> None:
    named = [name for _, name in REFERENCE.findall(SECTIONS[rule])]
    assert sum(re.search(rf"_{rule}(_|$)", name) is not None for name in named) >= 2
    assert "\nWithout it: " in SECTIONS[rule]


def test_every_test_that_is_named_exists() -> None:
    named = REFERENCE.findall(PAGE)
    assert len(named) > 50
    assert [name for path, name in named if name not in names_in(ROOT / path)] == []


def test_every_rule_that_the_code_cites_is_there() -> None:
    packages = ("broker", "chaos", "client", "namesrv", "pipeline", "raft", "raftmq", "remoting", "runtime", "store")
    texts = [path.read_text(encoding="utf-8") for name in packages for path in (ROOT / name).rglob("*.py")]
    cited = {rule for text in texts for rule in re.findall(r"\((?:rule )?(R\d+)\b", text)}
    assert len(cited) > 12
    assert cited <= set(SECTIONS)


def test_every_planted_bug_that_is_named_exists() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    sentences = re.findall(r"^Planted: (?:.|\n)*?\n\n", PAGE, re.MULTILINE)
    planted = [name for sentence in sentences for name in re.findall(r"`(\w+)`", sentence)]
    assert len(planted) > 15
    assert [name for name in planted if not re.search(rf"^(def |class )?{name}\b", texts, re.MULTILINE)] == []
