"""What a run says of itself: whether it came to its end, whether all members start again, what its workloads find."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chaos.faults.pairs import PROMOTIONS
from pipeline.history.bank import check_bank
from pipeline.history.folder import RunFolder
from pipeline.history.parquet import HistoryError
from pipeline.history.replies import WORKLOAD as REQUESTS
from pipeline.history.replies import check_replies
from pipeline.history.results import Finding, Verdict
from pipeline.history.timers import WORKLOAD as TIMERS
from pipeline.history.timers import check_timers
from pipeline.judge import judge_stores
from store.files.checkpoint import CHECKPOINT_NAME, load_checkpoint

RUN_CHECK, START_CHECK, LEVEL_CHECK, TIME_CHECK = "V-run", "M-start", "M-level", "M-time"
COPIES_CHECK = "V-copies"
# In run.json: when → what strangers were told at each port (chaos/site/doors.py); without it a run was plain.
SECURED = "secured"
SECURED_CHECK, SECURED_TEXT = "V-secured", "who does not sign, or speaks no TLS, was refused everywhere"
DOORS_TRIED = 2
COPIES_TEXT = "no copy of the log was thrown away unasked"
_START, _LEVEL, _TIME = (
    "every member starts, and is whole",
    "started again, all replicas are equal and queues are what the log makes of them",
    "nothing expired or was stamped before its time",
)
# A store time beyond the moment of the checkpoint that tells it, by so many seconds: from a clock that nobody shares.
AHEAD_S = 30.0

# Which checks of logs hold a store against itself and the others alone: no history tells them what was asked for.
LOG_CHECKS = ("B1", "B3", "B4", "B7", "B11", "B13")

Witness = dict[str, Any]


def own_findings(run: RunFolder) -> tuple[Finding, ...]:
    """Return the findings of a run's folder that no history can tell; raises HistoryError."""
    info, ops, reads, faults = run.info(), run.ops(), run.reads(), run.faults()
    workloads = info.get("workloads", ())
    return (
        _whole(info),
        _starts(info),
        _level(run, info),
        _time(run),
        *_copies(info),
        *_secured(info),
        check_bank(ops, reads),
        check_timers(ops, reads, faults, run.promises(), asked=TIMERS in workloads),
        check_replies(ops, faults, run.beats(), run.promises(), asked=REQUESTS in workloads),
    )


def _judged(check: str, title: str, wrong: list[Witness], good: str) -> Finding:
    verdict = Verdict.INVALID if wrong else Verdict.VALID
    text = "; ".join(dict.fromkeys(str(one["why"]) for one in wrong)) if wrong else good
    return Finding(check, title, verdict, len(wrong), text, tuple(wrong))


def _starts(info: Mapping[str, Any]) -> Finding:
    """Every member served and was whole again after each fault, and when all were started at the end, and stopped.

    Invalid also when one ended by itself, or lacked in the end what others hold. Unknown when nobody tried.
    """
    wrong: list[Witness] = [{"why": info["not_whole"]}] if info.get("not_whole") else []
    starts = info.get("starts")
    for name, facts in sorted(starts["members"].items()) if starts else ():
        why = _why_not(facts)
        if why:
            wrong.append({"member": name, "why": f"{name} {why}", **facts})
    if not wrong and starts is None:
        if not info.get("fired"):
            return Finding(START_CHECK, _START, Verdict.SKIPPED, 0, "nothing was broken")
        return Finding(START_CHECK, _START, Verdict.UNKNOWN, 0, "the members were not started again at the end")
    return _judged(START_CHECK, _START, wrong, "all were killed at the end, started, and stopped")


def _why_not(facts: Mapping[str, Any]) -> str:
    if facts["ended"] is not None:
        return f"ended with {facts['ended']} when it was started at the end"
    if not facts["ready"]:
        return f"did not serve {facts['seconds']} s after it was started at the end"
    if not facts["whole"]:
        return f"was not whole {facts['seconds']} s after it was started at the end"
    return f"stopped with {facts['stopped']} in the end" if facts["stopped"] != 0 else ""


def _level(run: RunFolder, info: Mapping[str, Any]) -> Finding:
    """Of a Raft group: all members got level, and their stores, stopped in good order, pass the checks of logs.

    Their checkpoints vouch for all of log and queues then, so that nothing at their ends is left unjudged.
    """
    starts, folders = info.get("starts"), run.after()
    if starts is None or not str(info["mode"]).startswith("raft"):
        return Finding(LEVEL_CHECK, _LEVEL, Verdict.SKIPPED, 0, "no Raft group was started again")
    if not run.members() and not folders:
        return Finding(LEVEL_CHECK, _LEVEL, Verdict.SKIPPED, 0, "the stores were removed")
    if len(folders) < len(starts["members"]):
        return Finding(LEVEL_CHECK, _LEVEL, Verdict.UNKNOWN, 0, "the stores of members that were started are not there")
    if any(_why_not(facts) for facts in starts["members"].values()):
        return Finding(LEVEL_CHECK, _LEVEL, Verdict.UNKNOWN, 0, f"not all members started: see {START_CHECK}")
    wrong: list[Witness] = [] if starts["level"] else [{"why": "the members did not get level"}]
    for folder in folders:
        known = load_checkpoint(folder)
        if min(known.flushed, known.dispatched) < starts["end"]:
            positions = {"flushed": known.flushed, "dispatched": known.dispatched, "end": starts["end"]}
            wrong.append({"member": folder.name, "why": f"{folder.name} vouches for less than all had", **positions})
    try:
        judged = judge_stores(folders, str(info["mode"]))
    except HistoryError as error:
        return Finding(LEVEL_CHECK, _LEVEL, Verdict.UNKNOWN, 0, str(error))
    found = [one for one in judged.findings if one.check in LOG_CHECKS]
    for one in found:
        if one.verdict == Verdict.INVALID:
            wrong += [{**witness, "why": _said(one, witness)} for witness in one.witnesses]
    open_ones = [f"{one.check}: {one.text}" for one in found if one.verdict == Verdict.UNKNOWN]
    if open_ones and not wrong:
        return Finding(LEVEL_CHECK, _LEVEL, Verdict.UNKNOWN, 0, "; ".join(open_ones))
    return _judged(LEVEL_CHECK, _LEVEL, wrong, f"{len(folders)} stores agree up to {starts['end']} and beyond")


def _said(found: Finding, witness: Witness) -> str:
    return f"{found.check}, {found.title}" + (f": {witness['why']}" if "why" in witness else "")


def _time(run: RunFolder) -> Finding:
    """Where nothing may expire, each log begins at 0; and in a group no store time is ahead of the clock of all."""
    promises, folders = run.promises(), run.members()
    if not folders or promises.retention:
        why = "there are no stores" if not folders else "old messages may be removed"
        return Finding(TIME_CHECK, _TIME, Verdict.SKIPPED, 0, why)
    raft = promises.mode.startswith("raft")
    wrong = [witness for folder in folders for witness in _out_of_time(folder, raft=raft)]
    return _judged(TIME_CHECK, _TIME, wrong, "all logs begin at 0")


def _out_of_time(folder: Path, *, raft: bool) -> Iterator[Witness]:
    files = sorted(int(path.name) for path in (folder / "commitlog").glob("*") if path.name.isdigit())
    if files and files[0] > 0:
        yield {"member": folder.name, "why": f"{folder.name} has removed everything below {files[0]}"}
    checkpoint = folder / CHECKPOINT_NAME
    if raft and checkpoint.exists():
        ahead_s = load_checkpoint(folder).log_timestamp / 1000 - checkpoint.stat().st_mtime
        if ahead_s > AHEAD_S:
            yield {"member": folder.name, "why": f"{folder.name} has stamped messages {ahead_s:.0f} s ahead of now"}


def _copies(info: dict[str, Any]) -> tuple[Finding, ...]:
    """Judge whether what other brokers had survived, where the run has faults that take a master's place."""
    proven = [one for one in info.get("fired", ()) if one["name"] in PROMOTIONS and one.get("effect")]
    lost = info.get("copy_lost")
    if not proven and not lost:
        return ()
    if lost:
        return (Finding(COPIES_CHECK, COPIES_TEXT, Verdict.INVALID, 1, lost, ({"what": lost},)),)
    kept = f"after {len(proven)} faults every broker held what the slave had when its master was lost or deposed"
    return (Finding(COPIES_CHECK, COPIES_TEXT, Verdict.VALID, len(proven), kept, ()),)


def _secured(info: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Of a run that was secured: strangers were refused at every port, before the load and after the last fault."""
    tried = info.get(SECURED)
    if tried is None:
        return ()
    taken = [f"{when}, {what}" for when, told in tried.items() for what in told["taken"]]
    if taken:
        wrong: tuple[Witness, ...] = tuple({"why": what} for what in taken)
        return (Finding(SECURED_CHECK, SECURED_TEXT, Verdict.INVALID, len(wrong), "; ".join(taken), wrong),)
    unclear = [f"{when}, {what}" for when, told in tried.items() for what in told["unclear"]]
    if len(tried) < DOORS_TRIED:
        unclear.append("the ports were not tried both at the beginning and in the end")
    if unclear:
        return (Finding(SECURED_CHECK, SECURED_TEXT, Verdict.UNKNOWN, len(unclear), "; ".join(unclear)),)
    count = sum(len(told["refused"]) for told in tried.values())
    return (Finding(SECURED_CHECK, SECURED_TEXT, Verdict.VALID, count, f"{count} strangers were refused"),)


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
