"""A group in memory that a script drives step by step, and that tells what happens: what the traces are made of.

Nothing moves by itself: time passes, members tick and messages arrive when a command says so. After each command
everything that wants to happen at once does: ticks that a member asked for, and syncs of disks that are not held.
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from raft.protocol.config import GroupConfig, Member
from raft.protocol.hello import judge
from raft.protocol.messages import MessageKind, RaftMessage, decode, encode_head
from raft.protocol.types import EntryType, Fate, Mark, Refusal
from runtime.clock import ManualClock
from tests.parts.raft_memory_log import MemoryLog
from tests.simulation.trace_member import TracedNode, mark, words

GROUP_ID = b"G" * 16
# Ticks at once, messages in one delivery: beyond it the group spins.
TICKS_MAX = 100
MESSAGES_MAX = 2000
# Milliseconds of one step of `run`.
STEP_MS = 10


class TraceGroup:
    """The members, the time they share, and what is between them. Every command returns what happened, in lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.beginners: tuple[str, ...] = ()
        self.members: dict[str, TracedNode] = {}
        self.flying: list[tuple[str, str, RaftMessage]] = []
        self.links: set[tuple[str, str]] = set()
        self.cuts: set[tuple[str, str]] = set()
        self.story: list[str] = []
        self.quiet = False

    def run(self, command: str) -> list[str]:
        """Do what a line of a script says."""
        name, *words_ = command.split()
        method: Callable[..., None] | None = getattr(self, f"do_{name}", None)
        assert method is not None, f"no command {name!r}"
        self.story = []
        method(*words_)
        self.settle()
        return self.story

    def say(self, line: str) -> None:
        if not self.quiet:
            self.story.append(line)

    def some(self, names: Iterable[str]) -> list[TracedNode]:
        """The members named, all that run when none is."""
        return [self.members[name] for name in names] or [m for m in self.members.values() if m.node is not None]

    def settle(self) -> None:
        """Let happen what happens at once: ticks that are wanted, syncs of disks that are not held."""
        for _ in range(TICKS_MAX):
            due = [m for m in self.some(()) if m.wants_tick or m.must_sync]
            if not due:
                return
            for member in due:
                if member.must_sync:
                    member.sync()
                if member.wants_tick and member.node is not None:
                    member.wants_tick = False
                    member.node.tick()
        raise AssertionError(f"{[m.name for m in due]} want to tick without end")

    # -- the network

    def send(self, sender: str, receiver: str, message: RaftMessage) -> bool:
        """Take a message off a member's hands; False when there is no link."""
        if (sender, receiver) not in self.links:
            return False
        lost = (sender, receiver) in self.cuts
        if message.kind not in {MessageKind.HELLO, MessageKind.CLOCK, MessageKind.CLOCK_REPLY}:
            # Hellos travel like all others and decide whom a member trusts; there are many, and they say nothing new.
            # Nor do clocks that are all the same.
            self.say(f"{sender} -> {receiver} {words(message)}{' (lost)' if lost else ''}")
        if not lost:
            self.flying.append((sender, receiver, message))
        return True

    def link(self, a: TracedNode, b: TracedNode) -> None:
        """Open a link as the transport does: each judges the other's hello first."""
        why = judge(a.hello(), b.hello(), a.raft.config) or judge(b.hello(), a.hello(), b.raft.config)
        if why is not None:
            self.say(f"{a.name} and {b.name} are not linked: {why}")
            return
        self.links |= {(a.name, b.name), (b.name, a.name)}
        hellos = a.hello(), b.hello()
        a.raft.connected(b.name, hellos[1])
        b.raft.connected(a.name, hellos[0])

    def unlink(self, a: str, b: str) -> None:
        """Close a link: what was on its way is lost, both are told."""
        if (a, b) in self.links:
            self.links -= {(a, b), (b, a)}
            self.flying = [m for m in self.flying if {m[0], m[1]} != {a, b}]
            for name, other in ((a, b), (b, a)):
                node = self.members[name].node
                if node is not None:
                    node.disconnected(other)

    def carry(self, message: tuple[str, str, RaftMessage]) -> None:
        """Bring one message to its receiver, as bytes; what follows at once is settle()'s."""
        self.flying.remove(message)
        sender, receiver, sent = message
        node = self.members[receiver].node
        if node is not None:
            node.receive(sender, decode(encode_head(sent), memoryview(b"".join(sent.payload))))

    # -- commands: members and their life

    def do_nodes(self, count: str, *flags: str) -> None:
        """`nodes 3 [empty]`: members n0 to n2, with a group already unless they are empty; not started."""
        self.beginners = tuple(f"n{number}" for number in range(int(count)))
        for number in range(int(count)):
            self.members[f"n{number}"] = TracedNode(self, number, self.folder)
        if "empty" not in flags:
            config = GroupConfig(GROUP_ID, tuple(self.member(name) for name in self.beginners))
            for member in self.members.values():
                member.log.append(EntryType.CONFIG, 1, config.encode(), 0)
                member.log.sync()

    def member(self, name: str) -> Member:
        number = int(name[1:])
        return Member(name, f"127.0.0.1:{40911 + number}", self.members[name].store_id)

    def do_node(self, name: str) -> None:
        """`node n3`: one more machine, with an empty disk; not started."""
        self.members[name] = TracedNode(self, int(name[1:]), self.folder)

    def do_log(self, name: str, *entries: str) -> None:
        """`log n0 1:a 2:b`: entries of terms 1 and 2 on the disk before the start."""
        log = self.members[name].log
        for entry in entries:
            term, _, data = entry.partition(":")
            log.append(EntryType.MESSAGES, int(term), data.encode(), 0)
        log.sync()

    def do_vote(self, name: str, term: str, voted_for: str = "") -> None:
        """`vote n0 4 n1`: what the vote file holds before the start."""
        self.members[name].votes(has_log=True).save(int(term), voted_for)

    def do_messages(self, name: str) -> None:
        """`messages n1`: its store holds messages from before the group."""
        self.members[name].log = MemoryLog(Mark(0, 0, 4096, 77))

    def do_disk(self, name: str) -> None:
        """`disk n1`: another, empty disk under the same name."""
        number = int(name[1:])
        member = self.members[name] = TracedNode(self, number, self.folder / "another")
        member.store_id = bytes([number + 101]) * 16

    def do_start(self, *names: str) -> None:
        """`start [n0 …]`: begin the processes, unless they run, and link them with all others that do."""
        chosen = [self.members[name] for name in names] or list(self.members.values())
        for member in chosen:
            if member.node is None:
                member.start()
        running = self.some(())
        for place, a in enumerate(running):
            for b in running[place + 1 :]:
                if (a in chosen or b in chosen) and (a.name, b.name) not in self.links:
                    self.link(a, b)

    def do_stop(self, name: str, *flags: str) -> None:
        """`stop n0 [power]`: kill -9, or the power goes; its links break."""
        self.members[name].stop(power="power" in flags)
        for other in self.members:
            self.unlink(name, other)

    def do_share(self, name: str, share: str) -> None:
        """`share n0 0.5`: its random numbers: where between the shortest and the longest timeout it stands."""
        self.members[name].rng.share = float(share)

    # -- commands: time and messages

    def do_pass(self, milliseconds: str) -> None:
        """`pass 600`: time goes by, nobody ticks."""
        self.clock.advance(int(milliseconds) / 1000)

    def do_tick(self, *names: str) -> None:
        """`tick [n0 …]`: members look at the clock."""
        for member in self.some(names):
            member.look()

    def do_run(self, milliseconds: str, *flags: str) -> None:
        """`run 2000 [quiet]`: time goes by in small steps, all tick and every message arrives; quiet tells nothing."""
        self.quiet = "quiet" in flags
        for _ in range(int(milliseconds) // STEP_MS):
            self.clock.advance(STEP_MS / 1000)
            for member in self.some(()):
                member.look()
            self.settle()
            self.do_deliver()
        self.quiet = False

    def do_deliver(self, *flags: str) -> None:
        """`deliver [n0->n1 …] [once] [together] [reversed]`: messages arrive, with all that follows unless once.

        Together: what is on its way arrives in one turn of the loop, before anybody ticks.
        """
        ways = {tuple(flag.split("->")) for flag in flags if "->" in flag}
        for _ in range(MESSAGES_MAX):
            ready = [m for m in self.flying if not ways or (m[0], m[1]) in ways]
            if not ready:
                return
            if "reversed" in flags:
                ready.reverse()
            once = "once" in flags or "together" in flags
            for message in ready if once else ready[:1]:
                self.carry(message)
                if "together" not in flags:
                    self.settle()
            if once:
                return
        raise AssertionError("messages without end")

    def do_repeat(self, way: str) -> None:
        """`repeat n0->n1`: what is on this way arrives, and stays on it to arrive again."""
        for message in [m for m in self.flying if f"{m[0]}->{m[1]}" == way]:
            self.flying.append(message)
            self.carry(message)
            self.settle()

    def do_drop(self, *ways: str) -> None:
        """`drop [n0->n1 …]`: what is on its way is lost."""
        self.flying = [m for m in self.flying if ways and f"{m[0]}->{m[1]}" not in ways]

    def do_cut(self, *ways: str) -> None:
        """`cut n0->n1 …` or `cut n0`: from now on messages that way, or all of a member, are lost without a word."""
        for way in ways:
            a, arrow, b = way.partition("->")
            others = [b] if arrow else [name for name in self.members if name != a]
            self.cuts |= {(a, other) for other in others} | (set() if arrow else {(other, a) for other in others})
        self.flying = [m for m in self.flying if (m[0], m[1]) not in self.cuts]

    def do_heal(self) -> None:
        """`heal`: nothing is cut any more."""
        self.cuts.clear()

    def do_unlink(self, a: str, b: str) -> None:
        """`unlink n0 n1`: their connections close."""
        self.unlink(a, b)

    def do_hold(self, *names: str) -> None:
        """`hold n1`: nothing that it writes gets to the disk until `sync n1`."""
        for name in names:
            self.members[name].held = True

    def do_sync(self, *names: str) -> None:
        """`sync n1`: what it wrote is on the disk, and so is from now on what it writes."""
        for name in names:
            self.members[name].held = False
            self.members[name].sync()

    def do_rot(self, name: str, first: str, last: str) -> None:
        """`rot n1 2 3`: these entries, once on its disk, can no longer be read; before the start."""
        log = self.members[name].log
        log.damaged, log.whole = (int(first), int(last)), False

    # -- commands: what people do

    def fate(self, name: str, what: str) -> Callable[[Fate], None]:
        return lambda fate: self.say(f"{name}: {what} is {fate.name}")

    def answer(self, name: str, what: str, act: Callable[[], Refusal | None]) -> None:
        """Do something that may be refused, and tell how it was taken."""
        try:
            refusal = act()
        except ValueError as error:
            self.say(f"{name}: {what} is refused: {error}")
            return
        if refusal is not None:
            self.say(f"{name}: {what} is refused: {refusal.name}")

    def do_propose(self, name: str, *data: str) -> None:
        """`propose n0 x y`: messages, an entry each."""
        member = self.members[name]
        for text in data:
            append = functools.partial(self._append, member.log, text)
            self.answer(name, text, functools.partial(member.raft.propose, append, self.fate(name, text)))

    @staticmethod
    def _append(log: MemoryLog, text: str, term: int, commit: int) -> int:
        return log.append(EntryType.MESSAGES, term, text.encode(), commit)

    def do_add(self, name: str, new: str) -> None:
        """`add n0 n3`: ask n0 to take n3 in as a learner."""
        what = f"adding {new}"
        added = self.member(new)
        self.answer(name, what, lambda: self.members[name].raft.add_learner(added, self.fate(name, what)))

    def do_promote(self, name: str, learner: str) -> None:
        """`promote n0 n3`: ask n0 to let n3 vote."""
        what = f"promoting {learner}"
        self.answer(name, what, lambda: self.members[name].raft.promote(learner, self.fate(name, what)))

    def do_remove(self, name: str, old: str) -> None:
        """`remove n0 n2`: ask n0 to take n2 out."""
        what = f"removing {old}"
        self.answer(name, what, lambda: self.members[name].raft.remove(old, self.fate(name, what)))

    def do_leave(self, name: str) -> None:
        """`leave n0`: ask n0 to end the group."""
        self.answer(name, "leaving", lambda: self.members[name].raft.leave(self.fate(name, "leaving")))

    def do_transfer(self, name: str, to: str) -> None:
        """`transfer n0 n1`: ask n0 to hand the lead over to n1."""
        self.answer(name, f"handing over to {to}", lambda: self.members[name].raft.transfer(to))

    # -- commands: looking

    def do_status(self, *names: str) -> None:
        """`status [n0 …]`: what members are."""
        for member in self.some(names):
            node, log = member.raft, member.log
            self.say(
                f"{member.name} {node.role.name} term {node.term} leader {node.leader_id or '-'}"
                f" last {mark(log.last.index, log.last.term)} durable {log.durable} commit {node.commit_index}"
                f"{' serving' if node.serving else ''}{' lease' if node.has_lease() else ''}"
            )

    def do_logs(self, *names: str) -> None:
        """`logs [n0 …]`: what logs hold: type or content, and term, of each entry."""
        for name in names or tuple(self.members):
            log = self.members[name].log
            held = [self._entry_words(log, index) for index in range(log.base.index + 1, log.last.index + 1)]
            self.say(f"{name} {' '.join(held)}")

    @staticmethod
    def _entry_words(log: MemoryLog, index: int) -> str:
        kind = log.kind(index)
        content = bytes(log.read(index, 1)[0].data[1:]).decode() if kind is EntryType.MESSAGES else kind.name
        return f"{content}/{log.term(index)}"

    def do_why(self, name: str) -> None:
        """`why n0`: why it does not stand, or what it waits for."""
        status: dict[str, Any] = self.members[name].raft.status()
        self.say(f"{name} held back: {status.get('held_back') or '-'}; founding: {status.get('founding') or '-'}")
