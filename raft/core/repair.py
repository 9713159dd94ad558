"""Entries that this disk lost below its floor are fetched from the peers into the same positions (R4).

Bytes at equal positions are equal on every member: one peer is asked for ranges of bytes, several at a time, and the
log checks what comes against its chain, a slice per tick. A peer that has nothing, says nothing or sends what does not
fit is left for the next one; the leader, which has most to do, is asked last. An answer says whether its bytes are
committed (or the leader's): then they are what stood there, or what must stand there now.
"""

import logging
from collections.abc import Callable
from typing import Any

from raft.core.core import Core
from raft.protocol.hello import REPAIR_BY_BYTES
from raft.protocol.messages import ENTRIES_MAX, MessageKind, RaftMessage, rows_of
from raft.protocol.types import EntryRefused

_log = logging.getLogger(__name__)

# Bytes of one question, and questions open: so much of a link do answers take before others get their turn.
QUESTION_BYTES = 256 * 1024
QUESTIONS_MAX = 8
# Heartbeats without any answer after which the next peer is asked; and between rounds in which nobody had anything.
SILENT_BEATS = 10
ROUND_BEATS = 2
# Seconds between two lines of the log that tell how far it is.
TOLD_SECONDS = 5.0
OWN = ""
_MIB = 1024 * 1024


class Repair:
    """Asks for what cannot be read here, and answers what others cannot read."""

    def __init__(self, core: Core, ask_reset: Callable[[str], None]) -> None:
        """`ask_reset` is told of a leader that no longer keeps what is damaged here: only a copy helps then (R13)."""
        self._core = core
        self._ask_reset = ask_reset
        self.next_at = float("inf")
        """When step() is due."""
        # Whom to ask still in this round, and who is asked now: OWN is this member's own disk.
        self._round: list[str] = []
        self._source: str | None = None
        # The term in which it was asked as the leader; -1 when it was not.
        self._led_term = -1
        self._turn = 0
        # The first damaged entry when the own disk was read last.
        self._own_from = 0
        self._rest_until = 0.0
        # Questions and answers by position. What is asked for next.
        self._asked: dict[int, int] = {}
        self._answers: dict[int, tuple[bytes, bool]] = {}
        self._ask_from = 0
        self._heard_at = 0.0
        # The leader contradicts what stands behind the damage: what it sent before that is still being written.
        self._conflict = False
        # Since when, the bytes mended before, when the log was told last; of the last repair, what it came to.
        self._since: float | None = None
        self._done_before = 0
        self._told_at = 0.0
        self._last: dict[str, Any] | None = None

    # -- what is damaged here

    def step(self) -> None:
        """Do a slice of the work, and ask for more."""
        log = self._core.log
        log.mending.finish()
        if log.whole:
            if self._since is not None:
                self._end()
            self.next_at = float("inf")
            return
        if self._since is None:
            self._begin()
        readable, lacked = log.readable, log.readable < self._core.applied
        more = self._mend()
        if log.readable > readable:
            self._core.refresh_config()
            self._core.durable()
            if lacked:
                # It rotted after this member had been told to apply it.
                self._core.apply_again()
        if log.whole:
            self._end()
            return
        if not self._conflict:
            self._feed()
            if self._source == OWN and not more and log.mending.idle and not log.mending.busy:
                self._read_on()
            self._ask()
        elif log.mending.idle:
            self._conflict = False
            if not self._give_way():
                self._next_source()
        self._tell()
        now = self._core.now()
        self.next_at = now if more else max(now, min(self._due(), self._told_at + TOLD_SECONDS))

    def _due(self) -> float:
        if self._source is None:
            return self._rest_until
        return self._heard_at + SILENT_BEATS * self._core.beat_s

    def _begin(self) -> None:
        core = self._core
        self._since = self._told_at = core.now()
        self._done_before = core.log.mending.progress()[0]
        self._new_round()
        _log.warning("%s is to be repaired: entries %s..%s first", core.self_id, *(core.log.damaged or (0, 0)))

    def _end(self) -> None:
        core = self._core
        assert self._since is not None, "it was begun"
        seconds, done = core.now() - self._since, core.log.mending.progress()[0] - self._done_before
        self._last = {"bytes": done, "ms": round(seconds * 1000), "from": self._source or None}
        _log.warning("%s is whole again: %d bytes in %.1f s", core.self_id, done, seconds)
        self._since = self._source = None
        self._forget_questions()
        self.next_at = float("inf")

    def _mend(self) -> bool:
        mending = self._core.log.mending
        try:
            return mending.step()
        except EntryRefused as error:
            level = logging.DEBUG if self._source in {OWN, None} else logging.WARNING
            _log.log(level, "what %s sent does not repair: %s", self._source or "the own disk", error)
        # What another term's leader sent, or this one before it was elected, tells nothing of what the leader has.
        if mending.contradicted and self._led_term == self._core.election.term:
            self._conflict = True
            self._forget_questions()
        else:
            self._next_source()
        # What was checked before it is to be written.
        return True

    def _give_way(self) -> bool:
        """Cut what stands behind the damage, if the leader's entries contradict it and none of it was committed."""
        core, damaged = self._core, self._core.log.damaged
        if damaged is None or max(core.election.commit, core.log.commit, core.follower.verified) >= damaged[0]:
            return False
        _log.warning("entries from %d on are not the leader's, and were never committed: they are cut", damaged[0])
        core.follower.give_up(damaged[0] - 1, core.election.commit)
        core.refresh_config()
        return True

    # -- whom to ask, and for what

    def _new_round(self) -> None:
        core = self._core
        peers = [
            peer for peer in sorted(core.linked) if core.trusts(peer) and REPAIR_BY_BYTES in core.hellos[peer].features
        ]
        self._turn += 1
        at = self._turn % len(peers) if peers else 0
        peers = sorted([*peers[at:], *peers[:at]], key=lambda peer: peer == core.election.leader)
        self._round = [OWN, *peers]
        self._next_source()

    def _next_source(self) -> None:
        """Ask another one from where the log is mended, or rest when all were asked."""
        self._forget_questions()
        self._core.log.mending.drop()
        core = self._core
        while self._round:
            self._source = self._round.pop(0)
            if self._source == OWN or self._source in core.linked:
                self._heard_at = core.now()
                self._led_term = core.election.term if self._source == core.election.leader else -1
                if self._source == OWN:
                    self._own_from = 0
                    self._read_on()
                return
        self._source = None
        self._rest_until = core.now() + ROUND_BEATS * core.beat_s

    def _forget_questions(self) -> None:
        self._asked.clear()
        self._answers.clear()
        self._ask_from = 0

    def _read_on(self) -> None:
        """Read the next of the own disk, as long as that mends something."""
        first = self._core.log.damaged
        mending = self._core.log.mending
        if first is None or first[0] == self._own_from or mending.wanted() is None:
            self._next_source()
            return
        self._own_from = first[0]
        mending.read_own()

    def _feed(self) -> None:
        """Hand on what was answered, as far as it is in order."""
        mending = self._core.log.mending
        while self._answers and (wanted := mending.wanted()) is not None:
            at = next((at for at, (data, _) in self._answers.items() if at <= wanted[0] < at + len(data)), None)
            if at is None:
                break
            data, sure = self._answers.pop(at)
            mending.give(at, data, sure=sure)
        if (wanted := mending.wanted()) is not None:
            # A file's end that nothing stands in was stepped over.
            for at in [at for at, (data, _) in self._answers.items() if at + len(data) <= wanted[0]]:
                del self._answers[at]

    def _ask(self) -> None:
        core = self._core
        now = core.now()
        if self._source is None:
            if now >= self._rest_until:
                self._new_round()
            return
        silent = self._asked and now - self._heard_at >= SILENT_BEATS * core.beat_s
        if silent or (self._source != OWN and self._source not in core.linked):
            self._next_source()
        wanted = core.log.mending.wanted()
        if wanted is None or self._source in {OWN, None}:
            return
        begin, until = wanted
        at = max(begin, self._ask_from)
        while len(self._asked) + len(self._answers) < QUESTIONS_MAX and at < until:
            # Within one file, which is of a power of two, or at least not of less than a question.
            size = min(QUESTION_BYTES - at % QUESTION_BYTES, until - at)
            if not core.send(self._source, RaftMessage(MessageKind.REPAIR_READ, {"start": at, "size": size})):
                if not self._asked and not self._answers:
                    self._next_source()
                    return
                break
            if not self._asked:
                self._heard_at = now
            self._asked[at] = size
            at += size
        self._ask_from = at

    def answered(self, peer: str, message: RaftMessage) -> None:
        """Take bytes, or go on to the next peer when this one has none."""
        core = self._core
        start, kept = message.fields["start"], message.fields["kept"]
        size = self._asked.get(start)
        if core.log.whole or peer != self._source or size is None or not core.trusts(peer):
            return
        self._heard_at = core.now()
        del self._asked[start]
        data = bytes(message.payload[0]) if message.payload else b""
        wanted = core.log.mending.wanted()
        if data:
            self._answers[start] = (data[:size], message.fields["sure"])
            if len(data) < size:
                # A file of it ended there, or what it vouches for.
                self._ask_from = min(self._ask_from, start + len(data))
        elif wanted is not None and start <= wanted[0]:
            self._next_source()
            if peer == core.election.leader and start < kept:
                self._ask_reset(peer)

    # -- what others ask

    def asked_bytes(self, peer: str, message: RaftMessage) -> None:
        """Send bytes from there on, all of them committed or none; a leader's own log is what the others follow."""
        core = self._core
        if not core.trusts(peer):
            return
        start, size, log = message.fields["start"], message.fields["size"], core.log
        kept, until = log.base.end, log.last.end
        try:
            known = log.end_position(log.last.index if core.leads else min(core.election.commit, core.countable()))
        except LookupError:
            known = 0
        sure = start < known

        def tell(data: bytes | memoryview) -> None:
            payload = (data,) if len(data) else ()
            core.send(
                peer, RaftMessage(MessageKind.REPAIR_BYTES, {"start": start, "kept": kept, "sure": sure}, payload)
            )

        size = min(size, (known if sure else until) - start)
        if kept <= start and size > 0:
            log.mending.fetch(start, size, tell)
        else:
            tell(b"")

    def asked(self, peer: str, message: RaftMessage) -> None:
        """Send entries to a member of an older program, as far as one append goes; nothing when none are here."""
        core = self._core
        first, last = message.fields["first"], message.fields["last"]
        if not core.trusts(peer):
            return
        kept = core.log.base.index < first <= min(last, core.log.last.index)
        entries = core.log.read(first, core.settings.ae_bytes_max)[:ENTRIES_MAX] if kept else []
        entries = [entry for entry in entries if entry.index <= last]
        fields = {"first": first, "entries": rows_of(entries)}
        core.send(peer, RaftMessage(MessageKind.REPAIR_REPLY, fields, tuple(entry.data for entry in entries)))

    # -- how far it is

    def _tell(self) -> None:
        core, now = self._core, self._core.now()
        if now - self._told_at >= TOLD_SECONDS:
            self._told_at = now
            state = self.status()
            assert state is not None, "it was begun"
            _log.warning(
                "repair of %s: %.1f of %.1f MiB in %.0f s, %s is asked",
                core.self_id, state["bytes_done"] / _MIB, state["bytes_total"] / _MIB, state["since_ms"] / 1000,
                state["from"] or "nobody",
            )  # fmt: skip

    def status(self) -> dict[str, Any] | None:
        """Return how far it is, None when nothing is damaged."""
        core = self._core
        if core.log.whole or self._since is None:
            return None
        done, total = core.log.mending.progress()
        return {
            "bytes_done": done - self._done_before,
            "bytes_total": total - self._done_before,
            "since_ms": round((core.now() - self._since) * 1000),
            "from": self._source or None,
        }

    def describe(self) -> dict[str, Any]:
        """Return what the node's status says of it: the repair under way, and what the last one came to."""
        return {"repair": self.status(), "last_repair": self._last}
