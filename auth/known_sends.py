"""Sends that are like others which were let in: their signature is verified, and nothing else is looked at twice.

Most of what a producer says with a send is what it said with the one before: all but queue, time, properties and
signature. What depends on those other fields only (who it is, what he may do, most of the typed header and of the text
that is signed) is kept under them, as users and policies were when it was found out.
"""

from hmac import compare_digest

import msgspec

from remoting.command import Body, Command
from remoting.connection import Connection
from remoting.headers.send import SendMessageRequestHeaderV2
from remoting.headers.signed import ACCESS_KEY, SECURITY_TOKEN, SignedSend
from remoting.repeated import RepeatedSend, reader_of_likes
from remoting.signing import Proof

# Kinds of sends that are kept beside each connection's last one, and the characters that the fields of one may have:
# some ten MiB at the most. A longer one is looked at as any other request; the kind that came first makes room for
# another.
KINDS_MAX = 4096
KIND_LENGTH_MAX = 1024
# Queues by how they are written; of another number a send is looked at as any other request.
_QUEUES = {b"%d" % number: number for number in range(1024)}
_TIME_LENGTH_MAX = 18
# At a connection: its last sends.
_LAST = "auth.send"
# Sends of one kind and length one after the other from which on the next are compared with them, not decoded; and how
# many must come before that is tried again, of a header of which it cannot be done.
_IN_A_ROW = 4
_BEFORE_NEXT_TRY = 10_000

# The fields under which a kind is kept, and what they hold.
KEPT_UNDER = frozenset({ACCESS_KEY, SECURITY_TOKEN, *"abcdfhjklmn"})
Said = tuple[str | None, ...]
_replaced = msgspec.structs.replace


class SendKind:
    """A kind of sends that was let in, as users and policies were when it was."""

    __slots__ = (
        "_before_properties", "_before_queue", "_before_time", "_behind", "_header", "_signature", "_time",
        "_time_said", "as_of", "said", "user",
    )  # fmt: skip

    def __init__(
        self, send: SignedSend, said: Said, header: SendMessageRequestHeaderV2, secret_key: str, as_of: int
    ) -> None:
        """Of the kind of `send`, whose typed header this is."""
        self.as_of, self.said, self.user = as_of, said, send.AccessKey
        self._header = header
        self._signature = Proof(secret_key).signature
        # The values in the order of their names, but for the three that come between these.
        first = (send.AccessKey, send.SecurityToken or "", send.a, send.b, send.c, send.d)
        self._before_queue, self._before_time, self._before_properties = _bytes(*first), _bytes(send.f), _bytes(send.h)
        self._behind = _bytes(*(value or "" for value in (send.j, send.k, send.l, send.m, send.n)))
        # Of the last send: many are made in one millisecond.
        self._time_said, self._time = b"", 0

    def read(self, send: SignedSend, body: Body, proved: bool = False) -> SendMessageRequestHeaderV2 | None:
        """Return the typed header of a send of this kind that is signed by its user, all of its fields and the body.

        None of one that is not, or is to be looked at as any other. `proved`: the signature does not matter.
        """
        queue, time, given = send.e.encode(), send.g.encode(), send.Signature.encode()
        return self.read_repeated(RepeatedSend(self, queue, time, send.i, given), body, proved)

    def read_repeated(self, send: RepeatedSend, body: Body, proved: bool = False) -> SendMessageRequestHeaderV2 | None:
        """Do as `read`, of what such a send says of its own."""
        queue, time, properties = send.queue, send.time, send.properties
        queue_id = _QUEUES.get(queue)
        if time != self._time_said:
            if len(time) > _TIME_LENGTH_MAX or not time.isdigit():
                return None
            self._time_said, self._time = time, int(time)
        if queue_id is None:
            return None
        if not proved:
            content = (
                self._before_queue, queue, self._before_time, time, self._before_properties, properties.encode(),
                self._behind,
            )  # fmt: skip
            if not compare_digest(self._signature(content, body), send.signature):
                return None
        return _replaced(self._header, queueId=queue_id, bornTimestamp=self._time, properties=properties)


class _Row:
    """The last sends of a connection that were like one another."""

    __slots__ = ("count", "kind", "length")

    def __init__(self, kind: SendKind) -> None:
        self.kind, self.length, self.count = kind, 0, 0


class KnownSends:
    """The kinds of sends that were let in lately."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, Said], SendKind] = {}
        self._as_of = 0

    def __len__(self) -> int:
        return len(self._kinds)

    def kind(self, connection: Connection, send: SignedSend, as_of: int) -> SendKind | None:
        """Return the kind of a send; None of one that was not let in from there, as users and policies are now."""
        said = _said(send)
        last: _Row | None = connection.attachments.get(_LAST)
        if last is not None and last.kind.said == said and last.kind.as_of == as_of:
            return last.kind
        kind = self._kinds.get((connection.peer[0], said))
        if kind is None or kind.as_of != as_of:
            return None
        connection.attachments[_LAST] = _Row(kind)
        return kind

    def came(self, connection: Connection, request: Command, send: SignedSend) -> None:
        """Note that a send of a known kind was let in: after some that are as long the next are told at sight."""
        row: _Row = connection.attachments[_LAST]
        length = len(request.raw_header or b"")
        if length != row.length:
            row.length, row.count = length, 0
        row.count += 1
        if row.count == _IN_A_ROW:
            reader = reader_of_likes(request, send, row.kind)
            if reader is None:
                row.count = -_BEFORE_NEXT_TRY
            else:
                row.count = 0
                connection.decode_by(reader)

    def note(
        self, host: str, send: SignedSend, header: SendMessageRequestHeaderV2, secret_key: str, as_of: int
    ) -> None:
        """Keep a kind of which one send was let in just now."""
        said, kinds = _said(send), self._kinds
        if as_of != self._as_of:
            kinds.clear()
            self._as_of = as_of
        if sum(len(value) for value in said if value) > KIND_LENGTH_MAX:
            return
        key = host, said
        if len(kinds) >= KINDS_MAX and key not in kinds:
            # The oldest: a dictionary keeps the order in which its keys came.
            del kinds[next(iter(kinds))]
        kinds[key] = SendKind(send, said, header, secret_key, as_of)


def _bytes(*values: str) -> bytes:
    return "".join(values).encode("utf-8", "surrogatepass")


def _said(send: SignedSend) -> Said:
    # What differs most comes first.
    return (
        send.b, send.a, send.AccessKey, send.f, send.h, send.j, send.c, send.d, send.k, send.l, send.m, send.n,
        send.SecurityToken,
    )  # fmt: skip
