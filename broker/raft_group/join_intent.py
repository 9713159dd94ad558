"""How a store comes to a Raft group when a person said so (R16), as far as it concerns a member that starts.

What was said stands in config/mode.json (broker/settings/decision.py), and counts only until the log says it itself:
once the group's first entry is there it is forgotten. It is bound to the log that was meant.
"""

from pathlib import Path
from typing import NamedTuple

from broker.settings import decision as override
from broker.settings.restart import RestartAction
from raft.protocol.config import GroupConfig
from store.config import StoreConfig
from store.errors import StoreDamaged
from store.raftlog.entrylog import EntryLog
from store.slave.truncation import begin_folder_anew


class Said(NamedTuple):
    """What was said about a store that is in no group yet; nothing for all others."""

    founds: bool = False
    """See RaftSettings."""
    joins: bytes = b""
    epoch: int = 0
    """What registrations have carried as stateVersion until now."""
    aside: str = ""
    """Why the log must be put aside before anything else."""


def what_was_said(root: Path, entries: EntryLog) -> Said:
    """Return what a person said about a log, and forget what has come about.

    Raises StoreDamaged when it was to found a group and is not the log that was meant; ConfigError, OSError.
    """
    said = override.read(root)
    if said is None or not (said.founder or said.joins):
        return Said()
    joins = bytes.fromhex(said.joins)
    if entries.last.index > entries.base.index:
        at = entries.last_config()
        if said.joins and at and GroupConfig.decode(entries.payload(at)).group_id != joins:
            return Said(joins=joins, aside="its log is that of a group that it was in before")
        override.begun(root)
        return Said()
    if said.founder and entries.last.end != said.log_end:
        raise StoreDamaged(
            f"{root} was to begin a Raft group with the log that ended at {said.log_end}, and it ends at "
            f"{entries.last.end}: put its files back; or move {root / 'config' / override.NAME} away, to start as "
            "broker.conf says, and see which broker has all messages"
        )
    return Said(said.founder, joins, said.epoch)


def putting_aside(why: str) -> RestartAction:
    """Return the restart that moves log, queues and index away, so that the group's are copied from their start."""
    return RestartAction(f"its log is put aside, and the group's copied: {why}", _put_aside)


def _put_aside(config: StoreConfig) -> None:
    # The group may have listed this disk as a learner's already.
    begin_folder_anew(config, same_member=True)
