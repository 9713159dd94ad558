"""The nouns of a history: operations, reads, faults, looks at replicas; a Parquet file each, fields as columns."""

from enum import StrEnum
from typing import NamedTuple

# Version of the files; a reader refuses a newer one.
FORMAT = 1
# In place of an offset, index, term or time that is not known.
UNKNOWN = -1


class Kind(StrEnum):
    """How an operation ended, as far as whoever asked can tell."""

    OK = "ok"
    FAIL = "fail"
    """It is certain that it did not happen, and will not."""
    INFO = "info"
    """It may have happened, or still happen."""


class Act(StrEnum):
    """What was asked for."""

    SEND = "send"
    POLL = "poll"
    SCAN = "scan"
    """A read of the final state, from the first offset to the barrier; `replica` says through whom."""
    COMMIT = "commit"
    """A consumer group's offset, `value`."""
    QUERY = "query"
    """A consumer group's stored offset: `value`."""
    MAX = "max"
    """The end of a queue: `value`."""
    MIN = "min"
    LOCK = "lock"
    UNLOCK = "unlock"
    CREATE_TOPIC = "create_topic"
    CREATE_GROUP = "create_group"
    SEEN_TOPIC = "seen_topic"
    """A look whether a topic or group is there: `value` 1 or 0."""
    RESET = "reset"
    """A consumer group's offset is set from outside, `value`: what lies before it need not be consumed."""
    END_COMMIT = "end_commit"
    """The end of `transaction`; its messages are sends with the same name."""
    END_ROLLBACK = "end_rollback"
    CHECK = "check"
    """The broker asked for the end of `transaction`."""
    REQUEST = "request"
    """A request (writer, counter), its message a send of the same name: from when it is asked to its reply or error."""
    ANSWER = "answer"
    """Whoever consumed a request sent its reply; OK: a broker said that who asked has it."""
    REPLY = "reply"
    """A broker brought a client the reply to its request (writer, counter), or to one that it never asked."""
    CONSUME = "consume"
    """A consumer of `group` and `topic` lives, from its start to its end, however that comes. Histories of older
    harnesses have none. One that a fault holds up ends there, and begins anew when it goes on."""


class Op(NamedTuple):
    """An attempt of one client. A message is (writer, counter), an attempt to send it (writer, counter, attempt)."""

    op: int
    process: int
    """Has one operation under way at a time; after INFO its number is used no more."""
    act: str
    kind: str
    invoked: int
    completed: int = UNKNOWN
    topic: str = ""
    queue: int = UNKNOWN
    group: str = ""
    """Consumer group."""
    broker: str = ""
    """Broker group's name."""
    address: str = ""
    """Who answered, or was asked."""
    writer: int = UNKNOWN
    counter: int = UNKNOWN
    attempt: int = 0
    digest: int = 0
    """CRC-32 of the body that was sent; of a request or reply: of the only reply that belongs to it."""
    offset: int = UNKNOWN
    """Of a send: the queue offset that the broker told. Of a poll or scan: the offset asked for."""
    position: int = UNKNOWN
    """Of a send: the physical offset that the broker told."""
    term: int = UNKNOWN
    leader: str = ""
    value: int = UNKNOWN
    """See the acts; of a poll or scan, the offset to go on from; of a request or reply, CRC-32 of the reply's body."""
    end: int = UNKNOWN
    """Of a poll or scan: the end of the queue that the broker told."""
    delay_until: int = UNKNOWN
    """Of a send: not to be delivered before this time, monotonic ns; of a request: its deadline."""
    transaction: str = ""
    error: str = ""


class Read(NamedTuple):
    """One message in the answer to a poll or scan; `op` is the answer's."""

    op: int
    topic: str
    queue: int
    offset: int
    position: int
    writer: int
    counter: int
    attempt: int
    digest: int
    """CRC-32 of the body that was read."""
    transaction: str = ""


class Fault(NamedTuple):
    """One act of the nemesis, and the proof that it had an effect."""

    fault: int
    name: str
    target: str
    """Members, by what they are called; the role that was asked for stands in `wanted`."""
    wanted: str
    began: int
    ended: int = UNKNOWN
    effect: str = ""
    """What shows that it took place (a new pid, bytes lost, a counter); empty: nothing does."""


class Beat(NamedTuple):
    """A moment, monotonic ns, at which the harness's own loop had its turn: it has one every tenth of a second."""

    at: int


class Look(NamedTuple):
    """What one member said of itself at one time (/v1/raft, /v1/ha)."""

    at: int
    member: str
    role: str
    term: int
    leader: str
    last: int
    commit: int
    durable: int
    end: int
    """Position behind the log's last byte."""
