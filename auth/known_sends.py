"""Sends that are like others which were let in: their signature is verified, and nothing else is looked at twice.

Most of what a producer says with a send is what it said with the one before: all but queue, time, properties and
signature. What depends on those other fields only (who it is, what he may do, most of the typed header and of the text
that is signed) is kept under them, as users and policies were when it was found out.
"""

import msgspec

from remoting.command import Body
from remoting.connection import Connection
from remoting.headers.send import SendMessageRequestHeaderV2
from remoting.headers.signed import ACCESS_KEY, SECURITY_TOKEN, SignedSend
from remoting.signing import Proof

# Kinds of sends that are kept beside each connection's last one, and the characters that the fields of one may have:
# some ten MiB at the most. A longer one is looked at as any other request; the kind that came first makes room for
# another.
KINDS_MAX = 4096
KIND_LENGTH_MAX = 1024
# Queues by how they are written; of another number a send is looked at as any other request.
_QUEUES = {str(number): number for number in range(1024)}
_TIME_LENGTH_MAX = 18
# At a connection: the kind of its last send.
_LAST = "auth.send"

# The fields under which a kind is kept, and what they hold.
KEPT_UNDER = frozenset({ACCESS_KEY, SECURITY_TOKEN, *"abcdfhjklmn"})
Said = tuple[str | None, ...]
_replaced = msgspec.structs.replace


class SendKind:
    """A kind of sends that was let in, as users and policies were when it was."""

    __slots__ = (
        "_before_properties", "_before_queue", "_before_time", "_behind", "_header", "_proof", "_time", "_time_said",
        "as_of", "said", "user",
    )  # fmt: skip

    def __init__(
        self, send: SignedSend, said: Said, header: SendMessageRequestHeaderV2, secret_key: str, as_of: int
    ) -> None:
        """Of the kind of `send`, whose typed header this is."""
        self.as_of, self.said, self.user = as_of, said, send.AccessKey
        self._header = header
        self._proof = Proof(secret_key)
        # The values in the order of their names, but for the three that come between these.
        self._before_queue = f"{send.AccessKey}{send.SecurityToken or ''}{send.a}{send.b}{send.c}{send.d}"
        self._before_time, self._before_properties = send.f, send.h
        self._behind = "".join(value or "" for value in (send.j, send.k, send.l, send.m, send.n))
        # Of the last send: many are made in one millisecond.
        self._time_said, self._time = "", 0

    def read(self, send: SignedSend, body: Body, proved: bool = False) -> SendMessageRequestHeaderV2 | None:
        """Return the typed header of a send of this kind that is signed by its user, all of its fields and the body.

        None of one that is not, or is to be looked at as any other. `proved`: the signature does not matter.
        """
        queue_id, time = _QUEUES.get(send.e), send.g
        if time != self._time_said:
            if len(time) > _TIME_LENGTH_MAX or not (time.isdecimal() and time.isascii()):
                return None
            self._time_said, self._time = time, int(time)
        if queue_id is None or not (
            proved
            or self._proof.holds(
                f"{self._before_queue}{send.e}{self._before_time}{time}{self._before_properties}{send.i}{self._behind}",
                body,
                send.Signature,
            )
        ):
            return None
        return _replaced(self._header, queueId=queue_id, bornTimestamp=self._time, properties=send.i)


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
        last: SendKind | None = connection.attachments.get(_LAST)
        if last is not None and last.said == said and last.as_of == as_of:
            return last
        kind = self._kinds.get((connection.peer[0], said))
        if kind is None or kind.as_of != as_of:
            return None
        connection.attachments[_LAST] = kind
        return kind

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


def _said(send: SignedSend) -> Said:
    # What differs most comes first.
    return (
        send.b, send.a, send.AccessKey, send.f, send.h, send.j, send.c, send.d, send.k, send.l, send.m, send.n,
        send.SecurityToken,
    )  # fmt: skip
