"""Real records to send: flights, other data that vega_datasets brings along, or the lines of a file.

vega_datasets names its flights but does not bundle them: its loader fetches them from the web. Where that fails, the
records that the package does bundle take their place (airports of the United States, hourly temperatures of Seattle and
San Francisco), and `Records.note` says so; nothing is ever made up.
"""

import csv
import io
import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

Source = Literal["auto", "flights", "bundled"]

WEB_TIMEOUT_S = 5.0  # a demonstration must not hang on a firewall that drops packets
LINES_MAX = 5_000_000  # all records are kept in memory to be compared with what comes back


class RecordsError(Exception):
    """The records asked for cannot be had; the text says what can be done."""


@dataclass(frozen=True, slots=True)
class Record:
    """One thing to send: `key` is the place it belongs to (origin airport, state, city) or the line's number."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Records:
    """What is sent: `title` names it for people, `note` says what was wanted and could not be had."""

    title: str
    items: list[Record]
    note: str = ""

    def take(self, count: int) -> list[Record]:
        """Return `count` records, from the start again as often as needed."""
        return list(itertools.islice(itertools.cycle(self.items), count))


def load_records(source: Source = "auto") -> Records:
    """Return flights, or with ``auto`` the bundled records where flights cannot be had; raises RecordsError."""
    if source == "bundled":
        return bundled()
    try:
        return flights()
    except RecordsError as error:
        if source == "flights":
            raise
        found = bundled()
        return Records(found.title, found.items, note=f"{error}; sending {found.title} instead")


def flights() -> Records:
    """Return 20,000 flights within the United States, keyed by origin; raises RecordsError without the web."""
    datasets = _datasets()
    try:
        with _socket_timeout(WEB_TIMEOUT_S):
            raw: bytes = datasets.flights_20k.raw()
        return Records("flights", parse_flights(raw))
    except (OSError, ValueError) as error:
        raise RecordsError(f"vega_datasets does not bundle its flights and cannot fetch them ({error})") from error


def parse_flights(raw: bytes) -> list[Record]:
    """Read a JSON array of flights; raises ValueError when it is none."""
    rows = orjson.loads(raw)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and "origin" in row for row in rows):
        raise ValueError("the answer is no list of flights")
    return [Record(str(row["origin"]), orjson.dumps(row)) for row in rows]


def bundled() -> Records:
    """Return the 20,894 records that need no web: airports keyed by state, temperatures keyed by city."""
    datasets = _datasets()
    items = [
        *(Record(row["state"], orjson.dumps(row)) for row in _rows(datasets.airports.raw())),
        *_temperatures("Seattle", datasets.seattle_temps.raw()),
        *_temperatures("San Francisco", datasets.sf_temps.raw()),
    ]
    return Records("airports and hourly temperatures", items)


def lines_of(path: Path) -> Records:
    """Return the lines of a file that are not empty; raises RecordsError."""
    try:
        with path.open("rb") as file:
            lines = [line.rstrip(b"\r\n") for line in itertools.islice(file, LINES_MAX + 1)]
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}") from error
    if len(lines) > LINES_MAX:
        raise RecordsError(f"{path} has more than {LINES_MAX:,} lines; split it")
    items = [Record(f"line-{number}", line) for number, line in enumerate(lines, 1) if line]
    if not items:
        raise RecordsError(f"{path} has no line that is not empty")
    return Records(f"lines of {path.name}", items)


def _datasets() -> Any:
    try:
        from vega_datasets import data
    except ImportError as error:
        raise RecordsError(
            "the package vega_datasets is missing; pip install 'raftmq[demo]', or use --input"
        ) from error
    return data


def _rows(raw: bytes) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(raw.decode()))


def _temperatures(city: str, raw: bytes) -> Iterator[Record]:
    return (Record(city, orjson.dumps({"city": city, **row})) for row in _rows(raw))


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Bound the library's own loader, which takes no timeout."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
