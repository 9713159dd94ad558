"""A registration's body: all topics of the broker in one piece, or in several that each fit a frame.

Several are sent when RocketMQ's enableSplitRegistration says so (splitRegistrationSize topics in each), and always when
one would be too long. A NameServer adds up what the pieces name. It takes the topics of a piece for changed when the
version is another one than the last, and answers QUERY_DATA_VERSION from it: so only the last piece carries the table's
own version. The others carry one that no table ever has (a counter below 0): a round that broke off is not taken for a
whole one, and no piece for a repetition. (RocketMQ sends the same version with all: topics that changed in any but the
first piece are ignored.)
"""

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from remoting.bodies.registry import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from runtime.crc import crc32

# Bytes from which a table is sent compressed whatever compressedRegister says (topicSysFlag and order get lost then).
COMPRESS_BYTES = 4 * 1024 * 1024
# Bytes of one piece, as sent; a frame holds 16 MiB, header included.
PIECE_BYTES_MAX = 12 * 1024 * 1024
# Topics of one piece at least: NameServers refuse a single topic of a broker that they do not know.
PIECE_TOPICS_MIN = 2


class RegistrationPiece(NamedTuple):
    """One request's body."""

    body: bytes
    compressed: bool

    def crc32(self) -> int:
        """Return the header's bodyCrc32."""
        return crc32(self.body) & 0x7FFFFFFF


def registration_pieces(
    topics: Mapping[str, TopicConfig], version: DataVersion, *, compressed: bool, piece_topics: int | None
) -> list[RegistrationPiece]:
    """Return the bodies, to be sent in this order; for any thread, 100,000 topics take a while.

    `compressed`: all of them, however short. `piece_topics`: as many in each, None for all in one if it fits.
    """
    plain = b"" if compressed else _body(topics, version).encode()
    compressed = compressed or len(plain) > COMPRESS_BYTES
    size = len(topics) if piece_topics is None else max(PIECE_TOPICS_MIN, piece_topics)
    if len(topics) <= size:
        whole = _piece(topics, version, compressed=True) if compressed else RegistrationPiece(plain, compressed=False)
        if len(whole.body) <= PIECE_BYTES_MAX:
            return [whole]
    names = iter(topics.items())
    left = deque(iter(lambda: dict(islice(names, size)), {}))
    pieces: list[RegistrationPiece] = []
    while left:
        part = left.popleft()
        own = msgspec.structs.replace(version, counter=-1 - len(pieces)) if left else version
        piece = _piece(part, own, compressed=compressed)
        half = len(part) // 2
        if len(piece.body) <= PIECE_BYTES_MAX or half < PIECE_TOPICS_MIN:
            pieces.append(piece)
            continue
        rows = iter(part.items())
        first = dict(islice(rows, half))
        left.extendleft((dict(rows), first))
    return pieces


def _body(topics: Mapping[str, TopicConfig], version: DataVersion) -> RegisterBrokerBody:
    table = TopicConfigTable(dataVersion=version, topicConfigTable=dict(topics))
    return RegisterBrokerBody(topicConfigSerializeWrapper=table)


def _piece(topics: Mapping[str, TopicConfig], version: DataVersion, *, compressed: bool) -> RegistrationPiece:
    body = _body(topics, version)
    return RegistrationPiece(body.encode_compressed() if compressed else body.encode(), compressed)
