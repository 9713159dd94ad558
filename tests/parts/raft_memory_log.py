"""A log of entries in memory, a disk for votes in memory, and a group of nodes in one process with a clock by hand."""

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from raft.core.node import RaftNode
from raft.core.votefile import VoteFile
from raft.protocol.config import GroupConfig, Member
from raft.protocol.hello import Hello
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.settings import Peer, RaftSettings
from raft.protocol.types import Entry, EntryRefused, EntryType, Fate, Mark, Role
from runtime.clock import ManualClock
from tests.parts.raft_memory_mending import MemoryMending

HEAD = 1


class MemoryLog:
    """raft.protocol.types.Log over a list. What is not synced is lost by power_loss()."""

    def __init__(self, base: Mark | None = None) -> None:
        base = base or Mark(0, 0, 0, 0)
        self.base = base
        self.commit = 0
        self.durable = base.index
        self.floor = base.index
        self.whole = True
        self.damaged: tuple[int, int] | None = None
        self.rows: list[tuple[Entry, EntryType, Mark]] = []
        self.syncs = 0
        self.cuts: list[int] = []
        self.failing: OSError | None = None
        self.full = False
        # No room for messages, but what they leave for no-ops and META.
        self.lacking = False
        self.cutting = False
        self.mending = MemoryMending(self)

    @property
    def last(self) -> Mark:
        return self.rows[-1][2] if self.rows else self.base

    def row(self, index: int) -> tuple[Entry, EntryType, Mark]:
        assert self.base.index < index <= self.last.index
        return self.rows[index - self.base.index - 1]

    def term(self, index: int) -> int | None:
        if index == self.base.index:
            return self.base.term
        return self.row(index)[0].term if self.base.index < index <= self.last.index else None

    def kind(self, index: int) -> EntryType:
        return self.row(index)[1]

    def payload(self, index: int) -> bytes:
        entry, kind, _ = self.row(index)
        return bytes(entry.data)[HEAD:] if kind in {EntryType.META, EntryType.CONFIG} else b""

    def last_config(self) -> int:
        return next((e.index for e, kind, _ in reversed(self.rows) if kind is EntryType.CONFIG), 0)

    def append(self, kind: EntryType, term: int, payload: bytes, commit: int) -> int:
        if self.failing is not None:
            raise self.failing
        if self.full:
            raise EntryRefused("full")
        last = self.last
        assert term >= last.term
        assert commit <= last.index
        self._put(Entry(last.index + 1, term, last.end, bytes([kind]) + payload))
        return last.index + 1

    @property
    def refused(self) -> str | None:
        return "the disk is full" if self.full or self.lacking else None

    def _put(self, entry: Entry) -> None:
        last = self.last
        data = bytes(entry.data)
        chain = zlib.crc32(data, zlib.crc32(f"{entry.index} {entry.term} {entry.position}".encode(), last.chain))
        mark = Mark(entry.index, entry.term, entry.position + len(data), chain)
        self.rows.append((entry._replace(data=data), EntryType(data[0]), mark))

    def accept(self, entries: Sequence[Entry]) -> None:
        if self.failing is not None:
            raise self.failing
        if self.full:
            raise EntryRefused("full")
        for entry in entries:
            last = self.last
            if entry.index != last.index + 1 or entry.position != last.end or entry.term < last.term:
                raise EntryRefused(f"entry {entry.index} at {entry.position} behind {last}")
            self._put(entry)

    def cut(self, last: int) -> None:
        assert last >= self.base.index
        self.cuts.append(last)
        del self.rows[last - self.base.index :]
        self.durable = min(self.durable, last)
        self.floor = min(self.floor, last)

    def read(self, index: int, bytes_max: int) -> list[Entry]:
        found: list[Entry] = []
        for entry, _, _ in self.rows[index - self.base.index - 1 :]:
            if found and sum(len(e.data) for e in found) + len(entry.data) > bytes_max:
                break
            found.append(entry)
        return found

    @property
    def readable(self) -> int:
        return self.last.index if self.damaged is None else self.damaged[0] - 1

    def end_position(self, index: int) -> int:
        return self.base.end if index == self.base.index else self.row(index)[2].end

    def digest(self) -> int:
        return self.base.chain

    def sync_soon(self) -> None:
        self.syncs += 1

    def sync(self) -> int:
        self.durable = self.floor = self.last.index
        return self.durable

    def forget(self, index: int) -> None:
        """Retention: keep nothing up to `index`."""
        mark = self.row(index)[2]
        del self.rows[: index - self.base.index]
        self.base = mark

    def power_loss(self) -> None:
        del self.rows[self.durable - self.base.index :]


class TurnedClock:
    """The group's clock with a wall clock that can be set on this machine alone."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms


class Machine:
    """What a process of one member leaves behind when it is killed: log and votes, and its node while it runs."""

    def __init__(self, name: str, group: "Group", log: MemoryLog | None = None) -> None:
        self.name = name
        self.group = group
        self.log = log or MemoryLog()
        self.store_id = name.encode().ljust(16, b"-")
        self.vote_content = b""
        self.votes = VoteFile(Path(name), self.store_id, 0, "", self._replace)
        self.saves: list[tuple[int, str]] = []
        self.commits: list[int] = []
        self.roles: list[tuple[Role, int]] = []
        self.leaders: list[str | None] = []
        self.configs: list[GroupConfig] = []
        self.fatal: BaseException | None = None
        self.resets: list[str] = []
        self.woken = False
        self.due, self.push_at = 0.0, float("inf")
        self.auto_sync = True
        self.vote_disk: OSError | None = None
        self.settings = group.settings(name)
        self.clock = TurnedClock(group.clock)
        self.node = self._made()

    def _replace(self, path: Path, content: bytes) -> None:
        if self.vote_disk is not None:
            raise self.vote_disk
        assert path.name == self.name
        self.vote_content = content

    def _made(self) -> RaftNode:
        return self.group.node_class(
            self.settings, self.log, self.votes,
            hello=self.hello, clock=self.clock, rng=self.group.rng, send=self._send, events=self,
        )  # fmt: skip

    def restart(self) -> None:
        """Another process on the same disk."""
        self.node.stop()
        for other in self.group.machines.values():
            other.node.disconnected(self.name)
        self.fatal = None
        self.log.commit = 0
        self.node = self._made()
        self.node.start()

    def told(self, *, founds: bool = False, joins: bytes = b"") -> None:
        """Start again, with what a person said about this log."""
        self.settings = replace(self.settings, founds=founds, joins=joins)
        self.restart()

    def hello(self) -> Hello:
        config = self.node.config
        end = self.log.last
        base = (0, 0, 0) if config is None and not self.settings.joins else (end.index, end.end, end.chain)
        if config is not None:
            base = config.base
        return Hello(
            group="g", self_id=self.name, store_id=self.store_id, group_id=config.group_id if config else b"",
            last_index=self.log.last.index, last_term=self.log.last.term,
            base_index=base[0], base_position=base[1], base_digest=base[2],
            empty=self.log.last.end == 0, has_log=self.log.last.index > 0, log_file_bytes=1024, flush_sync=True,
            clock_ms=self.clock.now_ms(), config_index=self.node.config_index,
        )  # fmt: skip

    def _send(self, peer: str, message: RaftMessage) -> bool:
        return self.group.carry(self.name, peer, message)

    def sync(self) -> None:
        index = self.log.durable
        if self.log.sync() != index:
            self.node.durable(self.log.durable)

    def on_commit(self, index: int) -> None:
        self.commits.append(index)
        self.log.commit = index

    def on_role(self, role: Role, term: int) -> None:
        self.roles.append((role, term))

    def on_leader(self, member_id: str | None) -> None:
        self.leaders.append(member_id)

    def on_config(self, config: GroupConfig) -> None:
        self.configs.append(config)

    def on_fatal(self, error: BaseException) -> None:
        self.fatal = error

    def wake(self) -> None:
        self.woken = True

    def push_in(self, seconds: float) -> None:
        self.push_at = self.group.clock.monotonic() + seconds

    def reset_wanted(self, member_id: str) -> None:
        self.resets.append(member_id)


class Group:
    """Nodes n0, n1, … in one process. Messages are carried at once, unless a link is cut or `drop` says no."""

    def __init__(
        self,
        size: int = 3,
        *,
        seed: int = 7,
        node_class: type[RaftNode] = RaftNode,
        logs: dict[str, MemoryLog] | None = None,
        link: bool = True,
        **settings: int | str,
    ) -> None:
        self.clock = ManualClock()
        self.rng = random.Random(seed)
        self.node_class = node_class
        self.changed = settings
        self.names = [f"n{number}" for number in range(size)]
        self.cut_links: set[tuple[str, str]] = set()
        self.drop: Callable[[str, str, RaftMessage], bool] = lambda _source, _target, _message: False
        self.inbox: deque[tuple[str, str, RaftMessage]] = deque()
        self.seen: list[tuple[str, str, RaftMessage]] = []
        self.fates: list[Fate] = []
        self.machines: dict[str, Machine] = {}
        for name in self.names:
            self.machines[name] = Machine(name, self, (logs or {}).get(name))
        for machine in self.machines.values():
            machine.node.start()
        if link:
            self.link()

    def settings(self, name: str) -> RaftSettings:
        peers = tuple(Peer(peer, "127.0.0.1", 40911 + int(peer[1:])) for peer in sorted({*self.names, name}))
        made = RaftSettings(name, "g", peers, **self.changed)  # type: ignore[arg-type]  # by name
        made.validate()
        return made

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def add(self, name: str, log: MemoryLog | None = None) -> Machine:
        """A machine that is no member yet; linked with everybody."""
        self.machines[name] = Machine(name, self, log)
        self.machines[name].node.start()
        self.link([name])
        return self.machines[name]

    def member(self, name: str) -> Member:
        return Member(name, f"127.0.0.1:{40911 + int(name[1:])}", self[name].store_id, voter=False)

    def link(self, names: Iterable[str] | None = None) -> None:
        for one in names or list(self.machines):
            for other in self.machines:
                if one != other:
                    self[one].node.connected(other, self[other].hello())
                    self[other].node.connected(one, self[one].hello())

    def carry(self, source: str, target: str, message: RaftMessage) -> bool:
        if (source, target) in self.cut_links or target not in self.machines:
            return False
        self.seen.append((source, target, message))
        if not self.drop(source, target, message):
            self.inbox.append((source, target, message))
        return True

    def cut(self, *names: str) -> None:
        """Nothing gets to these any more, nor from them; nobody is told."""
        for one in names:
            for other in self.machines:
                self.cut_links |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.cut_links.clear()

    def kill(self, name: str) -> None:
        """The process is gone, and its links break."""
        self.cut(name)
        self[name].node.stop()
        for other in self.machines.values():
            other.node.disconnected(name)

    def settle(self) -> None:
        """Carry and tick until nothing is left to do at this moment."""
        for _ in range(10_000):
            busy = False
            while self.inbox:
                source, target, message = self.inbox.popleft()
                self[target].node.receive(source, message)
                busy = True
            for machine in self.machines.values():
                if machine.auto_sync and machine.log.durable < machine.log.last.index:
                    machine.sync()
                    busy = True
                if machine.push_at <= self.clock.monotonic():
                    machine.push_at = float("inf")
                    machine.node.push()
                    busy = True
                if machine.woken or machine.due <= self.clock.monotonic():
                    machine.woken = False
                    machine.due = self.clock.monotonic() + max(machine.node.tick(), 0.0005)
                    busy = True
            if not busy and not self.inbox:
                return
        raise AssertionError("the group never comes to rest")

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> float:
        """Let time pass; returns how much did, less when `until` came true."""
        start = self.clock.monotonic()
        self.settle()
        while self.clock.monotonic() - start < seconds and not (until is not None and until()):
            self.clock.advance(0.005)
            self.settle()
        return self.clock.monotonic() - start

    @property
    def leader(self) -> Machine | None:
        """Who leads the highest term, and serves."""
        serving = [m for m in self.machines.values() if m.node.serving]
        return max(serving, key=lambda m: m.node.term, default=None)

    def elect(self, name: str | None = None) -> Machine:
        """Let time pass until a leader serves, that one if it is named."""
        self.run(20, lambda: self.leader is not None)
        assert self.leader is not None, "nobody leads"
        if name is not None and self.leader.name != name:
            assert self.leader.node.transfer(name) is None
            self.run(5, lambda: self[name].node.serving)
        leader = self.leader
        assert leader is not None
        assert name in {None, leader.name}
        return leader

    def propose(self, name: str, text: bytes = b"x") -> object:
        log = self[name].log
        return self[name].node.propose(
            lambda term, commit: log.append(EntryType.MESSAGES, term, text, commit), self.fates.append
        )

    def kinds(self, kind: MessageKind) -> list[tuple[str, str, RaftMessage]]:
        return [sent for sent in self.seen if sent[2].kind is kind]

    def logs_equal(self) -> bool:
        rows = [[row[0] for row in machine.log.rows] for machine in self.machines.values()]
        return all(row == rows[0] for row in rows)
