"""A run's folder: where its history, promises and store folders are."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orjson

from pipeline.history.parquet import HistoryError, read_rows
from pipeline.history.promises import Promises
from pipeline.history.rows import Beat, Fault, Look, Op, Read

HISTORY = "history"
DATA = "data"
EARLIER = "data-earlier"
AFTER = "data-after"
LOGS = "logs"
INFO = "run.json"
SCHEDULE = "schedule.json"
RESULTS = "results.json"
STORE = "store"

_FILES: Mapping[type, str] = {
    Op: "ops.parquet",
    Read: "reads.parquet",
    Fault: "nemesis.parquet",
    Look: "replicas.parquet",
    Beat: "beats.parquet",
}
Row = TypeVar("Row", bound=tuple[Any, ...])


class RunFolder:
    """Reads what a run left. Every method raises HistoryError for what is missing or cannot be understood."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, kind: type) -> Path:
        """Return the Parquet file of a noun of pipeline/history."""
        return self.path / HISTORY / _FILES[kind]

    def ops(self) -> list[Op]:
        """Return all operations, by number."""
        return self._rows(Op)

    def reads(self) -> list[Read]:
        """Return all messages that were read."""
        return self._rows(Read)

    def faults(self) -> list[Fault]:
        """Return what the nemesis did."""
        return self._rows(Fault)

    def looks(self) -> list[Look]:
        """Return what members said of themselves."""
        return self._rows(Look)

    def beats(self) -> list[Beat]:
        """Return when the harness's loop had its turn; nothing of a run of an older harness, which did not watch it."""
        return self._rows(Beat) if self.file(Beat).exists() else []

    def info(self) -> dict[str, Any]:
        """Return run.json."""
        path = self.path / INFO
        try:
            found: dict[str, Any] = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise HistoryError(f"{path} cannot be read: {error}: is {self.path} the folder of a run?") from error
        return found

    def promises(self) -> Promises:
        """Return what the scenario promised."""
        try:
            return Promises.from_dict(self.info()["promises"])
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryError(f"{self.path / INFO} holds no promises that can be used: {error}") from error

    def members(self) -> list[Path]:
        """Return the store folders, data/<member>, as they were when everything had been killed; by name."""
        return _folders(self.path / DATA)

    def after(self) -> list[Path]:
        """Return the store folders, data-after/<member>, of members that were started once more and stopped."""
        return _folders(self.path / AFTER)

    def earlier(self) -> list[list[Path]]:
        """Return the store folders of moments before the end, data-earlier/<number>/<member>, oldest moment first."""
        data = self.path / EARLIER
        moments = sorted(data.iterdir(), key=lambda path: int(path.name)) if data.is_dir() else []
        return [_folders(moment) for moment in moments]

    def _rows(self, kind: type[Row]) -> list[Row]:
        return read_rows(self.file(kind), kind)


def _folders(below: Path) -> list[Path]:
    return sorted(path for path in below.iterdir() if path.is_dir()) if below.is_dir() else []


def named_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Return member → store folder: each is called by as many last parts of its path as tell all of them apart.

    Raises HistoryError for a folder that is given twice.
    """
    whole = [path.resolve().parts for path in folders]
    if len(set(whole)) < len(whole):
        twice = next(path for path, parts in zip(folders, whole, strict=True) if whole.count(parts) > 1)
        raise HistoryError(f"{twice} is given twice: each member's store folder is named once")
    for count in range(1, max(map(len, whole), default=1) + 1):
        names = ["/".join(parts[-count:]) for parts in whole]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, folders, strict=True))


def logged_bytes(folders: Iterable[Path]) -> int:
    """Return how much of the disk the CommitLogs of store folders take: files are made at their full size.

    Raises OSError.
    """
    return sum(file.stat().st_blocks * 512 for path in folders for file in path.glob("commitlog/*"))
