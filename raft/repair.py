"""Entries that this disk lost below its floor are fetched from the peers into the same positions (R4)."""

import logging

from raft.core import Core
from raft.messages import ENTRIES_MAX, Kind, Message, entries_of, rows_of
from raft.types import EntryRefused

_log = logging.getLogger(__name__)

# Heartbeats between two questions; the next one goes to another peer.
ASK_BEATS = 2


class Repair:
    """Asks for what cannot be read here, and answers what others cannot read."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next_at = core.now()
        self._turn = 0

    def step(self) -> None:
        """Ask one peer, if something is damaged and it is time."""
        core = self._core
        damaged = core.log.damaged
        if damaged is None or core.log.whole or core.now() < self._next_at:
            return
        peers = [peer for peer in sorted(core.linked) if core.trusts(peer)]
        self._next_at = core.now() + ASK_BEATS * core.beat_s
        if peers:
            self._turn += 1
            core.send(peers[self._turn % len(peers)], Message(Kind.REPAIR, {"first": damaged[0], "last": damaged[1]}))

    def asked(self, peer: str, message: Message) -> None:
        """Send what this member has of it, as far as one append goes; nothing when it has none of it."""
        core = self._core
        first, last = message.fields["first"], message.fields["last"]
        if not core.trusts(peer):
            return
        damaged = core.log.damaged
        if damaged is not None and first <= damaged[1]:
            # Two members may each hold what the other lacks.
            last = min(last, damaged[0] - 1)
        kept = core.log.base.index < first <= min(last, core.log.last.index)
        entries = core.log.read(first, core.settings.ae_bytes_max)[:ENTRIES_MAX] if kept else []
        entries = [entry for entry in entries if entry.index <= last]
        fields = {"first": first, "entries": rows_of(entries)}
        core.send(peer, Message(Kind.REPAIR_REPLY, fields, tuple(entry.data for entry in entries)))

    def answered(self, peer: str, message: Message) -> None:
        """Write what came, if it is what stood there: the log checks it against its chain."""
        core = self._core
        damaged = core.log.damaged
        entries = entries_of(message)
        if damaged is None or not entries or message.fields["first"] != damaged[0] or not core.trusts(peer):
            return
        try:
            core.log.repair(entries)
        except EntryRefused as error:
            _log.warning("entries of %s do not repair %s..%s: %s", peer, *damaged, error)
            return
        _log.info("entries %s..%s were repaired from %s", entries[0].index, entries[-1].index, peer)
        core.refresh_config()
        self._next_at = core.now()
