"""Builds small clusters' store folders with the real store, and the history of the clients that filled them.

Two kinds: a Raft group of three that began as a single broker, and a master with a slave. All is drawn from a seed, so
that the same seed gives the same bytes, and a shorter build the beginning of a longer one.
"""

import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cbor2
import orjson

from pipeline.history.body import Tag, digest, make_body
from pipeline.history.promises import Promises
from pipeline.history.rows import UNKNOWN, Act, Kind, Look, Op
from pipeline.logs.member_files import STAMP_KEY, Artefact, Vote, encode_vote, read_artefact
from pipeline.plain.evidence import History
from pipeline.plain.replicas import Replicas
from raft.protocol.types import Entry, EntryType, Mark
from remoting.msgid import pack_host
from remoting.properties import encode_properties
from runtime.clock import ManualClock
from store.config import StoreConfig
from store.files.checkpoint import load_checkpoint, save_checkpoint
from store.files.disk import Disk
from store.files.floorfile import VOTE_NAME, FloorFile
from store.files.lockfile import ABORT_NAME
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from store.types import PendingRecord, PutResult

RAFT, PAIR = "raft", "pair"
HOST = pack_host("10.0.0.1", 10911)
TOPIC, GROUP, QUEUES = "T", "G", 2
BASE_MESSAGES = 3
ENTRIES = 8
# Small, so that a log has several.
LOG_FILE_BYTES = 8 * 1024
FRAME_BYTES = 700
MEMBERS = {RAFT: ("n0", "n1", "n2"), PAIR: ("master", "slave")}
_SECOND = 1_000_000_000


@dataclass
class Cluster:
    """What was built: a folder for each member, and what clients and members said."""

    root: Path
    kind: str
    ops: list[Op] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    earlier: "list[Cluster]" = field(default_factory=list)

    def folder(self, member: str) -> Path:
        """Return a member's store folder."""
        return self.root / member

    def artefacts(self) -> list[Artefact]:
        """Read all members' folders."""
        return [read_artefact(self.folder(member)) for member in MEMBERS[self.kind]]

    def replicas(self) -> Replicas:
        """Return the evidence that log checks look at."""
        mode = "raft" if self.kind == RAFT else "sync"
        promises = Promises(mode=mode, replicas=len(MEMBERS[self.kind]), group_members={"g": MEMBERS[self.kind]})
        history = History(tuple(self.ops), (), looks=tuple(self.looks), promises=promises)
        return Replicas(history, self.artefacts(), [copy.artefacts() for copy in self.earlier])

    def change(self, op: Op, **changes: Any) -> Op:
        """Replace an operation by a changed one and return it."""
        changed = op._replace(**changes)
        self.ops[self.ops.index(op)] = changed
        return changed

    def unanswered(self, op: Op) -> Op:
        """Make of an operation one that nobody knows the end of."""
        nothing = {"completed": UNKNOWN, "offset": UNKNOWN, "position": UNKNOWN, "term": UNKNOWN}
        return self.change(op, kind=str(Kind.INFO), **nothing)


class Builder:
    """Fills one cluster. `entries`: how many appends there are; `last_on`: who gets the last one."""

    def __init__(
        self, root: Path, seed: int, kind: str, *, entries: int = ENTRIES, last_on: Sequence[str] = ()
    ) -> None:
        self._dice = random.Random(seed)
        self._ids = random.Random(seed + 1)
        self.cluster = Cluster(root, kind)
        self._members = MEMBERS[kind]
        self._entries = entries
        self._last_on = tuple(last_on) or self._members
        self._counter = 0
        self._now = _SECOND

    def build(self) -> Cluster:
        """Build everything. Raises OSError."""
        first = self._members[0]
        store = self._open(first)
        self._put(store, BASE_MESSAGES)
        _sync(store)
        store.close()
        if self.cluster.kind == RAFT:
            for member in self._members[1:]:
                shutil.copytree(self.cluster.folder(first), self.cluster.folder(member))
            self._fill_group()
        else:
            self._fill_pair()
        self._write_files()
        return self.cluster

    # -- a Raft group

    def _fill_group(self) -> None:
        stores = {member: self._open(member, group=True) for member in self._members}
        logs = {member: _entries_of(store) for member, store in stores.items()}
        leader = logs[self._members[0]]
        for number in range(self._entries):
            term = 1 if number < self._entries_of_term_1 else 2
            if number == 0:
                leader.append(EntryType.CONFIG, term, self._config(), 0)
            elif number == self._entries_of_term_1:
                leader.append(EntryType.NOOP, term, b"", leader.commit)
            else:
                self._append(leader, term)
            last = number == self._entries - 1
            holders = self._last_on if last else self._members
            sent = [_copied(entry) for entry in leader.read(leader.last.index, 1 << 20)]
            if last and self._members[0] not in holders:
                leader.cut(leader.last.index - 1)
            for member in holders:
                if member != self._members[0]:
                    logs[member].accept(sent)
            for store in stores.values():
                _sync(store)
            if holders == self._members:
                for log in logs.values():
                    log.release(leader.last.index)
            self._look(leader, term)
        for store in stores.values():
            store.close()

    @property
    def _entries_of_term_1(self) -> int:
        return ENTRIES // 2

    def _append(self, leader: EntryLog, term: int) -> None:
        records = self._records(self._dice.randrange(2, 6))
        _, results = leader.append_records(records, term, leader.commit)
        self._acknowledge(records, results, term)

    def _config(self) -> bytes:
        """Return a CONFIG's payload: version, group, base (position, index, term, digest), classic, members."""
        members = [
            [name, f"10.0.0.1:{40911 + at}", self._ids.randbytes(16), True] for at, name in enumerate(self._members)
        ]
        payload: bytes = cbor2.dumps([1, self._ids.randbytes(16), 0, 0, 0, 0, False, members])
        return payload

    def _look(self, leader: EntryLog, term: int) -> None:
        """Note what each member said, as if it had been asked before the last entry was committed."""
        mark = leader.last
        for at, member in enumerate(self._members):
            role = "leader" if at == 0 else "follower"
            said = Look(self._now + at, member, role, term, "n0", mark.index, mark.index - 1, mark.index, mark.end)
            self.cluster.looks.append(said)

    # -- a pair

    def _fill_pair(self) -> None:
        master = self._open(self._members[0])
        slave = self._open(self._members[1], slave=True)
        for number in range(self._entries):
            before = master.written
            self._put(master, self._dice.randrange(2, 6))
            if number < self._entries - 1 or self._members[1] in self._last_on:
                _take(slave, master, master.written)
            else:
                _take(slave, master, before)
            _sync(master)
            _sync(slave)
        master.close()
        slave.close()

    # -- both

    def _open(self, member: str, *, group: bool = False, slave: bool = False) -> MessageStore:
        config = StoreConfig(
            storePathRootDir=str(self.cluster.folder(member)),
            mappedFileSizeCommitLog=LOG_FILE_BYTES,
            mappedFileSizeConsumeQueue=2000,
            maxHashSlotNum=50,
            maxIndexNum=400,
            flushIntervalCommitLog=3_600_000,
        )
        return MessageStore.open(config, store_host=HOST, clock=ManualClock(), stepped=True, group=group, slave=slave)

    def _put(self, store: MessageStore, count: int) -> None:
        records = self._records(count)
        results = store.put_many(records)
        store.write()
        self._acknowledge(records, results, UNKNOWN)

    def _records(self, count: int) -> list[PendingRecord]:
        """Make messages, bodies of one length; their tags are counted on by _acknowledge."""
        size = self._dice.randrange(50, 300)
        made = []
        for number in range(self._counter, self._counter + count):
            properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"key{number} all", "TAGS": f"tag{number % 3}"}
            body = make_body(Tag(7, number, 0), self._dice.randbytes(size))
            made.append(
                PendingRecord(TOPIC, number // 2 % QUEUES, 0, 0, 1000, HOST, 0, 0, body, encode_properties(properties))
            )
        return made

    def _acknowledge(self, records: Iterable[PendingRecord], results: Iterable[PutResult], term: int) -> None:
        for record, result in zip(records, results, strict=True):
            self._now += _SECOND // 100
            self.cluster.ops.append(
                Op(
                    op=len(self.cluster.ops), process=1, act=str(Act.SEND), kind=str(Kind.OK), invoked=self._now,
                    completed=self._now + _SECOND // 200, topic=TOPIC, queue=record.queue_id, broker="g", writer=7,
                    counter=self._counter, digest=digest(record.body), offset=result.queue_offset,
                    position=result.physical_offset, term=term, leader="n0", address="n0",
                )
            )  # fmt: skip
            self._counter += 1

    def _write_files(self) -> None:
        """Write votes and consumer offsets, as the broker and Raft would have left them."""
        for member in self._members:
            folder = self.cluster.folder(member)
            last = read_artefact(folder).last
            write_offsets(folder, {0: 3, 1: 2}, last)
            write_offsets(folder, {0: 2, 1: 2}, max(last - 1, 0), name="consumerOffset.json.bak")
            if self.cluster.kind == RAFT:
                store_id = self._ids.randbytes(16).hex()
                (folder / VOTE_NAME).write_bytes(encode_vote(Vote(2, "n0", store_id)))


def build(root: Path, seed: int, kind: str, *, entries: int = ENTRIES, last_on: Sequence[str] = ()) -> Cluster:
    """Build a cluster in a folder that is not there yet; see Builder."""
    return Builder(root, seed, kind, entries=entries, last_on=last_on).build()


def copied(cluster: Cluster, root: Path) -> Cluster:
    """Copy all folders of a cluster, as they are now."""
    shutil.copytree(cluster.root, root)
    return replace(cluster, root=root, earlier=[])


def kill_before_sync(folder: Path, synced: int) -> None:
    """Have a group's member have been killed when it had synced up to an entry, and nothing behind it."""
    entry = next(entry for entry in read_artefact(folder).entries if entry.index == synced)
    disk = Disk()
    floor = FloorFile(folder, disk)
    floor.lower(Mark(entry.index, entry.term, entry.end, entry.chain))
    floor.close()
    save_checkpoint(folder, disk, replace(load_checkpoint(folder), dispatched=entry.end, flushed=entry.end))
    (folder / ABORT_NAME).touch()


def write_offsets(folder: Path, queues: dict[int, int], applied: int, *, name: str = "consumerOffset.json") -> None:
    """Write the offsets of GROUP in TOPIC; a stamp says that `applied` is in it, 0 for none."""
    (folder / "config").mkdir(exist_ok=True)
    offsets = {str(queue): offset for queue, offset in queues.items()}
    content: dict[str, Any] = {"offsetTable": {f"{TOPIC}@{GROUP}": offsets}}
    if applied:
        content[STAMP_KEY] = {"group": "00" * 16, "applied": applied, "lastMeta": 0}
    (folder / "config" / name).write_bytes(orjson.dumps(content))


def _entries_of(store: MessageStore) -> EntryLog:
    log = store.entries
    assert log is not None, "it was opened as a group's"
    return log


def _copied(entry: Entry) -> Entry:
    return entry._replace(data=bytes(entry.data))


def _take(slave: MessageStore, master: MessageStore, end: int) -> None:
    """Give a slave what its master has, in frames."""
    log = slave.slave
    assert log is not None, "it was opened as a slave's"
    while log.written < end:
        piece = master.read_piece(log.written, min(FRAME_BYTES, end - log.written))
        assert piece is not None, "the master has it"
        log.append(log.written, bytes(piece))
        while log.dispatch():
            pass


def _sync(store: MessageStore) -> None:
    while store.step_flush():
        pass
    if store.entries is not None:
        store.entries.settle(store.flushed)
