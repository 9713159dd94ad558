"""What a run says of itself: whether it came to its end, and what its own workloads must find."""

from typing import Any

from pipeline.bank import check_bank
from pipeline.results import Finding, Verdict
from pipeline.run import RunFolder

RUN_CHECK = "V-run"


def own_findings(run: RunFolder) -> tuple[Finding, ...]:
    """Return the findings of a run's folder that no history can tell; raises HistoryError."""
    return (_whole(run.info()), check_bank(run.ops(), run.reads()))


def _whole(info: dict[str, Any]) -> Finding:
    """Unknown unless the run healed, closed and played its schedule."""
    closings = info.get("closings", {})
    wrong = [f"closing {name}: {told}" for name, told in sorted(closings.items()) if told is not True]
    if not closings:
        wrong.append("the run ended before its closings")
    wrong += [f"{key}: {info[key]}" for key in ("not_healed", "cut_short", "crashed") if info.get(key)]
    verdict = Verdict.UNKNOWN if wrong else Verdict.VALID
    witnesses = tuple({"what": text} for text in wrong)
    text = "faults were healed, the cluster settled, and everything was read" if not wrong else "; ".join(wrong)
    return Finding(RUN_CHECK, "the run came to its end", verdict, len(wrong), text, witnesses)
