"""One member of a traced group, and the words in which its messages are told."""

import random
from pathlib import Path
from typing import Protocol

from raft.core.node import RaftNode
from raft.core.votefile import VoteFile
from raft.protocol.config import GroupConfig
from raft.protocol.hello import Hello
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.settings import Peer, RaftSettings
from raft.protocol.types import Role
from runtime.clock import ManualClock
from tests.parts.raft_memory_log import MemoryLog


class Surroundings(Protocol):
    """What a member has around it: trace_group.TraceGroup."""

    clock: ManualClock
    beginners: tuple[str, ...]
    """Whom the configuration of all members names."""

    def say(self, line: str) -> None:
        """Tell what happens."""
        ...

    def send(self, sender: str, receiver: str, message: RaftMessage) -> bool:
        """Take a message off a member's hands; False when there is no link."""
        ...


class SetRandom(random.Random):
    """Always the same number, so that a script knows when a member stands: 0.0 at the shortest timeout."""

    def __init__(self, share: float) -> None:
        super().__init__(7)
        self.share = share

    def random(self) -> float:
        return self.share


def mark(index: int, term: int) -> str:
    """An entry as the traces write it: index/term."""
    return f"{index}/{term}"


def words(message: RaftMessage) -> str:
    """A message in a few words; sequence numbers and rounds are left out, they only echo."""
    f = message.fields
    match message.kind:
        case MessageKind.APPEND:
            entries = " ".join(mark(row[0], row[1]) for row in f["entries"])
            said = f"term {f['term']} after {mark(f['prev_index'], f['prev_term'])} commit {f['commit']} [{entries}]"
        case MessageKind.APPEND_REPLY if f["ok"]:
            said = f"term {f['term']} match {f['match']} durable {f['durable']}"
        case MessageKind.APPEND_REPLY:
            said = f"term {f['term']} no, try {mark(f['hint_index'], f['hint_term'])}"
        case MessageKind.PRE_VOTE | MessageKind.VOTE:
            said = f"term {f['term']} last {mark(f['last_index'], f['last_term'])}"
            said += " by transfer" if f.get("transfer") else ""
        case MessageKind.PRE_VOTE_REPLY:
            said = f"term {f['term']} " + ("yes" if f["granted"] else f"no: {f['why']}")
        case MessageKind.VOTE_REPLY:
            said = f"term {f['term']} " + ("yes" if f["granted"] else "no")
        case MessageKind.ADOPT:
            said = f"entry {mark(f['entries'][0][0], f['entries'][0][1])}"
        case MessageKind.ADOPT_REPLY:
            said = "yes" if f["ok"] else f"no: {f['why']}"
        case MessageKind.BEHIND:
            said = f"term {f['term']} base {mark(f['base_index'], f['base_term'])}"
        case MessageKind.TIMEOUT_NOW:
            said = f"term {f['term']}"
        case _:
            said = " ".join(f"{name} {value}" for name, value in f.items() if not isinstance(value, bytes | list))
    return f"{message.kind.name} {said}".rstrip()


class TracedNode:
    """One member: its disk (log and vote file) outlives its process (`node`)."""

    def __init__(self, group: Surroundings, number: int, folder: Path) -> None:
        self.group = group
        self.name = f"n{number}"
        self.number = number
        self.rng = SetRandom(min(0.9, number * 0.2))
        self.clock = group.clock
        self.log = MemoryLog()
        self.path = folder / self.name / "vote"
        self.store_id = bytes([number + 1]) * 16
        self.held = False
        self.wants_tick = False
        self.push_at = float("inf")
        self.node: RaftNode | None = None
        self.votes(has_log=False)

    def votes(self, *, has_log: bool) -> VoteFile:
        return VoteFile.open(self.path, has_log=has_log, new_id=lambda: self.store_id)

    def settings(self) -> RaftSettings:
        peers = tuple(Peer(name, "127.0.0.1", 40911 + int(name[1:])) for name in self.group.beginners)
        if self.name not in self.group.beginners:
            peers = (*peers, Peer(self.name, "127.0.0.1", 40911 + self.number))
        return RaftSettings(self.name, "RaftNode00", peers)

    def hello(self) -> Hello:
        index = self.log.last_config()
        config = GroupConfig.decode(self.log.payload(index)) if index else None
        return Hello(
            group="RaftNode00",
            self_id=self.name,
            store_id=self.store_id,
            group_id=config.group_id if config is not None and not config.classic else b"",
            last_index=self.log.last.index,
            last_term=self.log.last.term,
            base_index=config.base_index if config is not None else 0,
            base_position=config.base_position if config is not None else 0,
            empty=self.log.last.end == 0,
            has_log=self.log.last.index > 0,
            log_file_bytes=1 << 30,
            flush_sync=True,
            clock_ms=self.clock.now_ms(),
            base_digest=config.base_digest if config is not None else 0,
            config_index=index,
            peer_ids=self.group.beginners,
        )

    # -- life

    def start(self) -> None:
        """Begin a process on what the disk holds."""
        assert self.node is None, f"{self.name} runs already"
        votes = self.votes(has_log=self.log.last.index > 0)
        self.log.commit = 0
        self.node = RaftNode(
            self.settings(), self.log, votes,
            hello=self.hello, clock=self.clock, rng=self.rng, send=self.send, events=self,
        )  # fmt: skip
        self.node.start()
        self.wake()

    def stop(self, *, power: bool) -> None:
        """End the process without a word; with `power` what was not synced is gone too."""
        self.node = None
        self.wants_tick = False
        self.push_at = float("inf")
        if power:
            self.log.power_loss()

    @property
    def raft(self) -> RaftNode:
        assert self.node is not None, f"{self.name} does not run"
        return self.node

    def send(self, peer: str, message: RaftMessage) -> bool:
        return self.group.send(self.name, peer, message)

    @property
    def must_sync(self) -> bool:
        """Whether something that it wrote is not on its disk, and may get there."""
        return not self.held and self.log.durable < self.log.last.index

    def sync(self) -> None:
        """Have everything on disk, and tell the node."""
        index = self.log.sync()
        if self.node is not None:
            self.node.durable(index)

    # -- NodeEvents

    def on_commit(self, index: int) -> None:
        self.log.commit = index
        self.group.say(f"{self.name} commits {index}")

    def on_role(self, role: Role, term: int) -> None:
        self.group.say(f"{self.name} is {role.name} in term {term}")

    def on_leader(self, member_id: str | None) -> None:
        self.group.say(f"{self.name} follows {member_id or 'nobody'}")

    def on_config(self, config: GroupConfig) -> None:
        learners = f" learners {' '.join(config.learners)}" if config.learners else ""
        ended = " ended" if config.classic else ""
        self.group.say(f"{self.name} has voters {' '.join(config.voters)}{learners}{ended}")

    def on_fatal(self, error: BaseException) -> None:
        self.group.say(f"{self.name} fails: {error}")

    def reset_wanted(self, member: str) -> None:
        self.group.say(f"{self.name} must be reset from {member}")

    def wake(self) -> None:
        self.wants_tick = True

    def push_in(self, seconds: float) -> None:
        self.push_at = self.clock.monotonic() + seconds

    def look(self) -> None:
        """See to what is due by now."""
        self.raft.tick()
        if self.clock.monotonic() >= self.push_at:
            self.push_at = float("inf")
            self.raft.push()
