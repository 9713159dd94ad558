"""JUnit's XML of runs, as CI servers read it: a suite for each scenario, a case for each check.

Invalid is a failure with its first witnesses, unknown an error, skipped is skipped; what was only counted passes, with
its count as output.
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chaos.report.html import printable
from chaos.report.run import NotRun, Reported
from chaos.report.text import headline, witness_words
from pipeline.history.results import Finding, Verdict

WITNESSES_SHOWN = 5


def junit(runs: Sequence[Reported], not_run: Sequence[NotRun] = ()) -> bytes:
    """Return the XML file."""
    root = Element("testsuites", name="raftmq chaos")
    for run in runs:
        root.append(_suite(run))
    for one in not_run:
        root.append(_suite_without_history(one))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written


def _suite(run: Reported) -> Element:
    suite = Element("testsuite")
    findings = run.results.findings
    counts = {
        "tests": len(findings),
        "failures": len(run.found(Verdict.INVALID)),
        "errors": len(run.found(Verdict.UNKNOWN)),
        "skipped": len(run.found(Verdict.SKIPPED)),
    }
    _set(suite, name=run.scenario, time=f"{run.facts.seconds:.3f}", **{key: str(n) for key, n in counts.items()})
    properties = SubElement(suite, "properties")
    told = (("seed", run.seed), ("secured", str(run.secured).lower()), ("replay", run.replay), ("recheck", run.recheck))
    for key, value in told:
        _element(properties, "property", name=key, value=value)
    for finding in findings:
        _case(suite, run, finding)
    return suite


def _suite_without_history(one: NotRun) -> Element:
    suite = Element("testsuite")
    skipped = one.verdict == Verdict.SKIPPED
    counts = {"tests": "1", "failures": "0", "errors": str(int(not skipped)), "skipped": str(int(skipped))}
    _set(suite, name=one.scenario, **counts)
    case = _element(suite, "testcase", classname=f"chaos.{one.scenario}", name="run", time="0")
    _element(case, "skipped" if skipped else "error", message=one.why)
    return suite


def _case(suite: Element, run: Reported, finding: Finding) -> None:
    name = f"{finding.check} {finding.title}"
    case = _element(suite, "testcase", classname=f"chaos.{run.scenario}", name=name, time="0")
    words = headline(finding)
    shown = [witness_words(witness) for witness in finding.witnesses[:WITNESSES_SHOWN]]
    if finding.verdict == Verdict.INVALID:
        told = _element(case, "failure", message=words, type=finding.check)
        told.text = printable("\n".join([*shown, f"replay: {run.replay}", f"judge again: {run.recheck}"]))
    elif finding.verdict == Verdict.UNKNOWN:
        _element(case, "error", message=words, type=finding.check).text = printable("\n".join(shown))
    elif finding.verdict == Verdict.SKIPPED:
        _element(case, "skipped", message=finding.text)
    elif finding.verdict == Verdict.INFO and finding.count:
        _element(case, "system-out").text = printable(words)


def _element(parent: Element, tag: str, /, **attributes: str) -> Element:
    made = SubElement(parent, tag)
    _set(made, **attributes)
    return made


def _set(element: Element, **attributes: str) -> None:
    # XML has no way at all to write most control characters: they are shown as escapes.
    for key, value in attributes.items():
        element.set(key, printable(value))
