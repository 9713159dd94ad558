"""What a run came to in words: a line for terminals and logs, Markdown for the summary page of a CI."""

import re
from collections.abc import Sequence

from chaos.report.html import printable
from chaos.report.run import NotRun, Reported
from pipeline.history.results import Finding, Verdict, worst

SIGNS = {
    Verdict.VALID: "✅",
    Verdict.INVALID: "❌",
    Verdict.UNKNOWN: "❔",
    Verdict.SKIPPED: "⏭️",
    Verdict.INFO: "ℹ️",  # noqa: RUF001  (the sign is meant)
}
# A summary page is limited to 1 MiB by GitHub, and people read less.
FINDINGS_MAX = 12
WITNESS_CHARACTERS_MAX = 300


def sentence(run: Reported) -> str:
    """Return the verdict and what it rests on, in one line."""
    verdict = run.results.verdict
    facts = run.facts
    rest = (
        f"{run.acknowledged:,} of {run.sends:,} sends acknowledged, {len(run.faults)} faults, "
        f"{facts.leader_changes} changes of leader, longest silence {run.silence_s:.2f} s"
    )
    how = f"seed {run.seed}, secured" if run.secured else f"seed {run.seed}"
    return f"{str(verdict).upper()} {run.scenario} ({how}): {reason(run)}; {rest}"


def reason(run: Reported) -> str:
    """Return why the verdict is what it is."""
    verdict = run.results.verdict
    decisive = run.found(verdict) if verdict in {Verdict.INVALID, Verdict.UNKNOWN} else []
    if decisive:
        first, more = decisive[0], len(decisive) - 1
        return headline(first) + (f", and {more} more" if more else "")
    if verdict == Verdict.UNKNOWN:
        return "nothing was judged"
    return f"all {len(run.found(Verdict.VALID))} checks that were judged hold"


def headline(finding: Finding) -> str:
    """Return a finding in some words."""
    text = one_line(finding.text)
    count = f": {finding.count:,}" if finding.count else ""
    return f"{finding.check} {finding.title}{count}" + (f" ({text})" if text else "")


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters."""
    return printable(" ".join(text.split()))


def witness_words(witness: dict[str, object]) -> str:
    """Return a witness as ``key value, key value``, cut where nobody reads on."""
    words = ", ".join(f"{key} {one_line(str(value))}" for key, value in witness.items())
    return words if len(words) <= WITNESS_CHARACTERS_MAX else f"{words[:WITNESS_CHARACTERS_MAX]}…"


def overall(runs: Sequence[Reported], not_run: Sequence[NotRun] = ()) -> Verdict:
    """Return the worst verdict; what was skipped makes it no worse, but of no run at all it is unknown."""
    broken = [one.verdict for one in not_run if one.verdict != Verdict.SKIPPED]
    verdicts = [run.results.verdict for run in runs] + broken
    return worst(verdicts) if verdicts else Verdict.UNKNOWN


def summary(runs: Sequence[Reported], not_run: Sequence[NotRun] = ()) -> str:
    """Return Markdown for $GITHUB_STEP_SUMMARY; everything that came out of a run is escaped."""
    verdict = overall(runs, not_run)
    lines = [f"## {SIGNS[verdict]} raftmq chaos: {verdict}", ""]
    lines += ["| scenario | seed | verdict | acknowledged | faults | leader changes | longest silence | p99 |"]
    lines += ["|---|---|---|--:|--:|--:|--:|--:|"]
    lines += [_row(run) for run in runs]
    lines += [
        f"| {_md(one.scenario)} | | {SIGNS[one.verdict]} {one.verdict}: {_md(one.why)} | | | | | |" for one in not_run
    ]
    for run in runs:
        lines += _troubles(run)
    return "\n".join(lines) + "\n"


def _row(run: Reported) -> str:
    verdict = run.results.verdict
    facts = run.facts
    cells = (
        _md(f"{run.scenario} (secured)" if run.secured else run.scenario),
        _md(run.seed),
        f"{SIGNS[verdict]} {verdict}",
        f"{run.acknowledged:,}",
        str(len(run.faults)),
        str(facts.leader_changes),
        f"{run.silence_s:.2f} s",
        f"{facts.quantiles_ms['p99']:.1f} ms",
    )
    return f"| {' | '.join(cells)} |"


def _troubles(run: Reported) -> list[str]:
    bad = run.found(Verdict.INVALID) + run.found(Verdict.UNKNOWN)
    if not bad:
        return []
    lines = ["", f"### {_md(run.scenario)}: {_md(reason(run))}", ""]
    for finding in bad[:FINDINGS_MAX]:
        lines.append(f"- {SIGNS[finding.verdict]} **{_md(finding.check)}** {_md(headline(finding))}")
        lines += [f"  - {_md(witness_words(witness))}" for witness in finding.witnesses[:2]]
    if len(bad) > FINDINGS_MAX:
        lines.append(f"- … and {len(bad) - FINDINGS_MAX} more, see report.html")
    return [*lines, "", "In the run's folder:", "", "```sh", _code(run.replay), _code(run.recheck), "```"]


def _md(text: str) -> str:
    """Escape what Markdown, its tables and the HTML in it would take for their own."""
    shown = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#!|~@])", r"\\\1", shown)


def _code(command: str) -> str:
    return one_line(command).replace("```", "")
