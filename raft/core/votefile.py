"""The term and the vote on disk: the one small file without which a member could vote twice.

Layout, big-endian, 76 bytes: magic "RMQV", version u16, length of votedFor u16, store id 16 bytes, term i64, votedFor
40 bytes (zeros behind it), CRC-32 of all before. Replaced as a whole, fsynced with its folder; the previous content
that replace_reserved leaves as `.bak` is never read: an older vote is no vote.
"""

import struct
from collections.abc import Callable
from pathlib import Path

from runtime.crc import crc32
from runtime.durable import replace_reserved

MAGIC = b"RMQV"
VERSION = 1
STORE_ID_BYTES = 16
VOTED_FOR_BYTES_MAX = 40
TERM_MAX = (1 << 62) - 1

_BODY = struct.Struct(">4sHH16sq40s")
_CRC = struct.Struct(">I")
FILE_BYTES = _BODY.size + _CRC.size

_WAY_OUT = (
    "this member may have voted, and does not know how. Remove it from the group, empty its store folder, and add it"
    " again as a learner (raftmq cluster remove-peer, then add-peer)"
)


class VoteFileDamaged(Exception):
    """The file is there but cannot be trusted; the text says what to do."""


class VoteFileMissing(Exception):
    """The node has a log but no vote file; the text says what to do."""


class VoteFile:
    """What this member has promised: its term, whom it voted for in it, and the id of its disk."""

    def __init__(
        self,
        path: Path,
        store_id: bytes,
        term: int,
        voted_for: str,
        replace: Callable[[Path, bytes], None] = replace_reserved,
    ) -> None:
        self._path = path
        self._replace = replace
        self._store_id = store_id
        self._term = term
        self._voted_for = voted_for

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        has_log: bool,
        new_id: Callable[[], bytes],
        replace: Callable[[Path, bytes], None] = replace_reserved,
    ) -> "VoteFile":
        """Read the file, or write the first one where there is none and no control record either.

        `has_log`: the store holds a control record, so this member may have voted before (R6). `new_id` gives 16
        random bytes. Raises VoteFileDamaged, VoteFileMissing, OSError.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            if has_log:
                raise VoteFileMissing(f"{path} is missing although the log has Raft entries: {_WAY_OUT}") from None
            votes = cls(path, new_id(), 0, "", replace)
            assert len(votes.store_id) == STORE_ID_BYTES, f"a store id has {STORE_ID_BYTES} bytes"
            votes.save(0, "")
            return votes
        store_id, term, voted_for = _decoded(path, content)
        return cls(path, store_id, term, voted_for, replace)

    @property
    def store_id(self) -> bytes:
        """16 random bytes, made with the file: another disk under the same name has others."""
        return self._store_id

    @property
    def term(self) -> int:
        """The latest term this member knows of."""
        return self._term

    @property
    def voted_for(self) -> str:
        """The member that got this member's vote in `term`, "" for nobody yet."""
        return self._voted_for

    def save(self, term: int, voted_for: str) -> None:
        """Make term and vote durable, then believe them.

        OSError means that neither is known to be on disk: nothing is kept in memory, and the member must stop, because
        the disk may hold the new vote all the same.
        """
        assert 0 <= term <= TERM_MAX, f"term {term} is out of range"
        assert term >= self._term, f"the term would go back from {self._term} to {term}"
        assert term > self._term or self._voted_for in {"", voted_for}, (
            f"the vote of term {term} is {self._voted_for} and would become {voted_for or 'nobody'}"
        )
        self._replace(self._path, _encoded(self._store_id, term, voted_for))
        self._term = term
        self._voted_for = voted_for


def _encoded(store_id: bytes, term: int, voted_for: str) -> bytes:
    name = voted_for.encode()
    assert len(name) <= VOTED_FOR_BYTES_MAX, f"a member id of {len(name)} bytes does not fit the vote file"
    body = _BODY.pack(MAGIC, VERSION, len(name), store_id, term, name)
    return body + _CRC.pack(crc32(body))


def _decoded(path: Path, content: bytes) -> tuple[bytes, int, str]:
    """(store id, term, votedFor); VoteFileDamaged unless every byte is what `_encoded` writes."""
    if len(content) != FILE_BYTES:
        raise VoteFileDamaged(f"{path} has {len(content)} bytes instead of {FILE_BYTES}: {_WAY_OUT}")
    body = content[: _BODY.size]
    if _CRC.unpack_from(content, _BODY.size)[0] != crc32(body):
        raise VoteFileDamaged(f"{path} is damaged, its CRC-32 does not match: {_WAY_OUT}")
    magic, version, length, store_id, term, name = _BODY.unpack(body)
    if magic != MAGIC:
        raise VoteFileDamaged(f"{path} is no vote file: {_WAY_OUT}")
    if version != VERSION:
        raise VoteFileDamaged(
            f"{path} is of version {version}, this program knows {VERSION}: start the program that wrote it"
        )
    try:
        voted_for = name[:length].decode()
    except UnicodeDecodeError:
        voted_for = ""
    if not 0 <= term <= TERM_MAX or _encoded(store_id, term, voted_for) != content:
        raise VoteFileDamaged(f"{path} holds a term or a vote that cannot be: {_WAY_OUT}")
    return store_id, term, voted_for
