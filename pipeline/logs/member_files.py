"""What a member left behind: its store folder, read offline by store/'s own readers, as rows that checks compare.

Nothing is repaired and nothing is changed; what cannot be read is told beside what can. Positions are those of the
CommitLog, bytes; UNKNOWN (-1) stands where something is not there.
"""

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from pipeline.history.rows import UNKNOWN
from pipeline.logs.log import read_log
from pipeline.logs.queues import compare_index, read_queues
from pipeline.logs.rows import Config, EntryRow, GapRow, MessageRow, Queue, QueueRow
from raft.protocol.types import Mark
from remoting.bodies.group import ConsumerOffsetTable
from remoting.errors import HeaderError
from remoting.fastjson import loads
from remoting.record import BLANK_BYTES
from runtime.crc import crc32
from store.errors import StoreError
from store.files.floorfile import FLOOR_NAME, VOTE_NAME, read_floor
from store.files.mappedfile import NAME_DIGITS, read_cold
from store.log.logscan import Span
from store.recovery.inspect import StoreFolder

# Bytes of the log that are hashed together; only pieces whose hashes differ are looked into.
CHUNK_BYTES = 1024 * 1024
# The key of a config file's stamp: up to which entry of the group's log it holds all.
STAMP_KEY = "raftStamp"
# Why a log that may be torn ends where it does.
NEVER_SYNCED = "torn, and never synced"
# What is told of an index file that cannot be understood.
NO_ENTRIES = "where its entries begin cannot be told"
_OFFSETS = "consumerOffset.json"

# The vote file of raft/, 76 bytes: magic, version, length of the name, store id, term, name; then a CRC-32 of those.
_VOTE = struct.Struct(">4sHH16sq40s")
_VOTE_MAGIC = b"RMQV"
_VOTE_VERSION = 1
_CRC = struct.Struct(">I")


class Vote(NamedTuple):
    """What the vote file holds: `voted_for` is "" for nobody, `store_id` hexadecimal."""

    term: int
    voted_for: str
    store_id: str


class MemberLogBytes:
    """The bytes of a CommitLog's files, read as they are asked for."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self.begin = spans[0].start if spans else 0
        self.end = spans[-1].start + spans[-1].size if spans else 0
        # All are of one size, but for a copy that was cut short.
        self.file_bytes = max((span.size for span in spans), default=0)
        self._hashes: dict[tuple[int, int], bytes] = {}

    @classmethod
    def of(cls, folder: Path) -> "MemberLogBytes":
        """Return those of a store folder."""
        paths = sorted((folder / "commitlog").iterdir())
        named = [path for path in paths if path.name.isdecimal() and len(path.name) == NAME_DIGITS]
        return cls([Span(path, int(path.name), path.stat().st_size) for path in named if path.stat().st_size])

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of [start, end); those of a missing file are left out, so that there are fewer."""
        found = bytearray()
        for span in self._spans:
            first, last = max(start, span.start), min(end, span.start + span.size)
            if first < last:
                found += read_cold(span.path, first - span.start, last - first)
        return bytes(found)

    def digest(self, start: int, end: int) -> bytes:
        """Return the hash of [start, end), at most CHUNK_BYTES; remembered."""
        assert end - start <= CHUNK_BYTES, "hashed in pieces"
        known = self._hashes.get((start, end))
        if known is None:
            known = self._hashes[start, end] = blake2b(self.read(start, end), digest_size=16).digest()
        return known


@dataclass(slots=True)
class Artefact:
    """A member's store folder. `damage` holds a text for each file beside the log that cannot be understood."""

    member: str
    log: MemberLogBytes
    begin: int = 0
    """The first position that is kept."""
    end: int = 0
    """The position behind the last whole record or entry."""
    entries: list[EntryRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    configs: list[Config] = field(default_factory=list)
    queues: dict[Queue, list[QueueRow]] = field(default_factory=dict)
    unindexed: list[tuple[int, str]] = field(default_factory=list)
    """(position, key) of messages that the key index should know, and does not."""
    misindexed: list[int] = field(default_factory=list)
    """Positions that the key index knows, and where no message begins."""
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(consumer group, topic, queue) → offset, of consumerOffset.json."""
    offsets_before: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The same of the version before, consumerOffset.json.bak."""
    stamps: dict[str, int] = field(default_factory=dict)
    """Name of a config file → the index up to which it holds the group's metadata."""
    vote: Vote | None = None
    floor: Mark | None = None
    dispatched: int = UNKNOWN
    """The position up to which log, queues and index were synced together, as the checkpoint says."""
    flushed: int = UNKNOWN
    """The position up to which the checkpoint knows the log as synced."""
    damage: dict[str, str] = field(default_factory=dict)
    """Name of the file → what is wrong with it."""
    stopped: bool = True
    """Whether it was stopped in good order, and not killed."""

    @property
    def is_raft(self) -> bool:
        """Whether its log ends as that of a group's member: the last entry does not end the group."""
        return bool(self.entries) and not self.entries[-1].classic

    @property
    def last(self) -> int:
        """Index of the last entry, 0 when there is none."""
        return self.entries[-1].index if self.entries else 0

    @property
    def vouched(self) -> int:
        """The position up to which the member knew its log as on disk when it was ended."""
        return max(self.floor.end if self.floor is not None else 0, self.flushed, self.dispatched, 0)

    @property
    def may_be_torn(self) -> bool:
        """Whether its log may end in what was never synced, above `vouched`: of a group's member that was killed.

        A power cut leaves any part of that, and the member's next start cuts it at the first damage (rule R4). The
        checkpoints of a single broker and of a pair are seconds old, and excuse nothing.
        """
        return not self.stopped and self.floor is not None


def read_artefact(folder: Path, member: str = "") -> Artefact:
    """Read a store folder; `member` is what it is called, by default its name.

    Raises StoreError when it is no store folder, OSError.
    """
    found = read_beside(folder, member)
    log, rows = found.log, read_log(folder)
    found.end, found.entries, found.messages, found.configs = rows.end, rows.entries, rows.messages, rows.configs
    found.gaps = [gap._replace(empty=not any(log.read(gap.start, gap.start + BLANK_BYTES))) for gap in rows.gaps]
    found.queues = read_queues(folder)
    index = compare_index(folder, rows.keyed)
    found.unindexed, found.misindexed = index.lacking, index.wrong
    found.damage.update({f"index/{name}": NO_ENTRIES for name in index.unreadable})
    _leave_out_torn(found)
    return found


def _leave_out_torn(found: Artefact) -> None:
    """End a log that may be torn where its intact part ends, if all is intact that the member vouched for.

    One gap stands there, to the end of the files.
    """
    ends = [gap.start for gap in found.gaps] + [entry.position for entry in found.entries if not entry.follows]
    torn = min(ends, default=UNKNOWN)
    if not found.may_be_torn or torn < found.vouched:
        return
    found.entries = [entry for entry in found.entries if entry.position < torn]
    found.messages = [row for row in found.messages if row.position < torn]
    found.configs = [config for config in found.configs if config.index <= found.last]
    found.gaps = [gap for gap in found.gaps if gap.start < torn]
    found.gaps.append(GapRow(torn, max(torn, found.log.end), NEVER_SYNCED))
    found.end = max((row.end for rows in (found.entries[-1:], found.messages[-1:]) for row in rows), default=0)


def read_beside(folder: Path, member: str = "") -> Artefact:
    """Read what stands beside the log of a store folder: config files, vote, floor, checkpoint. Raises as above."""
    store = StoreFolder(folder)
    log = MemberLogBytes.of(folder)
    found = Artefact(member or folder.name, log, begin=log.begin)
    found.dispatched, found.flushed = store.checkpoint().dispatched, store.checkpoint().flushed
    found.stopped = not store.unclean
    _read_config(found, folder / "config")
    _read_promises(found, folder)
    return found


def _read_config(found: Artefact, config: Path) -> None:
    """Take over the offsets, and the stamps of all files."""
    for name, table in ((_OFFSETS, found.offsets), (f"{_OFFSETS}.bak", found.offsets_before)):
        path = config / name
        try:
            stored = ConsumerOffsetTable.decode(path.read_bytes())
        except FileNotFoundError:
            continue
        except HeaderError as error:
            found.damage[name] = str(error)
            continue
        for key, queues in stored.offsetTable.items():
            topic, _, group = key.partition("@")
            table.update({(group, topic, queue): offset for queue, offset in queues.items()})
    for path in sorted(config.glob("*.json")):
        try:
            content = loads(path.read_bytes())
        except HeaderError as error:
            found.damage[path.name] = str(error)
            continue
        stamp = content.get(STAMP_KEY) if isinstance(content, dict) else None
        if isinstance(stamp, dict) and isinstance(stamp.get("applied"), int):
            found.stamps[path.name] = stamp["applied"]


def _read_promises(found: Artefact, folder: Path) -> None:
    """Take over vote and floor."""
    try:
        found.floor = read_floor(folder)
    except StoreError as error:
        found.damage[FLOOR_NAME] = str(error)
    try:
        found.vote = read_vote((folder / VOTE_NAME).read_bytes())
    except FileNotFoundError:
        return
    except ValueError as error:
        found.damage[VOTE_NAME] = str(error)


def read_vote(content: bytes) -> Vote:
    """Return what a vote file holds; ValueError in words when it is damaged."""
    if len(content) != _VOTE.size + _CRC.size:
        raise ValueError(f"{len(content)} bytes instead of {_VOTE.size + _CRC.size}")
    if _CRC.unpack_from(content, _VOTE.size)[0] != crc32(content[: _VOTE.size]):
        raise ValueError("its CRC-32 does not match")
    magic, version, length, store_id, term, name = _VOTE.unpack_from(content)
    if (magic, version) != (_VOTE_MAGIC, _VOTE_VERSION):
        raise ValueError(f"it is of kind {magic!r} and version {version}, known is version {_VOTE_VERSION}")
    return Vote(term, name[:length].decode("utf-8", "replace"), store_id.hex())


def encode_vote(vote: Vote) -> bytes:
    """Return the vote file that read_vote reads."""
    name = vote.voted_for.encode()
    body = _VOTE.pack(_VOTE_MAGIC, _VOTE_VERSION, len(name), bytes.fromhex(vote.store_id), vote.term, name)
    return body + _CRC.pack(crc32(body))
