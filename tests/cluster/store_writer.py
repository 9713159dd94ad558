"""Writes into a store until it is killed, and says on standard output up to where it was told that all is flushed.

Usage: store_writer.py FOLDER SEED. Each line: ``<messages made so far that are flushed> <position>``. Message n has the
topic, queue, key and body that message(n) says, so that a reader can check what it finds.
"""

import random
import sys
import threading
from pathlib import Path

from remoting.msgid import pack_host
from remoting.properties import encode_properties
from store.config import SYNC_FLUSH, StoreConfig
from store.events import StoreEvents
from store.messagestore import MessageStore
from store.types import PendingRecord, PutStatus

HOST = pack_host("127.0.0.1", 10911)
TOPICS = 3
QUEUES = 4


def store_config(folder: Path) -> StoreConfig:
    """Small files, so that they roll all the time."""
    return StoreConfig(
        storePathRootDir=str(folder),
        flushDiskType=SYNC_FLUSH,
        mappedFileSizeCommitLog=64 * 1024,
        mappedFileSizeConsumeQueue=2000,
        maxHashSlotNum=500,
        maxIndexNum=2000,
        fileReservedTime=24,
    )


def message(number: int) -> PendingRecord:
    """Return message `number`; a function of the number alone."""
    dice = random.Random(number)
    properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number % 7}"}
    if number % 3:
        properties["TAGS"] = f"tag{number % 5}"
    body = f"{number}:".encode() + dice.randbytes(dice.randrange(0, 900))
    topic = f"Kill{dice.randrange(TOPICS)}"
    return PendingRecord(topic, dice.randrange(QUEUES), number, 0, 1, HOST, 0, 0, body, encode_properties(properties))


def count_messages(store: MessageStore) -> int:
    """Return how many messages the store holds: each is in one queue, and none was ever removed."""
    return sum(store.max_offset(topic, queue) for topic, queues in store.topics().items() for queue in queues)


def main() -> None:
    """Write until killed."""
    flushed = threading.Event()
    events = StoreEvents(flushed=lambda _: flushed.set())
    store = MessageStore.open(store_config(Path(sys.argv[1])), store_host=HOST, events=events)
    dice = random.Random(int(sys.argv[2]))
    number = count_messages(store)
    print(number, store.written, flush=True)
    while True:
        for _ in range(dice.choice((1, 1, 3, 20))):
            result = store.put(message(number))
            assert result.status is PutStatus.PUT_OK, result
            number += 1
        position = store.write()
        store.flush_soon(position)
        while store.flushed < position:
            flushed.wait()
            flushed.clear()
        print(number, position, flush=True)
        store.idle()
        if dice.random() < 0.002:
            # A clean stop now and then: both kinds of start are met.
            store.close()
            store = MessageStore.open(store_config(Path(sys.argv[1])), store_host=HOST, events=events)


if __name__ == "__main__":
    main()
