"""What a slave must not forget about its masters, and what it does to its own folder.

`<store>/config/pair.json` says whether messages of this log may have been acknowledged because this broker had them: a
SYNC_MASTER is answered by reports, and a report must not be made before it is certain that it will be remembered. It is
enough to write that such a time has begun: until it is known to have ended everything in the log counts as covered. So
nothing is written while messages flow. A broker that is a SYNC_MASTER itself notes the same of its own log: it may
follow another one later.

It names the log as well (ha_compare.py says what for): a master draws a name when its log is empty or has none, and a
slave takes its master's before the first report.

{"open": true, "covered": 0, "freeFrom": null, "epoch": 0, "master": "10.0.0.1:10911", "logId": "5f0c…"}
"""

import logging
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import orjson

from broker.settings.restart import RestartAction
from runtime.durable import read_file, replace_file
from store.config import StoreConfig
from store.slave.truncation import begin_folder_anew, cut_folder

_log = logging.getLogger(__name__)

PAIR_NAME = "config/pair.json"

Range = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PairMemory:
    """The content of the file; positions in bytes of the CommitLog."""

    open: bool = False
    """Whether reports to a SYNC_MASTER are being made: all that comes into the log is covered as well."""
    covered: int = 0
    """Up to here a synchronous acknowledgement may rest upon this log."""
    free_from: int | None = None
    """From here on none ever did, whatever the master's role (a former group's tail above its commit point)."""
    epoch: int = 0
    """The highest of all masters that were followed."""
    master: str = ""
    """The one followed last; empty while nothing in the log came from one."""
    log_id: str = ""
    """The log's name; empty when no master told one."""

    def covered_upto(self, end: int) -> int:
        """Return the position before which messages may be covered, in a log that ends at `end`."""
        return max(self.covered, end) if self.open else self.covered

    def following(self, epoch: int, master: str, log_id: str = "", *, sync: bool, end: int) -> "PairMemory":
        """Return what is to be remembered before a master is told that the log, all of it the master's, ends at `end`.

        Equal to what was remembered when nothing need be written.
        """
        covered = self.covered if sync else self.covered_upto(end)
        return PairMemory(sync, covered, None, max(self.epoch, epoch), master, log_id)

    def cut(self, position: int) -> "PairMemory":
        """Return what is to be remembered when the log was cut at a position."""
        covered = min(self.covered_upto(position), position)
        return replace(self, covered=covered, open=False, free_from=None)

    def anew(self) -> "PairMemory":
        """Return what is to be remembered when nothing of the log is left."""
        return PairMemory(epoch=self.epoch)

    def mastering(self, *, sync: bool, end: int, empty: bool) -> "PairMemory":
        """Return what a master remembers whose log ends at `end`; `empty`: nothing was ever in it."""
        log_id = self.log_id if self.log_id and not empty else secrets.token_hex(16)
        if sync:
            return replace(self, open=True, free_from=None, log_id=log_id)
        if self.open:
            return replace(self, open=False, covered=self.covered_upto(end), free_from=None, log_id=log_id)
        return replace(self, log_id=log_id)


def load_memory(root: Path) -> PairMemory:
    """Read the file of a store folder; one that cannot be understood may have said that all is covered."""
    path = root / PAIR_NAME
    content = read_file(path)
    if content is None:
        return PairMemory()
    try:
        fields = orjson.loads(content)
        return PairMemory(
            _typed(fields["open"], bool),
            _typed(fields["covered"], int),
            None if fields["freeFrom"] is None else _typed(fields["freeFrom"], int),
            _typed(fields["epoch"], int),
            _typed(fields["master"], str),
            _typed(fields.get("logId", ""), str),
        )
    except (ValueError, KeyError, TypeError) as error:
        _log.warning(
            "%s cannot be understood (%s): everything in the log is taken as acknowledged by a SYNC_MASTER", path, error
        )
        return PairMemory(open=True)


def _typed(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} where {kind.__name__} is due")
    return value


def save_memory(root: Path, memory: PairMemory) -> None:
    """Write the file, durable when this returns. Raises OSError."""
    content = {
        "open": memory.open,
        "covered": memory.covered,
        "freeFrom": memory.free_from,
        "epoch": memory.epoch,
        "master": memory.master,
        "logId": memory.log_id,
    }
    replace_file(root / PAIR_NAME, orjson.dumps(content, option=orjson.OPT_INDENT_2))


def note_master(root: Path, *, sync: bool, log_range: Range) -> PairMemory:
    """Remember what a master must, before its first send, and return it. Raises OSError.

    A SYNC_MASTER acknowledges what slaves have. Where such a time is over, what the log gets behind its end is not
    covered.
    """
    begin, end = log_range
    before = load_memory(root)
    memory = before.mastering(sync=sync, end=end, empty=begin == end == 0)
    if memory != before:
        save_memory(root, memory)
    return memory


def note_uncommitted_tail(root: Path, commit: int) -> None:
    """Remember that nothing behind `commit` was ever acknowledged: for a group's member that becomes a slave."""
    memory = load_memory(root)
    save_memory(root, replace(memory, open=False, covered=commit, free_from=commit))


def cutting(position: int, why: str) -> RestartAction:
    """Return the restart that cuts the log at a record border; what is cut is kept in the folder `cut`."""

    def act(config: StoreConfig) -> None:
        cut = cut_folder(config, position)
        if cut is None:
            _log.warning("nothing stood behind %d in the CommitLog: nothing was cut", position)
        else:
            _log.warning(
                "%d records (%d bytes, %d to %d) were cut from the CommitLog because %s; they are kept in %s",
                cut.records,
                cut.end - cut.begin,
                cut.begin,
                cut.end,
                why,
                cut.kept_in,
            )
        # Not before: what was not cut after all would no longer be protected.
        save_memory(config.root, load_memory(config.root).cut(position))

    return RestartAction(f"its log is cut at {position}: {why}", act)


def copying_anew(why: str) -> RestartAction:
    """Return the restart that moves the whole log aside, so that the master's is copied from its start."""

    def act(config: StoreConfig) -> None:
        kept_in = begin_folder_anew(config, None)
        _log.warning("the CommitLog was moved to %s and is copied from the master anew, because %s", kept_in, why)
        save_memory(config.root, load_memory(config.root).anew())

    return RestartAction(f"its log is copied from the master anew: {why}", act)
