"""How far each consumer group has come in each queue, kept in RocketMQ's consumerOffset.json.

The rules, some of them stricter than RocketMQ's:
- An offset never lies beyond the queue's end: a commit above it is cut down to it, and so is what a crash left behind,
  which would otherwise hide the next messages from the group.
- An offset does not go back by accident. RocketMQ takes any lower commit; a late commit of a member that lost the queue
  in a rebalance then repeats messages. Here a lower commit counts as a seek, and is taken, when it comes from the
  client that committed last or when that client's connection has closed; from anybody else it is ignored. What another
  member of a Raft group passes on is its client's; where that one is not known (ANYBODY) it is taken, and so is the
  next one's, as RocketMQ does. An ADMINISTRATOR's is taken as well, and changes nothing about whose the queue is. What
  was on its way while something newer was committed moves nothing (committers.py).
- A commit of -1 ("I do not know") changes nothing; RocketMQ forgets the offset that it had.
- A reset by an administrator counts at once, and is kept until the group's next pull of that queue was told: commits
  that arrive before are of the time before the reset and are ignored.

In a Raft group the table holds what is applied. The leader decides the rules when it proposes a change, against what is
applied or proposed already (offset_batches.py); whoever asks for an offset of which a newer value is on its way waits
for that. So no offset that anybody was told goes back when the lead changes.
A slave's table is its master's, and what was committed here: remembered, in the file too, until the master has it.
What a request changes goes into a journal beside a large file; commits are in the file when it is written next.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from broker.deadlines import Came
from broker.metadata.committers import Committer, Committers
from broker.metadata.lmq_offsets import with_lmq
from broker.metadata.offset_batches import OffsetCycle, Place
from broker.metadata.offset_cuts import cut_to_ends, keep_greater
from broker.metadata.offset_file import OffsetFile, OurOffsets, decode_offsets, encode_offsets
from broker.metadata.offset_keys import SEPARATOR, parts_of
from broker.metadata.offset_lowered import Lowerings
from broker.metadata.offset_map import OffsetMap, encoded
from broker.metadata.operations import LOST, Done, LocalMeta, MetaLog, Operation, Table, Verb
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp
from broker.metadata.versions import next_version, packed, unpacked
from remoting.bodies.registry import ConsumerOffsetTable, DataVersion
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.clock import Clock

# The file's dataVersion counts once for so many commits, as RocketMQ's consumerOffsetUpdateVersionStep does.
COMMITS_PER_VERSION = 500


class OffsetTable:
    """Next offset to read, by (topic, group) and queue. Its size is bounded by the topics and groups that exist."""

    routes: tuple[Table, ...] = (Table.OFFSETS,)

    def __init__(self, path: Path, clock: Clock, meta: MetaLog | None = None) -> None:
        self._clock = clock
        self._meta: MetaLog = LocalMeta() if meta is None else meta
        self._table = OffsetMap()
        # Who committed last: decides whether a lower commit is a seek.
        self.committers = Committers()
        # Resets that pulls must be told of; and, in a Raft group, of which they were: the reset ends with the commit.
        self._resets: dict[tuple[str, int], int] = {}
        self._told: set[tuple[str, int]] = set()
        # On a slave: what was committed here, and the master may not have.
        self._own: dict[Place, int] | None = None if self._meta.leads or self._meta.shared else {}
        self.mark = self._lmq_seen = ""  # of that copy; the other one is what a master marks copies with
        self.lowerings = Lowerings() if self._meta.leads and not self._meta.shared else None
        self.data_version = DataVersion(0, 0, clock.now_ms())
        self._commits = 0
        self._dirty = False
        self._file = ConfigFile(path, self._snapshot)
        later = self._meta.later
        self._cycle = None if later is None else OffsetCycle(self._meta, later, self._next_version)
        self._meta.attach(self)

    @classmethod
    def load(cls, path: Path, clock: Clock, meta: MetaLog | None = None) -> "OffsetTable":
        """Read consumerOffset.json (or its .bak), or what RocketMQ keeps in its place; raises MetadataError."""
        table = cls(path, clock, meta)
        stored = table._file.load(decode_offsets)
        content = with_lmq(stored, table._file.stamp, path)
        if content is not None:
            table._adopt(content)
            table._dirty = content is not stored and not table._meta.shared
        table._file.replay(table._do)
        return table

    @property
    def file(self) -> ConfigFile:
        """The file that the table is kept in."""
        return self._file

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the group's next offset in a queue, -1 when it has none."""
        offsets = self._table.get(topic + SEPARATOR + group)
        return -1 if offsets is None else offsets.get(queue_id, -1)

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, end: int, client: Committer | None,
        came: Came | None = None,
    ) -> bool:  # fmt: skip
        """Store what a client says it has come to; `end` is the queue's end. False when a pending reset wins.

        In a Raft group it is gathered only, see `pending`; raises CommandError when too much is, and DoubtfulCommit.
        """
        key = topic + SEPARATOR + group
        place = (key, queue_id)
        if self._cycle is not None:
            return self._gather(self._cycle, place, offset, end, client, came)
        if place in self._resets:
            return False
        if offset < 0:
            return True
        offset = min(offset, end)
        offsets = self._table.of(key)
        known = offsets.get(queue_id, -1)
        if self._is_late(place, offset, known, client, came):
            return True
        offsets[queue_id] = offset
        if offset < known:
            self._lowered(key)
        self.committers.note(place, client, came, back=offset < known)
        if self._own is not None:
            self._own[place] = offset
        self._touch()
        return True

    def pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether a change is proposed and not yet applied that may concern an offset (in a Raft group only)."""
        return self._cycle is not None and self._cycle.pending((topic + SEPARATOR + group, queue_id))

    def wait(self, group: str, topic: str, queue_id: int, done: Done) -> None:
        """Have `done` called with a response code when nothing is pending of an offset any more."""
        if self._cycle is None:
            done(ResponseCode.SUCCESS)
        else:
            self._cycle.wait((topic + SEPARATOR + group, queue_id), done)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset by an administrator's word; commits are ignored until the group's next pull took it."""
        self._change(Verb.RESET, [[topic + SEPARATOR + group, queue_id, offset, True]])

    def assign(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset without waiting for the group to notice (a group that nobody consumes in just now)."""
        self._change(Verb.RESET, [[topic + SEPARATOR + group, queue_id, offset, False]])

    def reset_pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether a pull of this queue must be told of a reset."""
        if not self._resets:
            return False
        place = (topic + SEPARATOR + group, queue_id)
        return place in self._resets and place not in self._told

    def take_reset(self, group: str, topic: str, queue_id: int) -> int:
        """Return a reset that this pull must be told, and forget it; -1 when there is none."""
        if not self._resets:
            return -1
        place = (topic + SEPARATOR + group, queue_id)
        if self._cycle is None:
            return self._resets.pop(place, -1)
        if place in self._told:
            return -1
        offset = self._resets.get(place, -1)
        if offset >= 0:
            self._told.add(place)
        return offset

    def offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's offsets of a topic by queue."""
        return dict(self._table.get(topic + SEPARATOR + group, {}))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have an offset in a topic."""
        return sorted(parts_of(key)[1] for key in self._table.keys_of(topic, ""))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has an offset in."""
        return sorted(parts_of(key)[0] for key in self._table.keys_of("", group))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the (topic, group) pairs that have offsets."""
        return [parts_of(key) for key in self._table]

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets in a topic: one that is created again under the name starts anew."""
        if self._cycle is not None or self._table.keys_of(topic, ""):
            self._change(Verb.DELETE, topic, "")

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        if self._cycle is not None or self._table.keys_of("", group):
            self._change(Verb.DELETE, "", group)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give group `target` the offsets that `source` has in a topic."""
        if self._cycle is not None or self._table.get(topic + SEPARATOR + source):
            self._change(Verb.CLONE, source, target, topic)

    def clamp(self, end_of: Callable[[str, int], int]) -> int:
        """Cut every offset down to its queue's end (after recovery); returns how many lay beyond.

        Not in a Raft group: what is applied lies within the committed log, which a member may still have to learn.
        """
        beyond = 0 if self._cycle is not None else cut_to_ends(self._table, end_of)
        if beyond:
            self._touch(step=COMMITS_PER_VERSION)
        return beyond

    def own_commits(self) -> dict[tuple[str, str, int], int]:
        """Return what was committed at this slave and is not known to be the master's: (topic, group, queue)."""
        return {(*parts_of(key), queue_id): offset for (key, queue_id), offset in (self._own or {}).items()}

    def take_over(
        self, copied: ConsumerOffsetTable, settled: Mapping[tuple[str, str, int], int], mark: str | None = None
    ) -> None:
        """Become equal to the master's table, on a slave; what was committed here meanwhile, and is more, stays.

        `settled` are own commits that the master knows, or does not want; `mark` is the master's, see lowerings.
        """
        assert self._own is not None, "only a slave's table is another's"
        table = copied.offsetTable
        kept = keep_greater(table, self._own, settled)
        version = unpacked(packed(copied.dataVersion), self.data_version)
        now = (version, table, kept, mark or "")
        if now == (self.data_version, self._table, self._own, self.mark):
            return
        self.data_version, _, self._own, self.mark = now
        self._table = OffsetMap(table.items())
        self._file.disown()
        self.committers.keep(table)
        self._dirty = True

    def encode(self) -> bytes:
        """Return the table in RocketMQ's JSON form, as the file and code 43 carry it."""
        return b"".join(encoded(self._table, self.data_version))

    async def persist(self) -> bool:
        """Replace the file when something changed; tells whether it did. OSError leaves the old file in place."""
        if self._dirty:
            self._dirty = False
            self._file.touch()
        if not self._file.dirty:
            return False
        await self._file.flush()
        return True

    async def save(self) -> None:
        """Return when every change by request is safe: on disk, or applied in the Raft group; a commit may not be.

        Raises OSError, and CommandError when the lead was lost meanwhile.
        """
        if self._cycle is None:
            await self._file.flush()
            return
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._cycle.wait(None, lambda code: None if told.done() else told.set_result(code))
        if await told != ResponseCode.SUCCESS:
            raise CommandError(ResponseCode.SYSTEM_ERROR, LOST)

    def apply(self, operation: Operation, *, own: bool) -> None:  # noqa: ARG002 # nothing is shown before it is applied
        """Do what an operation says; see MetaTable."""
        self._file.note(self._do(operation))

    def _do(self, operation: Operation) -> Operation:
        """Do it, and return what says the same to whoever has older offsets, and has pulls told of no reset."""
        verb, table, version, *what = operation
        if verb == Verb.COMMIT:
            for key, queue_id, offset, back in what[0]:
                offsets = self._table.of(key)
                if back or offset > offsets.get(queue_id, -1):
                    offsets[queue_id] = offset
                self._end_reset((key, queue_id))
        elif verb == Verb.RESET:
            for key, queue_id, offset, tell in what[0]:
                self._table.of(key)[queue_id] = offset
                self._lowered(key)
                self.committers.reset((key, queue_id))
                self._end_reset((key, queue_id))
                if tell:
                    self._resets[key, queue_id] = offset
            what = [[[*place, False] for *place, _ in what[0]]]
        elif verb == Verb.CLONE:
            source, target, topic = what
            key, copied = topic + SEPARATOR + target, dict(self._table.get(topic + SEPARATOR + source, {}))
            if copied:
                self._remove_queues(key, copied)
                self._table.of(key).update(copied)
                self._lowered(key)
            verb, what = int(Verb.RESET), [[[key, queue_id, offset, False] for queue_id, offset in copied.items()]]
        elif verb in {Verb.DELETE, Verb.CLEAR}:
            self._remove(self._table.keys_of(*(what or ("", ""))))
        else:
            raise MetadataError(f"operation {verb!r} on offsets is unknown: upgrade this member")
        self.data_version = unpacked(version, self.data_version)
        return [verb, table, version, *what]

    def drop(self) -> None:
        """Forget what is not applied; see MetaTable."""
        self.committers.clear()
        self._told.clear()
        if self._cycle is not None:
            self._cycle.drop()

    def lead(self, *, first: bool) -> None:
        """Propose the whole table where the group's log has nothing of it; see MetaTable."""
        self.committers.led()
        if first:
            rows = [
                [key, queue_id, offset, (key, queue_id) in self._resets]
                for key, offsets in self._table.items()
                for queue_id, offset in offsets.items()
            ]
            self._change(Verb.CLEAR)
            self._change(Verb.RESET, rows)
            if self._cycle is not None:
                self._cycle.send()

    def _change(self, verb: Verb, *what: object) -> None:
        if self._cycle is not None:
            self._cycle.add(verb, *what)
        else:
            self._meta.propose([int(verb), int(Table.OFFSETS), self._next_version(), *what])

    def _gather(
        self, cycle: OffsetCycle, place: Place, offset: int, end: int, client: Committer | None, came: Came | None
    ) -> bool:
        """Propose a commit, where the rules allow it and it changes something."""
        if not self._meta.leads:
            return True
        if (place in self._resets and place not in self._told) or cycle.resets(place):
            return False
        if offset < 0:
            return True
        offset = min(offset, end)
        known = cycle.newest(place)
        if known < 0:
            known = self._table.get(place[0], {}).get(place[1], -1)
        if self._is_late(place, offset, known, client, came):
            return True
        self.committers.note(place, client, came, back=offset < known)
        if offset != known or place in self._resets:
            cycle.commit(place, offset, back=offset < known)
        return True

    def _is_late(self, place: Place, offset: int, known: int, client: Committer | None, came: Came | None) -> bool:
        """Tell whether a commit comes from somebody who lost the queue, or of a time that is over."""
        if not self.committers.is_late(place, client, came, back=offset < known):
            return False
        self.committers.ignored(place, offset, known)
        return True

    def _touch(self, step: int = 1) -> None:
        self._dirty = True
        self._meta.noted(Table.OFFSETS)
        self._commits += step
        if self._commits >= COMMITS_PER_VERSION:
            self._commits = 0
            self.data_version = self.data_version.next(self._clock.now_ms())

    def _next_version(self) -> list[int]:
        return packed(next_version(self.data_version, self._clock.now_ms(), self._meta.term))

    def _end_reset(self, place: tuple[str, int]) -> None:
        if self._resets:
            self._resets.pop(place, None)
            self._told.discard(place)

    def _remove_queues(self, key: str, queues: Iterable[int]) -> None:
        """Forget who committed and what was reset."""
        for queue_id in queues:
            self.committers.forget((key, queue_id))
            self._end_reset((key, queue_id))

    def _lowered(self, key: str) -> None:
        if self.lowerings is not None:
            self.lowerings.note(key)

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._lowered(key)
            self._remove_queues(key, self._table.drop(key))

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        lowerings = {} if self.lowerings is None else self.lowerings.stored()
        resets = {} if self._cycle is None else dict(self._resets)
        ours = OurOffsets(resets, dict(self._own or {}), lowerings, self.mark, self._lmq_seen)
        content = encode_offsets(self._table.snapshot(self.data_version), stamp, ours)
        return lambda: content

    def _adopt(self, stored: OffsetFile) -> None:
        self.data_version, self._lmq_seen = stored.table.dataVersion, stored.lmq_seen
        now = self._clock.now_ms()
        for key, queues in stored.table.offsetTable.items():
            # -1 and the like are left behind by RocketMQ where a client knew no offset.
            self._table.of(key).update({queue: offset for queue, offset in queues.items() if offset >= 0})
        self._resets.update(stored.resets)
        if self._own is not None:
            self._own.update(stored.own)
            # A master that became a slave knows its own table.
            self.mark = stored.mark or (Lowerings.resumed(stored.lowerings, now).mark if stored.lowerings else "")
        elif self.lowerings is not None and stored.lowerings and not stored.mark:
            self.lowerings = Lowerings.resumed(stored.lowerings, now)
