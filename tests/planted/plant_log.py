"""Plants one anomaly B1 to B14 into the bytes of a small cluster's store folders, so that checks can be proved.

PLANTS names, for each kind of cluster, what can be planted there. What else must be found, because one follows from the
other, stands in IMPLIED: entries that differ differ in their bytes.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline.history.body import HEAD as TAG
from pipeline.history.rows import Kind, Op
from pipeline.logs.member_files import Artefact, Vote, encode_vote, read_artefact
from pipeline.logs.rows import EntryRow, MessageRow
from raft.protocol.types import Mark
from remoting.record import HEADS
from runtime.crc import crc32
from store.controlrecord import Control, chained, decode_control, encode_control, previous_chain
from store.derived.indextable import ENTRY_DTYPE
from store.files.disk import Disk
from store.files.floorfile import VOTE_NAME, FloorFile
from store.files.mappedfile import file_name
from store.files.queuefile import ENTRY, ENTRY_BYTES
from store.log.logscan import check_record
from tests.planted.plant_stores import ENTRIES, LOG_FILE_BYTES, PAIR, RAFT, TOPIC, Cluster, build, copied, write_offsets

IMPLIED: Mapping[str, frozenset[str]] = MappingProxyType(
    {"B1": frozenset({"B13"}), "B3": frozenset({"B13"}), "B4": frozenset({"B13"})}
)

# Of a record with IPv4 hosts, which all here are.
_BODY_CRC_AT = 8
_BORN_TIMESTAMP_AT = 40
_BODY_AT = HEADS[0].size
_CRC = struct.Struct(">I")


@dataclass(frozen=True)
class Planted:
    """A cluster with an anomaly, and what a witness of it must say."""

    cluster: Cluster
    check: str
    witness: dict[str, Any]


def clean(root: Path, seed: int, kind: str = RAFT) -> Cluster:
    """Build a cluster with nothing wrong about it."""
    return build(root, seed, kind)


def plant(root: Path, seed: int, check: str, kind: str = RAFT) -> Planted:
    """Build a cluster that has exactly one anomaly, and what it implies. KeyError for one that is not in PLANTS."""
    cluster, witness = PLANTS[kind][check](root, seed)
    return Planted(cluster, check, witness)


Made = tuple[Cluster, dict[str, Any]]

# -- bytes


def _patch(folder: Path, position: int, data: bytes) -> None:
    """Write over bytes of a log, within one file."""
    path = folder / "commitlog" / file_name(position - position % LOG_FILE_BYTES)
    with path.open("r+b") as file:
        file.seek(position % LOG_FILE_BYTES)
        file.write(data)


def _floor(folder: Path, entry: EntryRow, *, chain: int | None = None) -> None:
    """Make an entry the floor of a member."""
    (folder / "raft" / "floor").unlink()
    floor = FloorFile(folder, Disk())
    floor.advance(Mark(entry.index, entry.term, entry.end, entry.chain if chain is None else chain), floor.epoch)
    floor.close()


def _bodies(data: bytearray, log: Artefact, rows: list[MessageRow], bodies: list[bytes], begin: int) -> None:
    """Give records other bodies of the same length, with the CRC of each; `data` begins at position `begin`."""
    for row, body in zip(rows, bodies, strict=True):
        at = row.position - begin
        data[at + _BODY_AT : at + _BODY_AT + len(body)] = body
        data[at + _BODY_CRC_AT : at + _BODY_CRC_AT + 4] = _CRC.pack(crc32(body) & 0x7FFFFFFF)
        assert isinstance(check_record(memoryview(data), at, row.position, check_crc=True), tuple), log.member


def _body(log: Artefact, row: MessageRow) -> bytes:
    """Return the body of a record."""
    head = log.log.read(row.position, row.position + _BODY_AT)
    return log.log.read(row.position + _BODY_AT, row.position + _BODY_AT + int.from_bytes(head[-4:], "big"))


def _otherwise(body: bytes) -> bytes:
    """Return a body of the same attempt and length that says something else."""
    return body[: TAG.size] + bytes(byte ^ 0xFF for byte in body[TAG.size :])


def _rewrite(log: Artefact, folder: Path, entry: EntryRow, covered: bytes, **changes: Any) -> Control:
    """Write an entry anew with other records or other fields, all of its CRCs right."""
    control = decode_control(log.log.read(entry.position, entry.position + entry.head))
    fields = {"covered_crc": crc32(covered), **changes}
    made = chained(control._replace(**fields), previous_chain(control))
    _patch(folder, entry.position, encode_control(made, _host(log, entry)) + covered)
    return made


def _host(log: Artefact, entry: EntryRow) -> bytes:
    head = HEADS[0].unpack(log.log.read(entry.position, entry.position + HEADS[0].size))
    host: bytes = head[11]
    return host


def _rows_of(log: Artefact, entry: EntryRow) -> list[MessageRow]:
    return [row for row in log.messages if row.index == entry.index]


def _op(cluster: Cluster, row: MessageRow) -> Op:
    return next(op for op in cluster.ops if (op.writer, op.counter) == (row.writer, row.counter))


# -- what is planted


def _b1_raft(root: Path, seed: int) -> Made:
    # The last entry of one member says something else, by the same leader of the same term.
    cluster = build(root, seed, RAFT)
    folder, log = cluster.folder("n2"), read_artefact(cluster.folder("n2"))
    entry = log.entries[-1]
    rows = _rows_of(log, entry)
    covered = bytearray(log.log.read(entry.position + entry.head, entry.end))
    _bodies(covered, log, rows[:1], [_otherwise(_body(log, rows[0]))], entry.position + entry.head)
    _rewrite(log, folder, entry, bytes(covered))
    _floor(folder, log.entries[-2])
    return cluster, {"index": entry.index}


def _b1_pair(root: Path, seed: int) -> Made:
    # A record of the slave has another body.
    cluster = build(root, seed, PAIR)
    log = read_artefact(cluster.folder("slave"))
    row = log.messages[len(log.messages) // 2]
    data = bytearray(log.log.read(row.position, row.end))
    _bodies(data, log, [row], [_otherwise(_body(log, row))], row.position)
    _patch(cluster.folder("slave"), row.position, bytes(data))
    return cluster, {"position": row.position}


def _b2(kind: str, holder: str) -> Callable[[Path, int], Made]:
    # The last append was acknowledged, and is on one member only.

    def make(root: Path, seed: int) -> Made:
        cluster = build(root, seed, kind, last_on=(holder,))
        row = read_artefact(cluster.folder(holder)).messages[-1]
        return cluster, {"counter": row.counter, "held_by": [holder]}

    return make


def _b3_raft(root: Path, seed: int) -> Made:
    # The newest entry of one member, which nobody was told of, is of an older term than the one before it.
    cluster = build(root, seed, RAFT, last_on=("n2",))
    folder, log = cluster.folder("n2"), read_artefact(cluster.folder("n2"))
    entry = log.entries[-1]
    for row in _rows_of(log, entry):
        cluster.unanswered(_op(cluster, row))
    _rewrite(log, folder, entry, log.log.read(entry.position + entry.head, entry.end), term=entry.term - 1)
    _floor(folder, log.entries[-2])
    return cluster, {"member": "n2", "index": entry.index}


def _b3_pair(root: Path, seed: int) -> Made:
    # A record of the slave, which nobody was told of, is zeros.
    cluster = build(root, seed, PAIR)
    log = read_artefact(cluster.folder("slave"))
    row = log.messages[len(log.messages) // 2]
    cluster.unanswered(_op(cluster, row))
    _patch(cluster.folder("slave"), row.position, bytes(row.size))
    return cluster, {"member": "slave", "position": row.position}


def _b4(kind: str, member: str) -> Callable[[Path, int], Made]:
    # A byte of one body on one member has changed.

    def make(root: Path, seed: int) -> Made:
        cluster = build(root, seed, kind)
        log = read_artefact(cluster.folder(member))
        row = log.messages[len(log.messages) // 2]
        if kind == PAIR:
            # An acknowledged message of a pair must be whole on both.
            cluster.unanswered(_op(cluster, row))
        body = _body(log, row)
        _patch(cluster.folder(member), row.position + _BODY_AT + TAG.size, bytes([body[TAG.size] ^ 1]))
        return cluster, {"member": member, "position": row.position}

    return make


def _b5(root: Path, seed: int) -> Made:
    # A config file holds entries that the log of its member does not have.
    cluster = build(root, seed, RAFT)
    write_offsets(cluster.folder("n1"), {0: 3, 1: 2}, ENTRIES + 4)
    return cluster, {"member": "n1", "file": "consumerOffset.json"}


def _b6(root: Path, seed: int) -> Made:
    # One member voted twice in a term, before and after a copy was taken.
    cluster = build(root / "end", seed, RAFT)
    cluster.earlier = [copied(cluster, root / "before")]
    folder = cluster.folder("n2")
    vote = read_artefact(folder).vote
    assert vote is not None, "members of a group vote"
    (folder / VOTE_NAME).write_bytes(encode_vote(Vote(vote.term, "n1", vote.store_id)))
    return cluster, {"member": "n2", "before": [2, "n0"], "after": [2, "n1"]}


def _b7(kind: str, member: str) -> Callable[[Path, int], Made]:
    # An entry of a queue has the tags code of another message.

    def make(root: Path, seed: int) -> Made:
        cluster = build(root, seed, kind)
        folder = cluster.folder(member)
        offset, position, size, code = read_artefact(folder).queues[TOPIC, 1][seed % 5]
        path = folder / "consumequeue" / TOPIC / "1" / f"{0:020d}"
        with path.open("r+b") as file:
            file.seek(offset * ENTRY_BYTES)
            file.write(ENTRY.pack(position, size, code + 1))
        return cluster, {"member": member, "topic": TOPIC, "queue": 1, "offset": offset}

    return make


def _b8_raft(root: Path, seed: int) -> Made:
    # Two messages of the last entry stand on all members where the other one was acknowledged.
    cluster = build(root, seed, RAFT)
    for log in cluster.artefacts():
        folder, entry = cluster.folder(log.member), log.entries[-1]
        rows = _rows_of(log, entry)[:2]
        covered = bytearray(log.log.read(entry.position + entry.head, entry.end))
        bodies = [_body(log, row) for row in rows]
        _bodies(covered, log, rows, bodies[::-1], entry.position + entry.head)
        _rewrite(log, folder, entry, bytes(covered))
        _floor(folder, log.entries[-2])
    return cluster, {"member": "n0", "counter": rows[0].counter, "position": rows[0].position}


def _b8_pair(root: Path, seed: int) -> Made:
    # Two messages stand on both members where the other one was acknowledged.
    cluster = build(root, seed, PAIR)
    for log in cluster.artefacts():
        # Two of one append, and so in one file and of one length.
        neighbours = (pair for pair in pairwise(log.messages) if pair[0].end == pair[1].position)
        rows = list(next(pair for pair in neighbours if pair[0].size == pair[1].size))
        data = bytearray(log.log.read(rows[0].position, rows[1].end))
        _bodies(data, log, rows, [_body(log, row) for row in rows][::-1], rows[0].position)
        _patch(cluster.folder(log.member), rows[0].position, bytes(data))
    return cluster, {"member": "slave", "counter": rows[1].counter, "position": rows[1].position}


def _b9(kind: str) -> Callable[[Path, int], Made]:
    # What all members had is gone from all of them; its senders were never answered.

    def make(root: Path, seed: int) -> Made:
        before = build(root / "before", seed, kind)
        cluster = build(root / "end", seed, kind, entries=ENTRIES - 2)
        rows = before.artefacts()[0].messages[len(cluster.ops) :]
        cluster.earlier = [before]
        index = {"index": ENTRIES - 1, "term": 2} if kind == RAFT else {"position": rows[0].position}
        return cluster, {"copy": 0, **index}

    return make


def _b10(kind: str) -> Callable[[Path, int], Made]:
    # A message in the log was refused, as its sender was told.

    def make(root: Path, seed: int) -> Made:
        cluster = build(root, seed, kind)
        op = cluster.ops[len(cluster.ops) // 2]
        position = op.position
        cluster.change(cluster.unanswered(op), kind=str(Kind.FAIL), error="NOT_LEADER")
        return cluster, {"counter": op.counter, "found": position}

    return make


def _b11(kind: str, member: str) -> Callable[[Path, int], Made]:
    # An entry of the key index has another hash.

    def make(root: Path, seed: int) -> Made:
        cluster = build(root, seed, kind)
        log = read_artefact(cluster.folder(member))
        path = next((cluster.folder(member) / "index").iterdir())
        row = log.messages[seed % (len(log.messages) - 1)]
        # The first entry of a message is its unique key's; the file's first entry is never used.
        number = 1 + log.messages.index(row) * _KEYS_EACH
        at = path.stat().st_size - _INDEX_ENTRIES * ENTRY_DTYPE.itemsize + number * ENTRY_DTYPE.itemsize
        with path.open("r+b") as file:
            file.seek(at)
            kept = int.from_bytes(file.read(4), "big")
            file.seek(at)
            file.write((kept ^ 1).to_bytes(4, "big"))
        return cluster, {"member": member, "position": row.position, "key": f"{row.counter:032X}"}

    return make


def _b12(kind: str, member: str) -> Callable[[Path, int], Made]:
    # A consumer group's offset stands behind the end of its queue.

    def make(root: Path, seed: int) -> Made:
        cluster = build(root, seed, kind)
        log = read_artefact(cluster.folder(member))
        write_offsets(cluster.folder(member), {0: len(log.queues[TOPIC, 0]) + 1, 1: 2}, log.last)
        return cluster, {"member": member, "topic": TOPIC, "queue": 0, "offset": len(log.queues[TOPIC, 0]) + 1}

    return make


def _b13(kind: str, member: str) -> Callable[[Path, int], Made]:
    # A byte differs that no CRC covers, before the first entry of a group: when a message was born.

    def make(root: Path, seed: int) -> Made:
        cluster = build(root, seed, kind)
        row = read_artefact(cluster.folder(member)).messages[seed % 3]
        position = row.position + _BORN_TIMESTAMP_AT + 7
        _patch(cluster.folder(member), position, b"\x01")
        return cluster, {"position": position}

    return make


def _b14(root: Path, seed: int) -> Made:
    # The floor of one member is of another log: its chain is.
    cluster = build(root, seed, RAFT)
    log = read_artefact(cluster.folder("n1"))
    _floor(cluster.folder("n1"), log.entries[-1], chain=log.entries[-1].chain ^ 1)
    return cluster, {"member": "n1", "index": log.entries[-1].index}


# Keys of each message here: its unique key, two words of KEYS, its tag; entries of an index file (plant_stores).
_KEYS_EACH = 4
_INDEX_ENTRIES = 400

PLANTS: Mapping[str, Mapping[str, Callable[[Path, int], Made]]] = MappingProxyType(
    {
        RAFT: {
            "B1": _b1_raft,
            "B2": _b2(RAFT, "n0"),
            "B3": _b3_raft,
            "B4": _b4(RAFT, "n1"),
            "B5": _b5,
            "B6": _b6,
            "B7": _b7(RAFT, "n1"),
            "B8": _b8_raft,
            "B9": _b9(RAFT),
            "B10": _b10(RAFT),
            "B11": _b11(RAFT, "n2"),
            "B12": _b12(RAFT, "n1"),
            "B13": _b13(RAFT, "n1"),
            "B14": _b14,
        },
        PAIR: {
            "B1": _b1_pair,
            "B2": _b2(PAIR, "master"),
            "B3": _b3_pair,
            "B4": _b4(PAIR, "slave"),
            "B7": _b7(PAIR, "slave"),
            "B8": _b8_pair,
            "B9": _b9(PAIR),
            "B10": _b10(PAIR),
            "B11": _b11(PAIR, "slave"),
            "B12": _b12(PAIR, "master"),
            "B13": _b13(PAIR, "slave"),
        },
    }
)
