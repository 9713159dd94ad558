"""How far each consumer group has come in each queue, kept in RocketMQ's consumerOffset.json.

The rules, and where they are stricter than RocketMQ's:

- An offset never lies beyond the queue's end: a commit above it is cut down to it, and so is what a crash left behind
  (a log that lost its unflushed tail while the offsets survived would otherwise hide the next messages from the group).
- An offset does not go back by accident. RocketMQ takes any lower commit; a late commit of a member that lost the queue
  in a rebalance then repeats messages. Here a lower commit counts as a seek, and is taken, when it comes from the
  client that committed last or when that client's connection has closed; from anybody else it is ignored.
- A commit of -1 ("I do not know") changes nothing; RocketMQ forgets the offset that it had.
- A reset by an administrator counts at once, and is kept until the group's next pull of that queue has been told:
  commits that arrive before are of the time before the reset and are ignored.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from broker.configfile import read_table
from remoting.bodies import ConsumerOffsetTable, DataVersion
from remoting.errors import HeaderError
from runtime.clock import Clock
from runtime.durable import replace_file

SEPARATOR = "@"
# The file's dataVersion counts once for so many commits, as RocketMQ's consumerOffsetUpdateVersionStep does.
COMMITS_PER_VERSION = 500

_log = logging.getLogger(__name__)


class Client(Protocol):
    """Who commits: the connection."""

    closed: bool


class OffsetTable:
    """Next offset to read, by (topic, group) and queue. Its size is bounded by the topics and groups that exist."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        # Who committed last, by (table key, queue): decides whether a lower commit is a seek.
        self._committers: dict[tuple[str, int], Client] = {}
        self._resets: dict[tuple[str, int], int] = {}
        self.data_version = DataVersion(0, 0, clock.now_ms())
        self._commits = 0
        self._dirty = False
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    def load(cls, path: Path, clock: Clock) -> "OffsetTable":
        """Read consumerOffset.json (or its .bak); MetadataError when neither can be understood."""
        table = cls(path, clock)
        content = read_table(path, _decode)
        if content is not None:
            table._adopt(content)
        return table

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the group's next offset in a queue, -1 when it has none."""
        offsets = self._table.get(topic + SEPARATOR + group)
        return -1 if offsets is None else offsets.get(queue_id, -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, end: int, client: Client | None) -> bool:
        """Store what a client says it has come to; `end` is the queue's end. False when a pending reset wins."""
        key = topic + SEPARATOR + group
        if (key, queue_id) in self._resets:
            return False
        if offset < 0:
            return True
        offset = min(offset, end)
        offsets = self._table.setdefault(key, {})
        known = offsets.get(queue_id, -1)
        if offset < known:
            committer = self._committers.get((key, queue_id))
            if committer is not client and committer is not None and not committer.closed:
                _log.info("group %s %s:%d: late commit %d below %d ignored", group, topic, queue_id, offset, known)
                return True
        offsets[queue_id] = offset
        if client is not None:
            self._committers[key, queue_id] = client
        self._touch()
        return True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset by an administrator's word; commits are ignored until the group's next pull took it."""
        self.assign(group, topic, queue_id, offset)
        self._resets[topic + SEPARATOR + group, queue_id] = offset

    def assign(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset without waiting for the group to notice (a group that nobody consumes in just now)."""
        key = topic + SEPARATOR + group
        self._table.setdefault(key, {})[queue_id] = offset
        self._committers.pop((key, queue_id), None)
        self._touch(step=COMMITS_PER_VERSION)

    def reset_pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether a pull of this queue must be told of a reset."""
        return bool(self._resets) and (topic + SEPARATOR + group, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int:
        """Return a reset that this pull must be told, and forget it; -1 when there is none."""
        if not self._resets:
            return -1
        return self._resets.pop((topic + SEPARATOR + group, queue_id), -1)

    def offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's offsets of a topic by queue."""
        return dict(self._table.get(topic + SEPARATOR + group, {}))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have an offset in a topic."""
        prefix = topic + SEPARATOR
        return sorted(key[len(prefix) :] for key in self._table if key.startswith(prefix))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has an offset in."""
        suffix = SEPARATOR + group
        return sorted(key[: -len(suffix)] for key in self._table if key.endswith(suffix))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the (topic, group) pairs that have offsets."""
        return [(topic, group) for topic, _, group in (key.rpartition(SEPARATOR) for key in self._table)]

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets in a topic: one that is created again under the name starts anew."""
        self._remove([topic + SEPARATOR + group for group in self.groups_of(topic)])

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self._remove([topic + SEPARATOR + group for topic in self.topics_of(group)])

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give group `target` the offsets that `source` has in a topic."""
        offsets = self._table.get(topic + SEPARATOR + source)
        if offsets:
            for queue_id, offset in offsets.items():
                self.assign(target, topic, queue_id, offset)

    def clamp(self, end_of: Callable[[str, int], int]) -> int:
        """Cut every offset down to its queue's end (after recovery); returns how many lay beyond."""
        beyond = 0
        for key, offsets in self._table.items():
            topic = key.rpartition(SEPARATOR)[0]
            for queue_id, offset in offsets.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    _log.warning(
                        "%s queue %d: offset %d lies beyond the end and becomes %d", key, queue_id, offset, end
                    )
                    offsets[queue_id] = end
                    beyond += 1
        if beyond:
            self._touch(step=COMMITS_PER_VERSION)
        return beyond

    def encode(self) -> bytes:
        """Return the table in RocketMQ's JSON form, as the file and code 43 carry it."""
        return ConsumerOffsetTable(dataVersion=self.data_version, offsetTable=self._table).encode()

    async def persist(self) -> bool:
        """Replace the file when something changed; tells whether it did. OSError leaves the old file in place."""
        while self._writing is not None:
            await asyncio.shield(self._writing)
        if not self._dirty:
            return False
        self._dirty = False
        self._writing = asyncio.get_running_loop().create_task(self._write(self.encode()), name="write offsets")
        # Shielded: a caller that gives up must not leave two threads writing one file.
        await asyncio.shield(self._writing)
        return True

    async def _write(self, content: bytes) -> None:
        try:
            await asyncio.to_thread(replace_file, self._path, content)
        except OSError:
            self._dirty = True
            raise
        finally:
            self._writing = None

    def _touch(self, step: int = 1) -> None:
        self._dirty = True
        self._commits += step
        if self._commits >= COMMITS_PER_VERSION:
            self._commits = 0
            self.data_version = self.data_version.next(self._clock.now_ms())

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            for queue_id in self._table.pop(key):
                self._committers.pop((key, queue_id), None)
                self._resets.pop((key, queue_id), None)
            self._touch(step=COMMITS_PER_VERSION)

    def _adopt(self, stored: ConsumerOffsetTable) -> None:
        self.data_version = stored.dataVersion
        for key, queues in stored.offsetTable.items():
            # -1 and the like are left behind by RocketMQ where a client knew no offset.
            self._table[key] = {queue: offset for queue, offset in queues.items() if offset >= 0}


def _decode(content: bytes) -> ConsumerOffsetTable:
    """Read the file's content; raises HeaderError."""
    stored = ConsumerOffsetTable.decode(content)
    for key in stored.offsetTable:
        if SEPARATOR not in key:
            raise HeaderError(f"{key!r} lacks the {SEPARATOR!r} between topic and group")
    return stored
