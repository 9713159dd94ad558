"""What a run has left, as values: read from the files of its processes, or made by a test."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from chaos.apps.driver import APPS, EVENTS, PLAN
from chaos.apps.journal import Line, Tail
from chaos.apps.names import BROADCAST
from chaos.apps.plan import AppPlan


@dataclass(frozen=True, slots=True)
class AppCall:
    """A call of the library by an application. `stalled`: for so long its process did not run in time. Seconds."""

    app: str
    what: str
    began: float
    took: float
    deadline: float
    stalled: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Messages that were sent in one call, and what the application was told."""

    app: str
    topic: str
    ids: tuple[str, ...]
    fate: str
    at: float = 0.0
    """When it was told, seconds."""


@dataclass(frozen=True, slots=True)
class AppFault:
    """A fault of the plan, from before it was inflicted until it was made good again; seconds."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class AppDelivery:
    """Messages that came to an application. `until`: when it was done with them; None: it was killed before."""

    app: str
    reader: str
    at: float
    until: float | None
    ok: bool
    queue: str
    offsets: tuple[int, ...]
    ids: tuple[str, ...]
    again: tuple[int, ...]
    """How often the application has refused each of them before."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Positions that a polling application stored by itself; `until` None: it was killed meanwhile."""

    app: str
    reader: str
    began: float
    until: float | None
    ok: bool
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ending:
    """What a process had of its client when that was closed."""

    app: str
    at: float
    started: bool
    tasks: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class AppEvent:
    """Something that was done, to the cluster (`app` is empty) or to one process; `gone`: when that was surely over."""

    at: float
    kind: str
    app: str = ""
    app_kind: str = ""
    reader: str = ""
    gone: float = 0.0
    code: int = 0
    ordered: str = ""


@dataclass
class AppHistory:
    """All of a run."""

    plan: AppPlan
    over: bool = True
    calls: list[AppCall] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    deliveries: list[AppDelivery] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)
    """(process, what its loop complained of)."""
    events: list[AppEvent] = field(default_factory=list)
    faults: list[AppFault] = field(default_factory=list)


def read_history(folder: Path) -> AppHistory:
    """Read a run's folder."""
    history = AppHistory(AppPlan.from_dict(orjson.loads((folder / PLAN).read_bytes())), over=False)
    for line in Tail(folder / EVENTS).lines():
        take_event(history, line)
    for path in sorted((folder / APPS).glob("*.jsonl")):
        ProcessFile(path.stem, history).take(Tail(path).lines())
    history.deliveries.sort(key=lambda delivery: delivery.at)
    return history


def take_event(history: AppHistory, line: Line) -> None:
    """Add to the history what the run's own file says, but for what is for people."""
    match line["e"]:
        case "over":
            history.over = True
        case "fault":
            history.events.append(AppEvent(line["at"], line["kind"]))
        case "planned":
            history.faults.append(AppFault(line["fault"], line["at"], math.inf))
        case "healed":
            history.faults.append(replace(history.faults.pop(), ended=line["at"]))
        case "drain" | "drained":
            pass
        case kind:
            fields = {name: line[name] for name in ("app", "reader", "gone", "code", "ordered") if name in line}
            history.events.append(AppEvent(line["at"], kind, app_kind=line["kind"], **fields))


class ProcessFile:
    """The file of one process, line after line."""

    def __init__(self, app: str, history: AppHistory) -> None:
        self._app = app
        self._history = history
        self._reader = ""
        self._started = False
        self._got: dict[int, Line] = {}
        self._committing: Line | None = None

    def take(self, lines: Iterable[Line]) -> None:
        """Add to the history what the process wrote."""
        for line in lines:
            self._take(line)
        # It was killed while it was busy with these.
        for line in self._got.values():
            self._deliver(line, None, ok=False)
        if self._committing is not None:
            line = self._committing
            self._commit(line["at"], None, line["positions"], ok=False)

    def _take(self, line: Line) -> None:
        history, app = self._history, self._app
        match line["e"]:
            case "started":
                self._started = True
            case "consumes":
                group = line["group"]
                self._reader = f"{group}/{app.rpartition('-')[0]}" if group == BROADCAST else group
            case "call":
                history.calls.append(self._call(line, line["what"]))
            case "sent":
                history.sends.append(Send(app, line["topic"], tuple(line["ids"]), line["fate"], line["at"]))
                history.calls.append(self._call(line, "send"))
            case "got":
                self._got[line["n"]] = line
            case "done":
                self._deliver(self._got.pop(line["n"]), line["at"], ok=line["ok"])
            case "committing":
                self._committing = line
            case "commit":
                self._committing = None
                self._commit(line["began"], line["at"], line["positions"], ok=line["ok"])
            case "complaint":
                history.complaints.append((app, line["text"]))
            case "closed":
                tasks, sockets, threads = (tuple(line[what]) for what in ("tasks", "connections", "threads"))
                ending = Ending(app, line["at"], self._started, tasks, sockets, threads, line["error"])
                history.endings.append(ending)

    def _call(self, line: Line, what: str) -> AppCall:
        return AppCall(
            self._app, what, line["began"], line["took"], line["deadline"], line["stalled"], str(line.get("error", ""))
        )

    def _deliver(self, line: Line, until: float | None, *, ok: bool) -> None:
        offsets, ids, again = (tuple(line[what]) for what in ("offsets", "ids", "again"))
        self._history.deliveries.append(
            AppDelivery(self._app, self._reader, line["at"], until, ok, line["queue"], offsets, ids, again)
        )

    def _commit(self, began: float, until: float | None, positions: Mapping[str, int], *, ok: bool) -> None:
        self._history.commits.append(Commit(self._app, self._reader, began, until, ok, positions))
