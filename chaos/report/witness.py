"""A witness with what stands around it: operations on the same queue, the faults near, the bytes of each replica."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from chaos.report.facts import Band, ended
from chaos.report.html import Html, tag
from chaos.report.parts import folded, note, pairs_list, table
from chaos.report.run import Reported
from pipeline.history.folder import RunFolder
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Op
from pipeline.logs.member_files import MemberLogBytes
from remoting.topics import RAFT_TOPIC
from store.errors import StoreError
from store.recovery.inspect import Gap, StoreFolder

# Of a check, so many witnesses are shown whole; results.json has more.
WITNESSES_SHOWN = 5
# Of each operation of a witness, so many are shown before and after it on its queue.
AROUND = 4
OPERATIONS_MAX = 24
# A fault that was under way, or over for less than this, may have to do with it.
NEAR_S = 5.0
POSITIONS_MAX = 2
BYTES_SHOWN = 96
BODY_SHOWN = 80
COLUMNS = ("at", "after", "process", "operation", "where", "message", "offset", "answered by", "end")

_NAMES_OPERATIONS = re.compile(r"(^|_)ops?($|_)")
_NAMES_POSITIONS = re.compile(r"(^|_)positions?($|_)")


class Witnesses:
    """Makes the pages of witnesses of one run; what it looks things up in is built when the first is asked for."""

    def __init__(self, run: Reported) -> None:
        self._run = run

    def of(self, finding: Finding) -> Html | None:
        """Return a finding's witnesses, the first of them open; None when it has none."""
        if not finding.witnesses:
            return None
        shown = finding.witnesses[:WITNESSES_SHOWN]
        parts: list[object] = [self._one(number, witness) for number, witness in enumerate(shown, 1)]
        if max(finding.count, len(finding.witnesses)) > len(shown):
            parts.append(note(f"{len(shown)} of {max(finding.count, len(shown)):,}; results.json holds more."))
        return tag("div", *parts)

    def _one(self, number: int, witness: Mapping[str, Any]) -> Html:
        about = [op for op in (self._by_number.get(n) for n in _numbers(witness, _NAMES_OPERATIONS)) if op is not None]
        parts: list[object] = [pairs_list((key, _words(value)) for key, value in witness.items())]
        if about:
            parts += [tag("h3", "Operations around it"), self._operations(about)]
            near = self._faults(about)
            parts.append(note(f"Faults near: {near}" if near else "No fault near."))
        positions = [*_numbers(witness, _NAMES_POSITIONS), *(op.position for op in about)]
        for position in [p for p in dict.fromkeys(positions) if p != UNKNOWN][:POSITIONS_MAX]:
            parts += self._stored(position)
        words = ", ".join(f"{key} {_words(value)}" for key, value in list(witness.items())[:4])
        return folded(f"Witness {number}: {words}", *parts, open_=number == 1)

    def _operations(self, about: Sequence[Op]) -> Html:
        kept = {op.op: op for op in about}
        for op in about:
            near = self._by_place[_place(op)]
            low = bisect_left(near, op.invoked, key=_invoked)
            high = bisect_right(near, op.invoked, key=_invoked)
            for other in near[max(low - AROUND, 0) : high + AROUND]:
                if len(kept) < OPERATIONS_MAX:
                    kept.setdefault(other.op, other)
        shown = sorted(kept.values(), key=lambda op: (op.invoked, op.op))
        marked = {op.op for op in about}
        return table(COLUMNS, [self._row(op) for op in shown], about=[op.op in marked for op in shown])

    def _row(self, op: Op) -> tuple[str, ...]:
        at = self._run.facts.at
        message = f"{op.writer}:{op.counter}" + (f" try {op.attempt}" if op.attempt else "")
        lasted = "" if op.completed == UNKNOWN else f"{(op.completed - op.invoked) / 1e6:,.1f} ms"
        where = f"{op.topic}:{op.queue}" if op.topic else ""
        return (
            f"{at(op.invoked):.4f} s",
            lasted,
            str(op.process),
            f"{op.op} {op.act}",
            f"{where} {op.group}".strip(),
            message if op.writer != UNKNOWN else "",
            "" if op.offset == UNKNOWN else str(op.offset),
            f"{op.leader or op.address}" + (f" term {op.term}" if op.term != UNKNOWN else ""),
            f"{op.kind} {op.error}".strip(),
        )

    def _faults(self, about: Sequence[Op]) -> str:
        at = self._run.facts.at
        first, last = at(min(op.invoked for op in about)), at(max(ended(op) for op in about))
        near = (
            f"{band.fault.fault}. {_fault_words(band)}"
            for band in self._run.facts.bands
            if band.start <= last and band.end + NEAR_S >= first
        )
        return "; ".join(near)

    def _stored(self, position: int) -> Iterable[Html]:
        # Members that hold the same share a place, so that who differs stands out.
        shown: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for folder in self._members:
            shown[stored_at(folder, position)].append(folder.name)
        if shown:
            yield tag("h3", f"What stands at position {position:,}")
        for (words, dump), members in shown.items():
            yield tag("div", tag("b", ", ".join(members)), " ", tag("span", words, class_="note"))
            yield tag("pre", dump)

    @cached_property
    def _members(self) -> list[Path]:
        return RunFolder(self._run.folder).members()

    @cached_property
    def _by_number(self) -> dict[int, Op]:
        return {op.op: op for op in self._run.ops}

    @cached_property
    def _by_place(self) -> dict[tuple[str, int, str], list[Op]]:
        places: defaultdict[tuple[str, int, str], list[Op]] = defaultdict(list)
        for op in sorted(self._run.ops, key=lambda op: (op.invoked, op.op)):
            places[_place(op)].append(op)
        return places


def stored_at(folder: Path, position: int) -> tuple[str, str]:
    """Return what a store folder holds at a position of its log, in words and as a hexadecimal dump."""
    try:
        data = MemberLogBytes.of(folder).read(position, position + BYTES_SHOWN)
        found = next(iter(StoreFolder(folder).messages(position)), None)
    except (OSError, StoreError) as error:
        return f"cannot be read: {error}", ""
    if not data:
        return "the log does not reach so far, or was cut", ""
    if found is None or isinstance(found, Gap):
        words = "no message" if found is None else f"no intact record: {found.reason}"
    elif found.physical_offset != position:
        words = "no message begins here"
    elif found.topic == RAFT_TOPIC:
        words = f"the control record of Raft entry {found.queue_offset}"
    else:
        body = found.body.decode("utf-8", "backslashreplace")[:BODY_SHOWN]
        words = f"{found.topic}:{found.queue_id}@{found.queue_offset}, {len(found.body)} bytes: {body}"
    return words, hex_dump(data, position)


def hex_dump(data: bytes, start: int) -> str:
    """Return lines of sixteen bytes: position, hexadecimal, characters."""
    lines = []
    for at in range(0, len(data), 16):
        piece = data[at : at + 16]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{start + at:>12}  {piece.hex(' '):<47}  {characters}")
    return "\n".join(lines)


def _place(op: Op) -> tuple[str, int, str]:
    return (op.topic, op.queue, op.broker)


def _invoked(op: Op) -> int:
    return op.invoked


def _fault_words(band: Band) -> str:
    return f"{band.fault.name} ({band.fault.target}), {band.start:.1f} s to {band.end:.1f} s"


def _numbers(witness: Mapping[str, Any], names: re.Pattern[str]) -> list[int]:
    """Whole numbers under the keys that name operations or positions, alone or in lists."""
    found: list[int] = []
    for key, value in witness.items():
        if names.search(key):
            found += [n for n in (value if isinstance(value, list | tuple) else [value]) if isinstance(n, int)]
    return found


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_words(inner) for inner in value)
    return str(value)
