"""The leader's side of replication: how far each peer is, and what is sent to it next.

A peer is *probed* with empty appends until one matches, then *streamed* to: appends follow one another without waiting,
within a window of bytes and messages. `next` never goes back because something succeeded; it goes back to what is
acknowledged when the peer says that its log differs, when the link broke, or when it stays silent with appends open.
Every append has a sequence of its own, so that an answer is known to be that of a question of this term, and when it
was asked (R7). Peers that stand at the same entry are sent the very same one.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from raft.core.follower import newest_not_above
from raft.core.lease import Lease
from raft.protocol.messages import ENTRIES_MAX, MessageKind, RaftMessage, append
from raft.protocol.settings import RaftSettings
from raft.protocol.types import Log
from runtime.timings import Timings

_log = logging.getLogger(__name__)

# Appends open at one peer at a time, empty ones included.
FLIGHTS_MAX = 512
# Heartbeats without any answer after which open appends are taken for lost and sent again.
SILENT_BEATS = 5
# Bytes sent to one peer in one tick; the rest follows in the next, so that others run meanwhile.
TICK_BYTES_MAX = 4 * 1024 * 1024
# Seconds after which a commit that no append carried is told by an empty one.
COMMIT_PUSH_S = 0.005


class AppendInFlight(NamedTuple):
    """An append that is not answered yet."""

    seq: int
    last: int
    size: int
    sent_at: float


_new = tuple.__new__  # without the frame of the NamedTuple's own function


class Progress:
    """What the leader knows of one peer. Times are monotonic seconds."""

    def __init__(self, member: str, next_index: int, now: float) -> None:
        self.member = member
        self.next = next_index
        self.match = 0
        """The last entry that the peer has on disk and that is ours."""
        self.received = 0
        """The last entry that the peer has, on disk or not."""
        self.probing = True
        self.answered_at = now
        """When the newest append was sent that it answered; at first when the term began."""
        self.heard_at = now
        """When the last answer came."""
        self.asked_at = now
        """When the append was sent that the last answer was for."""
        self.commit_told = 0
        self.flights: deque[AppendInFlight] = deque()
        self.bytes_open = 0

    def sent(self, flight: AppendInFlight, commit: int) -> None:
        """Note an append that left."""
        self.flights.append(flight)
        self.bytes_open += flight.size
        self.commit_told = commit
        self.next = max(self.next, flight.last + 1)

    def has_room(self, window_bytes: int) -> bool:
        """Whether one more append may leave."""
        if self.probing:
            return not self.flights
        return len(self.flights) < FLIGHTS_MAX and self.bytes_open < window_bytes

    def _probe(self) -> None:
        self.probing = True
        self.received = self.match
        self.flights.clear()
        self.bytes_open = 0

    def lost(self, last_index: int, base_index: int = 0) -> None:
        """Take everything open for lost: probe behind what is on the peer's disk, from our end if that is unknown.

        From our end too when it is before our log: a member that was reset in the meantime (R13) has more by now.
        """
        self._probe()
        self.next = (self.match if self.match > base_index else last_index) + 1

    def remembers(self, last_index: int) -> bool:
        """Take its word that its log ends there; False when it once had more on disk, which it is sent again."""
        kept = self.match <= last_index
        self.match = min(self.match, last_index)
        return kept

    def answered(self, seq: int, now: float) -> bool:
        """Note an answer; False when it answers none of the open appends, and so says nothing of where to go on."""
        for flight in self.flights:
            if flight.seq == seq:
                self.heard_at, self.asked_at = now, flight.sent_at
                self.answered_at = max(self.answered_at, flight.sent_at)
                return True
        return False

    def matched(self, seq: int, received: int, durable: int) -> None:
        """Take a success: everything up to `received` is there, up to `durable` on disk; older appends are too."""
        self.received = max(self.received, received)
        self.match = max(self.match, min(received, durable))
        while self.flights and self.flights[0].seq <= seq:
            self.bytes_open -= self.flights.popleft().size
        self.next = max(self.next, self.received + 1)
        self.probing = False

    def differs(self, next_index: int) -> bool:
        """Take a refusal: probe from `next_index`, never at or below what matches; False when that is no step."""
        before = self.next
        self._probe()
        self.next = max(self.match + 1, min(next_index, before))
        return self.next < before

    def silent(self, now: float, silent_s: float) -> bool:
        """Whether appends are open, and nothing at all was answered for too long."""
        return bool(self.flights) and now - max(self.heard_at, self.flights[0].sent_at) > silent_s


class PeerReplication:
    """All peers of a leader. Knows no roles: Core begins and ends it."""

    def __init__(
        self,
        settings: RaftSettings,
        log: Log,
        lease: Lease,
        monotonic: Callable[[], float],
        send: Callable[[str, RaftMessage], bool],
        push_in: Callable[[float], None],
    ) -> None:
        """`push_in` has pushed() called after so many seconds."""
        self._settings = settings
        self._log = log
        self._lease = lease
        self._monotonic = monotonic
        self._send = send
        self.term = 0
        """The term led, 0 for none."""
        self._seq = 0
        # What was asked for the append that was made last, and that: who stands at the same entry is sent the same.
        # Within one call of beat(), pump() or tell(): in the next one the log may be another.
        self._made: tuple[tuple[int, int, int], RaftMessage, AppendInFlight] | None = None
        self.more = False
        """Whether a peer could take more at once than one tick sends."""
        self.news = False
        """Whether a reply told something that pump() must look at."""
        # Since when a peer has not been told of a commit; and whether pushed() is to come.
        self._untold_since: float | None = None
        self._push_in = push_in
        self._timed = False
        self.peers: dict[str, Progress] = {}
        self.times = Timings()
        """From when an append left to the answer that tells its entries to be on the peer's disk; of all terms."""

    def begin(self, term: int, members: Iterable[str]) -> None:
        """Start a term as its leader: nothing is known of anybody."""
        self.end()
        self.term = term
        self.set_members(members)

    def end(self) -> None:
        """Lead no more."""
        self.peers.clear()
        self.term = 0
        self._untold_since = self._made = None
        self.more = self.news = False

    def set_members(self, members: Iterable[str]) -> None:
        """Send to exactly these, voters and learners; a new one is probed from the end of the log."""
        wanted = set(members)
        for gone in self.peers.keys() - wanted:
            del self.peers[gone]
        for new in sorted(wanted - self.peers.keys()):
            self.peers[new] = Progress(new, self._log.last.index + 1, self._monotonic())

    def lost(self, member: str) -> None:
        """Note that a link came or went: what was under way may not have arrived."""
        if member in self.peers:
            self.peers[member].lost(self._log.last.index, self._log.base.index)

    def linked(self, member: str, last_index: int) -> None:
        """Note a link to a peer whose log ends at `last_index`.

        That is before what it acknowledged in this term when its disk lost both the entries and, by the 10 ms that it
        may lag, the floor that would have told it so (R4). What was committed stays so; it is without a copy until
        then.
        """
        peer = self.peers.get(member)
        if peer is None:
            return
        had = peer.match
        if not peer.remembers(last_index):
            _log.error("%s has lost entries %d..%d, which it had acknowledged: sent again", member, last_index + 1, had)
        self.lost(member)

    def beat(self, commit: int) -> None:
        """Send to every peer what is new, or an empty append: the heartbeat."""
        now = self._monotonic()
        self._made = None
        last = self._log.last.index
        for peer in self.peers.values():
            if peer.silent(now, SILENT_BEATS * self._settings.heartbeat_ms / 1000):
                peer.lost(last, self._log.base.index)
            if not self._stream(peer, commit, last):
                self._append(peer, commit, 0)

    def pump(self, commit: int) -> None:
        """Send what is new, and soon the commit index if nothing carries it."""
        self.more = self.news = False
        self._made = None
        last = self._log.last.index
        for peer in self.peers.values():
            if peer.probing:
                if peer.has_room(0):
                    self._append(peer, commit, 0)
            elif peer.next <= last:
                self._stream(peer, commit, last)
        self.tell(commit)

    def reply(self, member: str, fields: Mapping[str, Any]) -> float | None:
        """Take an APPEND_REPLY of this term; return when the append left that it answers, None for an old one."""
        peer = self.peers.get(member)
        if peer is None:
            return None
        # Any answer of this term renews the promise not to vote for another, whatever became of the entries.
        self._lease.acked(member, fields["seq"])
        current = peer.answered(fields["seq"], self._monotonic())
        match, probing = peer.match, peer.probing
        if fields["ok"]:
            # A late or doubled success is true all the same: what was on its disk in this term, is.
            peer.matched(fields["seq"], fields["match"], fields["durable"])
            if current and peer.match != match:
                self.times.add(peer.heard_at - peer.asked_at)
        elif current:
            found = newest_not_above(self._log, fields["hint_index"], fields["hint_term"])
            if not peer.differs(min(found, fields["hint_index"]) + 1):
                # The peer refuses what it says it would take: wait for the next beat instead of spinning.
                self._park(peer)
        if peer.probing or probing or peer.next <= self._log.last.index:
            self.news = True
        return peer.asked_at if current else None

    def held_by(self, voters: Sequence[str], majority: int, self_id: str, own: int) -> int:
        """Return the last entry that so many of the voters have on disk, none beyond what this member itself has."""
        peers, held = self.peers, []
        for voter in voters:
            held.append(own if voter == self_id else peers[voter].match)  # noqa: PERF401 # as in tell()
        held.sort()
        return min(own, held[-majority]) if held else 0

    def _stream(self, peer: Progress, commit: int, last: int) -> bool:
        """Send new entries, of which `last` is the last, as far as window and tick allow; whether any left."""
        budget = TICK_BYTES_MAX
        while not peer.probing and peer.next <= last and peer.has_room(self._settings.window_bytes):
            if budget <= 0:
                self.more = True
                break
            size = self._append(peer, commit, min(budget, self._settings.ae_bytes_max))
            if not size:
                break
            budget -= size
        return budget < TICK_BYTES_MAX

    def _append(self, peer: Progress, commit: int, bytes_max: int) -> int:
        """Send one append of up to `bytes_max` bytes (0: an empty one); bytes sent, 0 when nothing left."""
        prev = peer.next - 1
        made, asked = self._made, (prev, commit, bytes_max)
        if made is None or made[0] != asked:
            prev_term = self._log.term(prev)
            if prev_term is None:
                self._tell_behind(peer)
                self._park(peer)
                return 0
            entries = self._log.read(peer.next, bytes_max)[:ENTRIES_MAX] if bytes_max else []
            self._seq += 1
            self._lease.sent(self._seq)
            message = append(self.term, self._seq, (prev, prev_term), commit, entries)
            last, now = prev + len(entries), self._monotonic()
            flight = _new(AppendInFlight, (self._seq, last, message.size, now))
            made = self._made = asked, message, flight
        _asked, message, flight = made
        if not self._send(peer.member, message):
            return 0
        peer.sent(flight, commit)
        return flight.size

    def _tell_behind(self, peer: Progress) -> None:
        base = self._log.base
        fields = {"term": self.term, "base_index": base.index, "base_term": base.term}
        self._send(peer.member, RaftMessage(MessageKind.BEHIND, fields))

    def _park(self, peer: Progress) -> None:
        """Let a probing peer be until the next beat."""
        peer.flights.append(AppendInFlight(0, peer.next - 1, 0, self._monotonic()))

    def tell(self, commit: int) -> None:
        """Tell the commit index to who has not heard of it for too long; soon, if that is not yet so.

        While entries follow one another each tells of the one before, and the timer need not move with every one.
        """
        waiting = []
        for peer in self.peers.values():
            if peer.commit_told < commit and not peer.probing:
                waiting.append(peer)  # noqa: PERF401 # a frame less, several times an entry
        if not waiting:
            self._untold_since = None
            return
        now = self._monotonic()
        if self._untold_since is None:
            self._untold_since = now
        left = self._untold_since + COMMIT_PUSH_S - now
        if left <= 0:
            self._untold_since = self._made = None
            for peer in waiting:
                self._append(peer, commit, 0)
        elif not self._timed:
            self._timed = True
            # Two clocks may round it to less than they can tell apart.
            self._push_in(max(left, COMMIT_PUSH_S / 10))

    def pushed(self, commit: int) -> None:
        """Tell the commit index if it is time by now, or have this called again."""
        self._timed = False
        if self.term:
            self.tell(commit)
