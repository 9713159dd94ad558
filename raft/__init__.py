"""A group of members that agree on one log. Knows no message and no topic: entries are bytes, the log is the store's.

PySyncObj 0.3.17's, behind the one door core/pysyncobj.py (each private name listed, looked for at import, tested):
election timer and candidate, one vote per term, the no-op of a term, the commit rule (a majority, entries of this term
only), stepping down without a majority, callbacks by (index, term), TimeoutNow. As shipped it loses what it
acknowledged, so:

Ours, and why it is safe:
* votefile: term, vote and the disk's id, checksummed, fsynced with the folder before anything is sent; damaged or
  missing beside a log means no start. Votes, appends and acks count from members with the disk that CONFIG names (R6).
* prevote, election: the gate before the candidate code is opened by a won pre-vote or by the leader's request. Nobody
  votes within the shortest election timeout of an append, or of its own start, nor behind its durable floor (R4, R7).
* follower: never cuts what matches, never at or below the commit index; an answer has term and sequence, and how far
  the log is verified to be the leader's and is on disk. The smaller of both is what a leader counts (R5).
* progress: probe, then stream in a window; `next` never goes back on success, stale answers count for nothing.
* core: what the commit rule sees of a peer is capped by the leader's own durable index, and nothing above that is ever
  committed, in a group of one too. A leader whose disk takes nothing steps down; an I/O error ends the member.
* lease: from the sending time of the newest round a majority answered, on a clock that counts suspension, looked at
  for each read; dropped before a transfer, for good in that term (leader_transfer) (R7).
* config, membership: CONFIG entries carry the whole list, one node at a time, in force when appended, undone when cut;
  learners neither vote nor count (R9). bootstrap, bootstrapper: entry 1 is CONFIG; only all-empty or alone (R1).
* snapshot, repair: a member behind retention is copied anew (R13); what was lost below the floor is fetched, not cut
  (R4).

Straight line of an entry: node.propose → the store appends (virtual base entry, the library's journal is a view of the
log) → progress sends, the flusher syncs → follower answers → the library's commit rule → NodeEvents.on_commit → fates.

Rooms, each using those before it: protocol (nouns, messages, settings), core (decisions), network (links and the
driver), snapshot (copies for who is too far behind).
"""
