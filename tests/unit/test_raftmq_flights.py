"""Records to send: where they come from, and what is said when they cannot be had."""

import socket
from pathlib import Path
from typing import Any

import pytest

from raftmq import flights
from raftmq.flights import Record, Records, RecordsError, bundled, lines_of, load_records, parse_flights


class _Loader:
    """Stands for one data set of vega_datasets."""

    def __init__(self, raw: bytes | Exception) -> None:
        self._raw = raw
        self.timeout: float | None = None

    def raw(self) -> bytes:
        self.timeout = socket.getdefaulttimeout()
        if isinstance(self._raw, Exception):
            raise self._raw
        return self._raw


class _Datasets:
    def __init__(self, flights_20k: bytes | Exception) -> None:
        self.flights_20k = _Loader(flights_20k)
        self.airports = _Loader(b"iata,city,state\nSAT,San Antonio,TX\n")
        self.seattle_temps = _Loader(b"date,temp\n2010/01/01 00:00,39.4\n")
        self.sf_temps = _Loader(b"temp,date\n47.8,2010/01/01 00:00:00\n")


def use(monkeypatch: pytest.MonkeyPatch, datasets: Any) -> None:
    monkeypatch.setattr(flights, "_datasets", lambda: datasets)


def test_flights_are_keyed_by_origin() -> None:
    raw = b'[{"origin":"SAT","destination":"HOU","delay":25},{"origin":"DAL","destination":"AUS","delay":-3}]'
    records = parse_flights(raw)
    assert [record.key for record in records] == ["SAT", "DAL"]
    assert records[0].body == b'{"origin":"SAT","destination":"HOU","delay":25}'


@pytest.mark.parametrize("raw", [b"<html>", b"{}", b"[]", b'[{"destination":"HOU"}]'])
def test_what_is_no_list_of_flights_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"flights|JSON|unexpected"):
        parse_flights(raw)


def test_bundled_records_need_no_web_and_are_all_there() -> None:
    records = bundled()
    assert len(records.items) == 20_894
    assert {"TX", "Seattle", "San Francisco"} <= {record.key for record in records.items}
    assert all(record.body for record in records.items)


def test_flights_come_first_and_the_wait_for_the_web_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = _Datasets(b'[{"origin":"SAT"}]')
    use(monkeypatch, datasets)
    records = load_records()
    assert (records.title, records.items[0].key, records.note) == ("flights", "SAT", "")
    assert datasets.flights_20k.timeout == flights.WEB_TIMEOUT_S
    assert socket.getdefaulttimeout() is None


@pytest.mark.parametrize("failure", [OSError("no route to host"), b"<html>blocked</html>"])
def test_without_the_web_bundled_records_go_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, failure: bytes | Exception
) -> None:
    use(monkeypatch, _Datasets(failure))
    records = load_records()
    assert [record.key for record in records.items] == ["TX", "Seattle", "San Francisco"]
    assert "flights" in records.note
    assert records.title in records.note
    with pytest.raises(RecordsError, match="does not bundle its flights"):
        load_records("flights")


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


def test_taking_more_than_there_are_starts_again() -> None:
    records = Records("letters", [Record("a", b"a"), Record("b", b"b")])
    assert [record.key for record in records.take(5)] == ["a", "b", "a", "b", "a"]
