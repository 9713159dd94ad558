"""A run's results.json: written whole or not at all, and never over a result that rests on more evidence."""

from pathlib import Path
from typing import Any

import orjson

from pipeline.history.folder import RESULTS
from pipeline.history.results import Results, Verdict

# More stores than any run has.
_ALL_LACKING = 2**31
_LOOKED = {str(Verdict.VALID), str(Verdict.INVALID), str(Verdict.INFO), str(Verdict.UNKNOWN)}


def keep_results(folder: Path, results: Results) -> str:
    """Write results.json into a folder, which is made; returns why the one that is there was kept, "" when it was not.

    What is there is kept when it looked at more: at a history, or at stores, that this judgement did not have.
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
        return {**found, "findings": [dict(one) for one in found["findings"]]}
    except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return {"findings": []}


def _why_weaker(new: dict[str, Any], old: dict[str, Any]) -> str:
    if _has_history(old) and not _has_history(new):
        return "it judged the history as well"
    if _lacking(new) > _lacking(old):
        return "it judged stores that were not looked at now"
    return ""


def _has_history(results: dict[str, Any]) -> bool:
    return any(one.get("check") == "A1" for one in results["findings"])


def _lacking(results: dict[str, Any]) -> int:
    """Return how many stores were promised, and not judged."""
    found = {one.get("check"): one for one in results["findings"]}
    guard = found.get("V8")
    if guard is not None:
        return int(guard.get("count", 0)) if guard.get("verdict") in _LOOKED else _ALL_LACKING
    # Of a result that is older than the guard: B4 looks at each store that was read.
    return 0 if found.get("B4", {}).get("verdict") in _LOOKED else _ALL_LACKING
