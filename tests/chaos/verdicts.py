"""What a run says that should have been valid: all findings in words, the faults, and the ends of its servers' logs."""

from pathlib import Path

import pytest

from pipeline.history.folder import INFO, LOGS
from pipeline.history.results import Results, Verdict

INFO_CHARACTERS = 20_000
TAIL_LINES = 12


def wrong(results: Results) -> list[str]:
    """Return in words what a run that should be valid is not."""
    return [
        f"{one.check} {one.title}, {one.verdict}: {one.text} {one.witnesses[:3]}"
        for one in results.findings
        if one.verdict in {Verdict.INVALID, Verdict.UNKNOWN}
    ]


def assert_valid(results: Results, folder: Path) -> None:
    """Fail with what can be said of a run whose folder is gone when somebody reads this."""
    if results.verdict is Verdict.VALID:
        return
    told = [f"the run is {results.verdict}", *wrong(results)]
    info = folder / INFO
    if info.exists():
        told.append(info.read_text(encoding="utf-8")[-INFO_CHARACTERS:])
    for path in sorted((folder / LOGS).glob("*.log")):
        told += [f"-- {path.name}", *path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]]
    pytest.fail("\n".join(told), pytrace=False)
