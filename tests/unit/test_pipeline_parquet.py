"""Rows of histories in Parquet files."""

from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from pipeline.history.parquet import HistoryError, read_rows, write_rows
from pipeline.history.rows import Act, Kind, Op, Read


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ops.parquet"
    rows = [
        Op(0, 1, Act.SEND, Kind.OK, 10, 20, topic="t", queue=3, digest=2**32 - 1, position=2**62),
        Op(1, 1, Act.POLL, Kind.INFO, 30, error="ünd \x01 \u202e"),
    ]
    assert write_rows(path, rows, Op) == 2
    assert read_rows(path, Op) == rows
    assert not path.with_name("ops.parquet.part").exists()


def test_a_file_without_rows_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "reads.parquet"
    write_rows(path, [], Read)
    assert read_rows(path, Read) == []


def test_many_rows_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.history.parquet.ROWS_AT_A_TIME", 10)
    rows = [Op(number, 0, Act.SEND, Kind.OK, number) for number in range(25)]
    assert write_rows(tmp_path / "ops.parquet", iter(rows), Op) == 25
    assert read_rows(tmp_path / "ops.parquet", Op) == rows


def test_it_is_compressed_by_zstd(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    write_rows(path, [Op(0, 0, Act.SEND, Kind.OK, 0)], Op)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ops.parquet"
    with monkeypatch.context() as newer:
        newer.setattr("pipeline.history.parquet.FORMAT", 2)
        write_rows(path, [Op(0, 0, Act.SEND, Kind.OK, 0)], Op)
    with pytest.raises(HistoryError, match="format 2, this program reads up to 1"):
        read_rows(path, Op)


def test_other_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    write_rows(path, [Op(0, 0, Act.SEND, Kind.OK, 0)], Op)
    with pytest.raises(HistoryError, match="no Read rows"):
        read_rows(path, Read)


@pytest.mark.parametrize("content", [None, b"", b"PAR1 something else"])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ops.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HistoryError, match="cannot be read"):
        read_rows(path, Op)


class Older(NamedTuple):
    number: int


class Newer(NamedTuple):
    number: int
    added: str = "default"
    needed: int = 7


def test_columns_that_an_older_program_did_not_know_get_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    Older.__name__ = "Newer"
    write_rows(path, [Older(1), Older(2)], Older)
    assert read_rows(path, Newer) == [Newer(1), Newer(2)]
