"""kill -9 at random moments: what was reported flushed is there, and every queue is what a rebuild gives.

RAFTMQ_KILLS sets the number of kills (20; `RAFTMQ_KILLS=220 pytest tests/cluster/test_store_kill.py` for many).
"""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remoting.record import decode_record
from store.log.logscan import LogScan, Span
from store.messagestore import MessageStore
from tests.cluster.store_writer import HOST, count_messages, message, store_config

KILLS = int(os.environ.get("RAFTMQ_KILLS", "20"))
# A folder takes so many kills before the next one begins: its log would only grow.
KILLS_PER_FOLDER = 7
ROOT = Path(__file__).resolve().parents[2]


def write_until_killed(folder: Path, seed: int) -> tuple[int, int]:
    """Run the writer for a random while; return the last (messages, position) that it reported flushed."""
    dice = random.Random(seed)
    command = [sys.executable, "-m", "tests.cluster.store_writer", str(folder), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        assert first, "the writer did not start"
        # Measured from its first line on, so that the kill meets writing, not starting; sometimes at once.
        time.sleep(dice.choice((0.0, 0.02, 0.1)) * dice.random())
        writer.kill()
        lines = [first, *writer.stdout.read().splitlines(keepends=True)]
    # A kill may cut the last line short: it was not reported then.
    whole = [line for line in lines if line.endswith("\n")]
    number, position = whole[-1].split()
    return int(number), int(position)


def check_records(store: MessageStore, number: int, position: int) -> None:
    """Every message that was reported is there, once, in its order, with its bytes."""
    assert store.written >= position
    found = 0
    spans = [
        Span(path, int(path.name), path.stat().st_size)
        for path in sorted(Path(store._config.log_folder).iterdir())
        if int(path.name) <= store.written
    ]
    offsets: dict[tuple[str, int], int] = {}
    scan = LogScan(spans, 0, check_crc=True)
    for hit in scan:
        record = decode_record(hit.view, hit.at)
        wanted = message(found)
        assert (record.topic, record.queue_id, record.flag) == (wanted.topic, wanted.queue_id, found)
        assert record.body == wanted.body
        queue = (record.topic, record.queue_id)
        assert record.queue_offset == offsets.get(queue, 0), "offsets are dense"
        offsets[queue] = record.queue_offset + 1
        found += 1
    assert scan.end == store.written
    assert found >= number, f"{number} messages were reported flushed, {found} are there"
    assert count_messages(store) == found
    for newest in range(max(0, found - 3), found):
        wanted = message(newest)
        (hit_record,) = store.query(wanted.topic, f"U{newest}", 8, 0, 1 << 60).records
        assert decode_record(hit_record).body == wanted.body


def queue_bytes(folder: Path) -> dict[str, bytes]:
    """Return the files of all queues that hold anything."""
    queues = folder / "consumequeue"
    files = {str(path.relative_to(queues)): path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if any(content)}


def check_rebuild(folder: Path, aside: Path) -> None:
    """The queues equal those that are built from the log alone."""
    shutil.copytree(folder, aside)
    for derived in ("consumequeue", "index"):
        shutil.rmtree(aside / derived, ignore_errors=True)
    (aside / "checkpoint").unlink(missing_ok=True)
    MessageStore.open(store_config(aside), store_host=HOST).close()
    assert queue_bytes(aside) == queue_bytes(folder)
    shutil.rmtree(aside)


@pytest.mark.timeout(60 + 5 * KILLS)
def test_flushed_records_survive_kills(tmp_path: Path) -> None:
    reported = 0
    for kill in range(KILLS):
        folder = tmp_path / f"store{kill // KILLS_PER_FOLDER}"
        number, position = write_until_killed(folder, kill)
        # Looked at in a copy: the next writer meets the folder as the kill has left it.
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        store = MessageStore.open(store_config(copy), store_host=HOST)
        check_records(store, number, position)
        reported += number
        store.close()
        check_rebuild(copy, tmp_path / "rebuilt")
        shutil.rmtree(copy)
    print(f"{KILLS} kills, {reported:,} records reported flushed before them, 0 lost")
