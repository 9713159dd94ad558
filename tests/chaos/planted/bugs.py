"""All planted bugs: what each does, the trial that must catch it, and the checks of which one at least must say so."""

from collections.abc import Mapping
from typing import NamedTuple

PACKAGE = "tests.chaos.planted"


class PlantedBug(NamedTuple):
    """One bug. It is caught by a run whose verdict is invalid because of one of `checks`, and by nothing less."""

    name: str
    text: str
    place: str
    """module:function below this package."""
    trial: str
    """Its name in TRIALS."""
    checks: frozenset[str]

    @property
    def plant(self) -> str:
        """How a member is told of it (chaos/site/member.py)."""
        return f"{PACKAGE}.{self.place}"


def _bug(name: str, text: str, place: str, trial: str, *checks: str) -> PlantedBug:
    return PlantedBug(name, text, place, trial, frozenset(checks))


_LOST = ("A1", "A13", "B2", "B8", "B9")
_ALL = (
    _bug("ack-before-quorum", "the leader answers when it has appended",
         "replication:acknowledge_before_quorum", "cut-leader", "A1", "A9", "B2"),
    _bug("ack-before-sync", "leader and followers count what is written, not what is synced",
         "replication:acknowledge_before_sync", "part-kill", *_LOST),
    _bug("lying-disk", "fdatasync returns before anything is on the disk",
         "storing:lie_about_syncs", "power", *_LOST),
    _bug("forgotten-vote", "term and vote are kept in memory alone",
         "replication:forget_votes", "kill", "B6"),
    _bug("elected-by-itself", "a member that hears nobody counts the others' votes as given",
         "replication:elect_oneself_when_alone", "cut-follower", "A23", "B6", *_LOST),
    _bug("no-lease", "a leader answers for the newest state without a lease",
         "replication:lead_without_lease", "stale-leader", "A14", "A15"),
    _bug("late-election", "who lost its leader waits 14 s too long",
         "replication:elect_late", "kill", "A25"),
    _bug("shown-before-commit", "messages can be read before they are committed",
         "replication:show_before_commit", "cut-leader", "A8", "A15", "A4"),
    _bug("queue-not-cut", "the log is cut, the queue of its control records is not",
         "replication:keep_queue_of_what_was_cut", "cut-leader", "B7"),
    _bug("misled-queue", "an entry of a ConsumeQueue points to another message, so that one is in no queue",
         "storing:mislead_queues", "calm", "B7"),
    _bug("offset-twice", "two messages get one queue offset",
         "storing:assign_offsets_twice", "calm", "A1", "A8"),
    _bug("other-bytes", "a follower writes other bytes than it was sent",
         "storing:write_other_bytes", "calm", "A4", "B4", "B13"),
    _bug("crc-ignored", "recovery believes whatever it reads",
         "storing:trust_what_is_read", "bitrot", "A4", "B4", "B11", "B13"),
    _bug("hole-forgotten", "a start lowers no checkpoint for a missing file, so that the next one knows of no hole",
         "storing:forget_holes", "holes", "M-start", "M-level", *_LOST),
    _bug("rebuild-taken-for-complete", "a start is content with the queues that a killed one had built so far",
         "storing:take_rebuilds_for_complete", "queues", "M-start", "M-level", "B7"),
    _bug("unindexed", "messages are left out of the key index",
         "storing:leave_messages_out_of_the_index", "calm", "B11"),
    _bug("appended-twice", "one attempt to send is appended twice",
         "answering:append_retries_again", "calm", "A6"),
    _bug("sends-forgotten", "of idempotent sends a member knows only those that came to itself",
         "sending:forget_others_sends", "once", "A6"),
    _bug("refused-and-stored", "a send is refused and stored all the same",
         "answering:refuse_what_is_stored", "calm", "A5", "B10"),
    _bug("wrong-offset-told", "an acknowledgement names another offset",
         "answering:tell_a_wrong_offset", "calm", "A9", "B8"),
    _bug("half-a-batch", "a batch is stored without its last message",
         "answering:store_half_a_batch", "calm", "W-bank", "A1"),
    _bug("skipping-reads", "a reader is told to go on one message too far",
         "answering:skip_a_message_in_answers", "calm", "A12", "A17"),
    _bug("offsets-not-replicated", "committed offsets stay with the leader that took them",
         "tables:keep_offsets_to_oneself", "kill", "A16"),
    _bug("offsets-beyond-the-end", "stored offsets lie behind their queue's end",
         "tables:store_offsets_beyond_the_end", "calm", "B12"),
    _bug("topics-not-replicated", "new topics stay with the leader that made them",
         "tables:keep_topics_to_oneself", "calm", "A16"),
    _bug("locks-for-all", "a queue's lock is granted to everybody",
         "tables:grant_every_lock", "calm", "A19"),
    _bug("locks-for-nobody", "a new leader gives the locks that it finds to nobody, ever",
         "tables:keep_locks_for_nobody", "handover", "A26"),
    _bug("rolled-back-and-delivered", "some of what was rolled back is delivered",
         "transactions:deliver_what_is_rolled_back", "transactions", "A18"),
    _bug("committed-and-forgotten", "some of what was committed is not delivered",
         "transactions:commit_without_the_message", "transactions", "A18"),
    _bug("timers-early", "some timer messages are delivered three seconds too early",
         "timing:deliver_early", "timers", "A20"),
    _bug("timers-late", "some timer messages are delivered nine seconds late",
         "timing:deliver_late", "timers", "W-timers"),
    _bug("timers-lost", "some timer messages are taken for delivered and stored nowhere",
         "timing:pass_over", "timers", "A1"),
    _bug("timers-twice", "some timer messages are delivered two times",
         "timing:deliver_twice", "timers", "W-timers"),
    _bug("replies-mixed-up", "some replies go to the request before",
         "replying:mix_replies_up", "requests", "W-replies"),
    _bug("replies-again", "some replies are brought two times",
         "replying:bring_replies_again", "requests", "W-replies"),
    _bug("replies-kept", "some replies are said to be with who asked, and are not",
         "replying:keep_replies", "requests", "W-replies"),
    _bug("pop-ack-not-stored", "some acknowledgements of popped messages are answered and not stored",
         "popping:acknowledge_without_storing", "pop", "I-again"),
    _bug("pop-taken-forgotten", "the next leader does not know what was popped before it led",
         "popping:begin_without_what_was_taken", "pop", "I-lost", "I-open"),
    _bug("pop-taken-at-once", "the next leader gives at once what others hold",
         "popping:give_what_was_taken_at_once", "pop", "I-together"),
    _bug("pop-due-dropped", "some of what is due does not come again",
         "popping:drop_what_is_due", "pop", "I-lost", "I-open"),
    _bug("pop-due-early", "what was popped comes again after two thirds of its invisible time",
         "popping:be_due_early", "pop", "I-together"),
    _bug("pop-side-by-side", "two pops take from one queue at a time",
         "popping:take_side_by_side", "pop", "I-record", "I-together"),
    _bug("pop-offsets-not-replicated", "how far a group has popped stays with the leader that gave it",
         "popping:keep_offsets_of_pops_to_oneself", "pop", "I-again", "I-record"),
    _bug("ack-before-flush", "a single broker with SYNC_FLUSH answers before it flushes",
         "pairs:acknowledge_before_flush", "alone", *_LOST),
    _bug("ack-without-slave", "a SYNC_MASTER counts on a slave that it sends nothing any more",
         "pairs:acknowledge_without_slave", "pair", "B2"),
    _bug("other-bytes-slave", "a slave writes other bytes than it was sent",
         "pairs:write_other_bytes_as_slave", "pair", "B1", "B13"),
)  # fmt: skip
BUGS: Mapping[str, PlantedBug] = {bug.name: bug for bug in _ALL}
