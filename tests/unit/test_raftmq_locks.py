"""What RaftMQ is installed with: versions and hashes, of what builds the rest too; lower bounds that are tested."""

import itertools
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_lock_has_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    requirements = [entry for entry in re.split(r"\n(?=\S)", lock.strip()) if not entry.startswith("#")]
    assert len(requirements) > 20
    assert [entry.split()[0] for entry in requirements if "==" not in entry or "--hash=sha256:" not in entry] == []


def test_what_installs_and_builds_the_others_is_locked_too() -> None:
    lock = (ROOT / "setup" / "pip.lock").read_text()
    named = [line.split() for line in lock.splitlines() if not line.startswith("#")]
    assert {words[0].partition("==")[0] for words in named} == {"pip", "setuptools"}
    assert all("==" in words[0] and words[1].startswith("--hash=sha256:") for words in named)
    # In isolation pip fetches what builds a package as it likes, and checks no hash.
    installs = [line for line in (ROOT / "setup" / "venv.sh").read_text().splitlines() if '"${pip[@]}" install' in line]
    assert len(installs) == 3
    assert all("--no-build-isolation" in line for line in installs if "pip.lock" not in line)


def test_the_lowest_version_that_is_allowed_is_the_tested_one() -> None:
    lock = re.findall(r"^([a-z0-9.-]+)==([^ ;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"], *itertools.chain(*extras)]
    bounds = [found for text in wanted if (found := re.match(r"([a-z0-9.-]+)[>=]=([0-9.]+)", text)) is not None]
    assert len(bounds) == len([text for text in wanted if not text.startswith("raftmq[")])
    # Of a package that is locked in two versions, for old and new Pythons, it is the lower one.
    lowest: dict[str, str] = {found[1]: found[2] for found in bounds}
    locked = {name: min((part for known, part in lock if known == name), key=numbers) for name in lowest}
    assert {name: low for name, low in lowest.items() if locked[name] != low} == {}


def numbers(version: str) -> list[int]:
    """A version, to be compared."""
    return [int(part) for part in version.split(".")]
