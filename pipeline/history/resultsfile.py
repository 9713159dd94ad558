"""A run's results.json: written whole or not at all, and never over a result that rests on more evidence."""

from pathlib import Path
from typing import Any

import orjson

from pipeline.history.folder import RESULTS
from pipeline.history.results import Results, Verdict

# More stores than any run has.
_ALL_LACKING = 2**31
_JUDGED = {str(Verdict.VALID), str(Verdict.INVALID), str(Verdict.INFO)}
_LOOKED = {*_JUDGED, str(Verdict.UNKNOWN)}
# Of stores that nobody looked at (pipeline/plain/guard_stores.py).
_GUARD = "V8"


def keep_results(folder: Path, results: Results) -> str:
    """Write results.json into a folder, which is made; returns why the one that is there was kept, "" when it was not.

    What is there is kept when it looked at more: at a history, at stores or at earlier copies of them that this
    judgement did not have, or when it judged a check that this one could not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    why = _why_weaker(results.as_dict(), _read(path))
    if why:
        return f"{path} is kept, and this result is not written: {why}"
    partial = path.with_name(f"{RESULTS}.part")
    # A witness that JSON has no word for costs nobody the verdict.
    text = orjson.dumps(results.as_dict(), default=repr, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    partial.write_bytes(text)
    partial.replace(path)
    return ""


def _read(path: Path) -> dict[str, Any]:
    """Return what stands there; nothing when that cannot be understood, for then it tells nobody anything."""
    try:
        found = orjson.loads(path.read_bytes())
        findings = [dict(one) for one in found["findings"]]
        return {**found, "findings": findings, "figures": dict(found.get("figures", {}))}
    except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return {"findings": [], "figures": {}}


def _why_weaker(new: dict[str, Any], old: dict[str, Any]) -> str:
    if _has_history(old) and not _has_history(new):
        return "it judged the history as well"
    if _lacking(new) > _lacking(old):
        return "it judged stores that were not looked at now"
    if _earlier(new) < _earlier(old):
        return "it judged earlier copies of stores that were not looked at now"
    if unjudged := _not_judged_now(new, old):
        return f"it judged {', '.join(unjudged)}, which cannot be judged now"
    return ""


def _has_history(results: dict[str, Any]) -> bool:
    return any(one.get("check") == "A1" for one in results["findings"])


def _lacking(results: dict[str, Any]) -> int:
    """Return how many stores were promised, and not judged."""
    found = _by_check(results)
    guard = found.get(_GUARD)
    if guard is not None:
        return int(guard.get("count", 0)) if guard.get("verdict") in _LOOKED else _ALL_LACKING
    # Of a result that is older than the guard: B4 looks at each store that was read.
    return 0 if found.get("B4", {}).get("verdict") in _LOOKED else _ALL_LACKING


def _earlier(results: dict[str, Any]) -> int:
    """Return how many earlier copies of stores were judged: checks that they serve may have other evidence too."""
    return sum(int(log.get("earlier", 0)) for log in results["figures"].get("logs", ()))


def _not_judged_now(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """Return the checks that the old result judged, and the new one, which has them too, did not."""
    before = _by_check(old)
    # Older than the guard, a check was valid also when it had nothing to look at.
    if _GUARD not in before:
        return []
    return [name for name, one in _by_check(new).items() if _is_judged(before.get(name, {})) and not _is_judged(one)]


def _is_judged(finding: dict[str, Any]) -> bool:
    # An unknown that counts cases has looked, and found too little or something that must not be.
    return finding.get("verdict") in _JUDGED or (
        finding.get("verdict") == Verdict.UNKNOWN and finding.get("count", 0) > 0
    )


def _by_check(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(one.get("check")): one for one in results["findings"]}
