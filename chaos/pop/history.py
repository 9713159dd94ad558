"""What a POP run has left, as values: read from the files of its processes, or made by a test.

Times that end in `_ms` are of the time of day, as in handles; the others are of the clock that never goes back.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.apps.history import AppCall, AppHistory, ProcessFile, Send, take_event
from chaos.apps.journal import Line, Tail
from chaos.pop.consuming import ACK
from chaos.pop.driver import APPS, EVENTS
from chaos.pop.plan import PopPlan, read_pop_plan


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a consumer asked for a message. `told_ms` None: it never heard, for it was killed or cancelled before."""

    what: str
    asked: float
    asked_ms: int
    delay_ms: int = 0
    told: float | None = None
    told_ms: int | None = None
    ok: bool = False
    pop_ms: int = 0
    """Of the handle that a message has since it was put off or given back, with the next one."""
    invisible_ms: int = 0


@dataclass(slots=True)
class PopHold:
    """A message in a consumer's hands; `record` is where it is stored: topic's kind, broker, queue and offset."""

    id: str
    app: str
    got_ms: int
    pop_ms: int
    invisible_ms: int
    record: str
    again: int
    """How often it came before, as its broker counts."""
    settlements: list[Settlement] = field(default_factory=list)

    def tried_to_ack(self) -> bool:
        """Tell whether it may have been acknowledged."""
        return any(one.what == ACK for one in self.settlements)


@dataclass
class PopHistory:
    """All of a run; `processes` has sends, calls, endings and events."""

    plan: PopPlan
    processes: AppHistory
    holds: list[PopHold] = field(default_factory=list)
    leads: list[tuple[float, int]] = field(default_factory=list)
    """(when a term was seen first, the term)."""
    clocks: list[tuple[float, int]] = field(default_factory=list)
    """(the clock that never goes back, the time of day) of the same moments, some ms apart at most."""

    @property
    def over(self) -> bool:
        """Whether the run came to its end."""
        return self.processes.over

    @property
    def sends(self) -> list[Send]:
        """What was sent, and what the producer was told."""
        return self.processes.sends


def read_pop_history(folder: Path) -> PopHistory:
    """Read a run's folder."""
    plan = read_pop_plan(folder)
    history = PopHistory(plan, AppHistory(plan.apps, over=False))
    for line in Tail(folder / EVENTS).lines():
        if line["e"] == "term":
            history.leads.append((line["at"], line["term"]))
        else:
            take_event(history.processes, line)
    for path in sorted((folder / APPS).glob("*.jsonl")):
        lines = list(Tail(path).lines())
        ProcessFile(path.stem, history.processes).take(lines)
        _PoppingFile(path.stem, history).take(lines)
    return history


class _PoppingFile:
    """What is of POP in the file of one process."""

    def __init__(self, app: str, history: PopHistory) -> None:
        self._app = app
        self._history = history
        self._holds: dict[int, PopHold] = {}
        self._asked: dict[int, Line] = {}

    def take(self, lines: Iterable[Line]) -> None:
        """Add to the history what the process wrote."""
        for line in lines:
            match line["e"]:
                case "popped":
                    self._history.clocks.append((line["at"], line["ms"]))
                    self._popped(line)
                case "settling":
                    self._asked[line["n"]] = line
                case "settled":
                    self._settled(self._asked.pop(line["n"]), line)
        for number, asked in self._asked.items():
            never = Settlement(asked["what"], asked["at"], asked["ms"], asked["delay_ms"])
            self._holds[number].settlements.append(never)

    def _popped(self, line: Line) -> None:
        for place, (one, handle) in enumerate(zip(line["ids"], line["handles"], strict=True)):
            _start, pop_ms, invisible_ms, _revive, kind, broker, queue, offset = handle.split(" ")
            record = f"{kind} {broker} {queue} {offset}"
            hold = PopHold(
                one, self._app, line["ms"], int(pop_ms), int(invisible_ms), record, line["again"][place]
            )  # fmt: skip
            self._holds[line["n"] + place] = hold
            self._history.holds.append(hold)

    def _settled(self, asked: Line, told: Line) -> None:
        assert told["handle"] or told["what"] == ACK or not told["ok"], "what was put off has a handle"
        pop_ms, invisible_ms = map(int, told["handle"].split(" ")[1:3]) if told["handle"] else (0, 0)
        self._holds[told["n"]].settlements.append(
            Settlement(
                asked["what"], asked["at"], asked["ms"], asked["delay_ms"], told["at"], told["ms"], told["ok"],
                pop_ms, invisible_ms,
            )
        )  # fmt: skip
        self._history.processes.calls.append(
            AppCall(
                self._app, told["what"], told["began"], told["took"], told["deadline"], told["stalled"], told["error"]
            )
        )
