"""Makes the folder of a run of any size: what a clean run of a group of three would have left, for `bench pipeline`.

The log is written by the store itself, as a leader appends; the other members' folders are links to the same files, for
replicas are equal byte for byte. The history is made in columns: sends, and a scan of the end through every member.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import numpy as np
import orjson

from pipeline.history.body import HEAD, Tag, digest, make_body
from pipeline.history.folder import DATA, INFO, RunFolder
from pipeline.history.parquet import write_columns, write_rows
from pipeline.history.promises import Promises
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Look, Op, Read
from pipeline.logs.member_files import Vote, encode_vote
from raft.protocol.types import EntryType
from remoting.msgid import pack_host
from store.config import StoreConfig
from store.files.floorfile import VOTE_NAME
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from store.types import PendingRecord

MEMBERS = ("n0", "n1", "n2")
GROUP, TOPIC = "broker-a", "big"
QUEUES, WRITERS = 8, 8
# Messages of one entry, and rows of one answer to a scan.
ENTRY_MESSAGES, SCAN_ROWS = 256, 1024
# The body of a message: the recorder's head and what follows it.
BODY_BYTES = 100
HOST = pack_host("127.0.0.1", 10911)
FILE_BYTES = 256 * 1024 * 1024
# Nanoseconds from one send to the next, and that each takes.
EVERY_NS, TOOK_NS = 50_000, 1_000_000
PARTS = 20
SCANS_A_PART = 512
Progress = Callable[[int], None]


class _Sent(NamedTuple):
    """What was acknowledged, by number of the message."""

    offset: "np.ndarray[Any, np.dtype[np.int64]]"
    position: "np.ndarray[Any, np.dtype[np.int64]]"
    digest: "np.ndarray[Any, np.dtype[np.int64]]"


def make_run(folder: Path, messages: int, seed: int = 1, progress: Progress | None = None) -> None:
    """Make a run of so many acknowledged sends in a folder that is not there yet. Raises OSError."""
    members = folder / DATA
    sent = _fill(members / MEMBERS[0], messages, seed, progress or (lambda _count: None))
    for name in MEMBERS[1:]:
        shutil.copytree(members / MEMBERS[0], members / name, copy_function=os.link)
    run = RunFolder(folder)
    write_columns(run.file(Op), Op, _ops(sent))
    write_columns(run.file(Read), Read, _reads(sent))
    write_rows(run.file(Fault), [], Fault)
    write_rows(run.file(Look), [], Look)
    promises = Promises(group_members={GROUP: MEMBERS}, acknowledged_min=messages)
    info = {"scenario": "big", "seed": seed, "mode": "raft", "promises": promises.as_dict()}
    (folder / INFO).write_bytes(orjson.dumps(info, option=orjson.OPT_INDENT_2))


def make_log(folder: Path, messages: int, body_bytes: int, progress: Progress) -> None:
    """Make the store folder of one member alone. Raises OSError."""
    _fill(folder, messages, 1, progress, body_bytes)


def _fill(folder: Path, messages: int, seed: int, progress: Progress, body_bytes: int = BODY_BYTES) -> _Sent:
    dice = random.Random(seed)
    config = StoreConfig(
        storePathRootDir=str(folder),
        mappedFileSizeCommitLog=FILE_BYTES,
        flushIntervalCommitLog=3_600_000,
        diskMaxUsedSpaceRatio=97,
    )
    store = MessageStore.open(config, store_host=HOST, stepped=True, group=True)
    log = store.entries
    assert log is not None, "it was opened as a group's"
    log.append(EntryType.CONFIG, 1, _config(dice), 0)
    sent = _Sent(*(np.empty(messages, np.int64) for _ in range(3)))
    rest = dice.randbytes(body_bytes - HEAD.size)
    for first in range(0, messages, ENTRY_MESSAGES):
        numbers = range(first, min(first + ENTRY_MESSAGES, messages))
        records = [_record(number, rest) for number in numbers]
        _, results = log.append_records(records, 1, log.last.index)
        for number, record, result in zip(numbers, records, results, strict=True):
            sent.offset[number], sent.position[number] = result.queue_offset, result.physical_offset
            sent.digest[number] = digest(record.body)
        if first // ENTRY_MESSAGES % 64 == 0:
            _settle(store, log)
            progress(numbers[-1] + 1)
    _settle(store, log)
    progress(messages)
    store.close()
    (folder / VOTE_NAME).parent.mkdir(exist_ok=True)
    (folder / VOTE_NAME).write_bytes(encode_vote(Vote(1, MEMBERS[0], dice.randbytes(16).hex())))
    return sent


def _settle(store: MessageStore, log: EntryLog) -> None:
    """Sync, commit and dispatch what was appended."""
    while store.step_flush():
        pass
    log.settle(store.flushed)
    log.release(log.last.index)


def _record(number: int, rest: bytes) -> PendingRecord:
    body = make_body(Tag(number % WRITERS + 1, number // WRITERS, 0), rest)
    return PendingRecord(TOPIC, number % QUEUES, 0, 0, 1000, HOST, 0, 0, body, b"")


def _config(dice: random.Random) -> bytes:
    """Return a CONFIG's payload: version, group, base (position, index, term, digest), classic, members."""
    members = [[name, f"127.0.0.1:{40911 + at}", dice.randbytes(16), True] for at, name in enumerate(MEMBERS)]
    payload: bytes = cbor2.dumps([1, dice.randbytes(16), 0, 0, 0, 0, False, members])
    return payload


def _ops(sent: _Sent) -> Iterator[Mapping[str, Any]]:
    count = len(sent.offset)
    for numbers in np.array_split(np.arange(count), min(PARTS, count)):
        invoked = numbers * EVERY_NS
        yield _columns(
            Op, len(numbers), op=numbers, process=numbers % WRITERS + 1, act=str(Act.SEND), kind=str(Kind.OK),
            invoked=invoked, completed=invoked + EVERY_NS // 2, topic=TOPIC, queue=numbers % QUEUES, broker=GROUP,
            address=MEMBERS[0], writer=numbers % WRITERS + 1, counter=numbers // WRITERS, digest=sent.digest[numbers],
            offset=sent.offset[numbers], position=sent.position[numbers],
        )  # fmt: skip
    scans = list(_scans(sent))
    asked = (count + np.arange(len(scans))) * EVERY_NS
    yield _columns(
        Op, len(scans), op=count + np.arange(len(scans)), process=WRITERS + 1, act=str(Act.SCAN), kind=str(Kind.OK),
        invoked=asked, completed=asked + EVERY_NS // 2, topic=TOPIC, broker=GROUP, leader=MEMBERS[0],
        **{name: np.array([getattr(scan, name) for scan in scans]) for name in ("address", "queue", "end")},
        offset=np.array([scan.first for scan in scans]), value=np.array([scan.last for scan in scans]),
    )  # fmt: skip


class _Scan(NamedTuple):
    op: int
    address: str
    queue: int
    first: int
    last: int
    end: int


def _scans(sent: _Sent) -> Iterator[_Scan]:
    """Iterate over the answers that read every queue through every member."""
    number = 0
    for member in MEMBERS:
        for queue in range(QUEUES):
            end = len(range(queue, len(sent.offset), QUEUES))
            for first in range(0, end, SCAN_ROWS):
                yield _Scan(number, member, queue, first, min(first + SCAN_ROWS, end), end)
                number += 1


def _reads(sent: _Sent) -> Iterator[Mapping[str, Any]]:
    count = len(sent.offset)
    scans = _scans(sent)
    while some := list(islice(scans, SCANS_A_PART)):
        # Offset o of queue q is message q + o * QUEUES: each queue gets every QUEUES-th.
        numbers = np.concatenate([scan.queue + np.arange(scan.first, scan.last) * QUEUES for scan in some])
        asked = np.repeat([count + scan.op for scan in some], [scan.last - scan.first for scan in some])
        yield _columns(
            Read, len(numbers), op=asked, topic=TOPIC, queue=numbers % QUEUES, offset=sent.offset[numbers],
            position=sent.position[numbers], writer=numbers % WRITERS + 1, counter=numbers // WRITERS, attempt=0,
            digest=sent.digest[numbers],
        )  # fmt: skip


def _columns(noun: type[tuple[Any, ...]], rows: int, /, **given: Any) -> dict[str, Any]:
    """Return all columns of some rows: those given, one value for all or one for each, and the defaults."""
    defaults: dict[str, Any] = getattr(noun, "_field_defaults", {})
    values = {name: given.get(name, defaults.get(name, UNKNOWN)) for name in noun._fields}  # type: ignore[attr-defined]
    return {name: value if isinstance(value, np.ndarray) else [value] * rows for name, value in values.items()}
