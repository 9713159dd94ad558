"""A consumer as a process of its own that reads a topic from the beginning, again and again, always from the disk.

One pull of 32 messages is under way for each queue, as a real consumer has it. Whenever a queue has come to its end the
machine's memory of the log is given back, so that the next lap is as cold as the first.
"""

import asyncio
import os
import sys
from pathlib import Path

from raftmq.bench.frames import OPAQUE_MIN, QUEUES, AnswerReader, next_offset, pull_template
from remoting.codes import ResponseCode

PULL_COUNT = 32
READ_BYTES = 1024 * 1024
# How often it says how many bytes it has got so far.
SAID_EVERY_S = 0.1
PAUSE_S = 0.05


def give_back(folder: Path, *, write_first: bool) -> None:
    """Have the machine forget what it keeps in memory of a folder's files; what a process maps stays."""
    for path in folder.rglob("*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # removed meanwhile
        try:
            if write_first:
                os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            pass  # a folder, or what cannot be kept in memory
        finally:
            os.close(descriptor)


class ColdReader:
    """Reads all queues of a topic; `got` is how many bytes came, `laps` how often a queue came to its end."""

    def __init__(self, topic: str, folder: Path) -> None:
        self._topic = topic
        self._folder = folder
        self.got = 0
        self.laps = 0

    async def read(self, address: str) -> None:
        """Read until the connection ends. Raises OSError, BadAnswer."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=READ_BYTES)
        answers = AnswerReader()
        try:
            for queue in range(QUEUES):
                writer.write(self._pull(queue, 0))
            while data := await reader.read(READ_BYTES):
                self.got += len(data)
                for answer in answers.feed(data):
                    queue, offset = answer[0] - OPAQUE_MIN, 0
                    if answer[1] == ResponseCode.SUCCESS:
                        offset = next_offset(answer)
                    else:
                        self.laps += 1
                        give_back(self._folder, write_first=False)
                        # Of a topic without messages it would ask without end.
                        await asyncio.sleep(PAUSE_S)
                    writer.write(self._pull(queue, offset))
        finally:
            writer.close()

    def _pull(self, queue: int, offset: int) -> bytes:
        return pull_template(self._topic, queue, offset, PULL_COUNT).fill(OPAQUE_MIN + queue)


async def _main(address: str, topic: str, folder: Path) -> None:
    reader = ColdReader(topic, folder)
    reading = asyncio.create_task(reader.read(address))
    while not reading.done():
        print(reader.got, flush=True)  # for who started this process
        await asyncio.wait([reading], timeout=SAID_EVERY_S)
    await reading


if __name__ == "__main__":
    try:
        asyncio.run(_main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
    except (BrokenPipeError, KeyboardInterrupt):
        # Who started it is gone, or ends.
        os._exit(1)
