"""The vectorised reader finds what the record-by-record twin finds: on whole, damaged, planted and made-up logs."""

import random
import shutil
from pathlib import Path
from zlib import crc32

import pytest

from client.compression import Codec, compress, compressed_flag
from pipeline.history.body import Tag, make_body
from pipeline.logs.log import read_log
from pipeline.logs.queues import compare_index, read_queues
from raft.protocol.types import EntryType
from remoting.codes import MessageSysFlag
from remoting.properties import encode_properties
from remoting.record import BLANK, BLANK_MAGIC, encode_record
from remoting.topics import RAFT_TOPIC, TRANS_OP_HALF_TOPIC
from store.controlrecord import Control, chained, encode_control
from store.log.dispatch import SCHEDULE_TOPIC
from store.recovery.inspect import StoreFolder
from tests.planted.plant_log import PLANTS, plant
from tests.planted.plant_stores import LOG_FILE_BYTES, MEMBERS, PAIR, RAFT, build
from tests.properties import artefact_log_twin as twin
from tests.properties import artefact_queues_twin as queues_twin

SEEDS = range(60)
HOSTS = (bytes(8), bytes(range(20)))
TOPICS = ("T", "longer-topic", "sujet-é", TRANS_OP_HALF_TOPIC, SCHEDULE_TOPIC, "x" * 200)
FILE_BYTES = 4096


def assert_same(folder: Path, note: str = "") -> None:
    expected = twin.read_log(StoreFolder(folder))
    found = read_log(folder)
    assert read_queues(folder) == queues_twin.read_queues(folder), note
    assert compare_index(folder, found.keyed) == queues_twin.compare_index(folder, found.keyed), note
    for name in ("entries", "messages", "gaps", "configs", "keyed", "end"):
        assert getattr(found, name) == getattr(expected, name), f"{note} {name}"


def logs(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def damage_derived(dice: random.Random, folder: Path) -> None:
    """Change bytes of a queue and of an index file, now and then."""
    for path in sorted(folder.glob("consumequeue/*/*/*")) + sorted(folder.glob("index/*")):
        if dice.random() < 0.3:
            data = bytearray(path.read_bytes())
            at = dice.randrange(min(len(data), 3000))
            data[at : at + 20] = dice.choice([bytes(20), dice.randbytes(20), b"\x00" * 11 + b"\x01"])
            path.write_bytes(data)


def damage(dice: random.Random, folder: Path) -> None:
    """Change bytes, zero parts, cut, remove or swap files."""
    for _ in range(dice.randrange(1, 4)):
        path = dice.choice(logs(folder))
        data = bytearray(path.read_bytes())
        at = dice.randrange(len(data))
        kind = dice.choice(["flip", "flip", "flip", "zero", "noise", "cut", "remove", "copy"])
        if kind == "flip":
            data[at] ^= 1 << dice.randrange(8)
        elif kind == "zero":
            data[at : at + 100] = bytes(len(data[at : at + 100]))
        elif kind == "noise":
            data[at : at + 30] = dice.randbytes(len(data[at : at + 30]))
        elif kind == "copy":
            data[at : at + 400] = data[: len(data[at : at + 400])]
        elif kind == "cut" and at:
            del data[at:]
        if kind == "remove" and len(logs(folder)) > 1:
            path.unlink()
        else:
            path.write_bytes(data)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [RAFT, PAIR])
def test_damaged_stores_are_read_as_the_twin_reads_them(tmp_path: Path, kind: str) -> None:
    for seed in SEEDS:
        root = tmp_path / str(seed)
        folder = build(root, seed % 7, kind).folder(MEMBERS[kind][0])
        if seed < 7:
            assert_same(folder, f"seed {seed}, whole:")
        damage(random.Random(seed), folder)
        damage_derived(random.Random(seed), folder)
        assert_same(folder, f"seed {seed}:")
        shutil.rmtree(root)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "check"), [(kind, check) for kind, plants in PLANTS.items() for check in plants])
def test_planted_stores_are_read_as_the_twin_reads_them(tmp_path: Path, kind: str, check: str) -> None:
    cluster = plant(tmp_path, 3, check, kind).cluster
    for member in MEMBERS[kind]:
        assert_same(cluster.folder(member), member)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("together", [1, 3, 65_536])
def test_made_up_logs_are_read_as_the_twin_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr("pipeline.logs.frames.PIECE_RECORDS", together)
    for seed in range(100):
        folder = tmp_path / str(seed)
        dice = random.Random(seed)
        write_log(dice, folder)
        assert_same(folder, f"seed {seed}, as written:")
        damage(dice, folder)
        assert_same(folder, f"seed {seed}, damaged:")


def write_log(dice: random.Random, folder: Path) -> None:
    """Write a log of records and entries of all kinds, good and bad ones."""
    (folder / "commitlog").mkdir(parents=True)
    start = chain = index = 0
    plain = dice.random() < 0.3
    for _ in range(dice.randrange(1, 4)):
        data = bytearray()
        while True:
            if plain or dice.random() < 0.5:
                part = message(dice, start + len(data))
            else:
                index += 1
                part, chain = entry(dice, start + len(data), index, chain)
            if len(data) + len(part) > FILE_BYTES - 8:
                break
            data += part
        if dice.random() < 0.9:
            data += BLANK.pack(FILE_BYTES - len(data), BLANK_MAGIC)
        data += bytes(FILE_BYTES - len(data))
        (folder / "commitlog" / f"{start:020d}").write_bytes(data)
        start += FILE_BYTES


def entry(dice: random.Random, position: int, index: int, chain: int) -> tuple[bytes, int]:
    host = dice.choice(HOSTS)
    kind = dice.choice([EntryType.MESSAGES] * 3 + list(EntryType))
    payload = {EntryType.META: b"meta", EntryType.CONFIG: b"\xff"}.get(kind, b"")
    control = Control(index, position, 0, 5, kind, dice.randrange(2), 1, 1, 0, 0, 0, index - 1, 0, 0, payload)
    size = len(encode_control(control, host))
    records = bytearray()
    count = dice.randrange(4) if kind is EntryType.MESSAGES else 0
    for _ in range(count):
        records += message(dice, position + size + len(records))
    crc = crc32(records) ^ (dice.random() < 0.1)
    claimed = len(records) + dice.choice([0] * 15 + [7, 120])
    control = control._replace(covered_bytes=claimed, covered_count=count, covered_crc=crc, size=size)
    control = chained(control, chain ^ (dice.random() < 0.1))
    written = bytearray(encode_control(control, host))
    if dice.random() < 0.1:
        # A byte that the body's CRC does not cover.
        written[dice.choice([8, 14, 19, 39, 75, 80])] ^= 1
    return bytes(written + records), control.chain


def message(dice: random.Random, position: int) -> bytes:
    topic = dice.choice(TOPICS)
    body = dice.choice([b"", b"1,22,x", make_body(Tag(3, dice.randrange(2**50), 1), b"rest"), dice.randbytes(60)])
    flags = dice.choice([0, 0, 4, 8])
    if dice.random() < 0.2:
        codec = dice.choice(list(Codec))
        body, flags = compress(body, codec), flags | compressed_flag(codec)
        if dice.random() < 0.2:
            body = body[:-1]
    properties = encode_properties(some_properties(dice))
    if dice.random() < 0.3:
        properties = properties[:-1]
    if dice.random() < 0.1:
        properties += dice.choice(
            [b"TAGS\x01again\x02", b"bare\x02", b"\xff\x01\xfe\x02", b"a\x01b\x01c", b"\x01v\x02"]
        )
    record = bytearray(
        encode_record(
            topic, dice.randrange(4), body, properties, queue_offset=dice.randrange(2**40), physical_offset=position,
            sys_flag=flags, born_timestamp=dice.randrange(2**41), born_host=dice.choice(HOSTS),
            store_timestamp=dice.randrange(2**41), store_host=dice.choice(HOSTS),
            prepared_transaction_offset=dice.randrange(3),
        )
    )  # fmt: skip
    if dice.random() < 0.03:
        record[bytes(record).rindex(topic.encode())] = 0xFF
    return bytes(record)


def some_properties(dice: random.Random) -> dict[str, str]:
    found = {"UNIQ_KEY": dice.randbytes(16).hex().upper()}
    if dice.random() < 0.5:
        found["KEYS"] = dice.choice(["one", "one two", " two  three ", "é", "UNIQ_KEY"])
    if dice.random() < 0.5:
        found["TAGS"] = dice.choice(["a", "tag-of-some-length", "", "ü", "KEYS"])
    if dice.random() < 0.3:
        found["__transactionId__"] = dice.randbytes(4).hex()
    if dice.random() < 0.3:
        found["DELAY"] = dice.choice(["3", "0", "x", "99"])
    return {name: found[name] for name in dice.sample(sorted(found), len(found))}


def test_many_records_that_are_written_alike(tmp_path: Path) -> None:
    dice = random.Random(1)
    data = bytearray()
    for number in range(3000):
        tags = dice.choice(["red", "tea", "blue"])
        keys = dice.choice([f"key{number}", f"k {number}", f"KEYS {number}"])
        properties = {"UNIQ_KEY": dice.randbytes(16).hex().upper(), "KEYS": keys, "TAGS": tags}
        if dice.random() < 0.1:
            properties["TAGS"] = "thé"
        body = make_body(Tag(1, number, 0), dice.randbytes(80))
        flags = int(MessageSysFlag.TRANSACTION_COMMIT) if dice.random() < 0.1 else 0
        data += encode_record(
            dice.choice(["one", "two", RAFT_TOPIC[:-1] + "X"]), 0, body, encode_properties(properties),
            physical_offset=len(data), sys_flag=flags, queue_offset=number,
        )  # fmt: skip
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data)
    assert_same(tmp_path)
    assert len(read_log(tmp_path).messages) == 3000


def test_a_log_that_is_cut_between_two_records(tmp_path: Path) -> None:
    folder = build(tmp_path / "raft", 1, RAFT).folder("n0")
    first = read_log(folder).entries[1].end
    path = logs(folder)[0]
    path.write_bytes(path.read_bytes()[:first])
    assert len(logs(folder)) > 1
    rows = read_log(folder)
    assert [(gap.start, gap.end) for gap in rows.gaps][:1] == [(first, LOG_FILE_BYTES)]
