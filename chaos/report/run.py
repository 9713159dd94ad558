"""A run as its reports see it: read from its folder, whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from chaos.report.facts import Facts, gather
from pipeline.history.folder import RunFolder
from pipeline.history.results import SCHEMA, Finding, Results, Verdict
from pipeline.history.rows import Act, Fault, Kind, Op

RESULTS = "results.json"


class ReportError(Exception):
    """A folder that no report can be made of; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What was run, what came out, and what is drawn of it."""

    folder: Path
    info: dict[str, Any]
    results: Results
    facts: Facts
    ops: Sequence[Op]
    faults: Sequence[Fault]

    @property
    def scenario(self) -> str:
        """Its name."""
        return str(self.info.get("scenario", self.folder.name))

    @property
    def seed(self) -> str:
        """The seed that everything random came from."""
        return str(self.info.get("seed", "?"))

    @property
    def named(self) -> str:
        """Its name, seed, and whether its cluster was secured, for headlines."""
        return f"{self.scenario}, seed {self.seed}{', secured' if self.secured else ''}"

    @property
    def secured(self) -> bool:
        """Whether all servers took signed requests and TLS only; that they did is the check V-secured."""
        return "secured" in self.info

    @property
    def sends(self) -> int:
        """How many attempts to send there were."""
        return self.facts.counts[Act.SEND].total() if Act.SEND in self.facts.counts else 0

    @property
    def acknowledged(self) -> int:
        """How many of them were acknowledged."""
        return self.facts.counts[Act.SEND][Kind.OK] if Act.SEND in self.facts.counts else 0

    @property
    def silence_s(self) -> float:
        """Longest time without an acknowledged send: what the judge found, or else what the history shows."""
        found = self.results.figures.get("longest_silence_s")
        return self.facts.silence_s if found is None else float(found)

    @property
    def replay(self) -> str:
        """The command that fires the same faults again; to be run in the run's folder."""
        return str(
            self.info.get("replay", f"raftmq chaos run {self.scenario} --seed {self.seed} --schedule schedule.json")
        )

    @property
    def recheck(self) -> str:
        """The command that judges this run again; to be run in the run's folder."""
        return str(self.info.get("recheck", "raftmq chaos recheck ."))

    def found(self, *verdicts: Verdict) -> list[Finding]:
        """Return the findings with one of some verdicts."""
        return [finding for finding in self.results.findings if finding.verdict in verdicts]


@dataclass(frozen=True, slots=True)
class NotRun:
    """A scenario without a history: skipped, for this machine lacks its means; or unknown, for it did not come up."""

    scenario: str
    why: str
    verdict: Verdict = Verdict.SKIPPED


def read_run(folder: Path) -> Reported:
    """Read a run; raises ReportError when the folder is none or was not judged."""
    results = read_results(folder)
    run = RunFolder(folder)
    ops, faults = run.ops(), run.faults()
    return Reported(folder, dict(run.info()), results, gather(ops, run.reads(), faults, run.looks()), ops, faults)


def read_results(folder: Path) -> Results:
    """Read results.json; raises ReportError when there is none, or one of a later version."""
    path = folder / RESULTS
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise ReportError(
            f"{path} does not exist: `raftmq chaos recheck {folder}` judges a run and writes it"
        ) from None
    except orjson.JSONDecodeError as error:
        raise ReportError(f"{path} is no JSON ({error}): `raftmq chaos recheck {folder}` writes it again") from error
    if document.get("schema", 0) > SCHEMA:
        raise ReportError(f"{path} has schema {document['schema']}, this raftmq reads up to {SCHEMA}: take a newer one")
    findings = tuple(_finding(found) for found in document["findings"])
    return Results(findings, document.get("figures", {}))


def _finding(found: dict[str, Any]) -> Finding:
    return Finding(
        found["check"],
        found["title"],
        Verdict(found["verdict"]),
        found.get("count", 0),
        found.get("text", ""),
        tuple(found.get("witnesses", ())),
    )
