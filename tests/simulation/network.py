"""The network between the members: links that come and go, messages that are late, lost, doubled and out of order."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raft.protocol.messages import MessageKind, RaftMessage, decode, encode_head
from tests.simulation.member import Member
from tests.simulation.seams import Surroundings


@dataclass
class Weather:
    """How bad the network is. Times in seconds, odds from 0 to 1."""

    delay: float = 0.001
    jitter: float = 0.002
    loss: float = 0.0
    double: float = 0.0
    # Odds that a message takes up to `late_s` and is passed by others.
    late: float = 0.0
    late_s: float = 0.4


class Network:
    """Directed links by (from, to). A link that is up carries messages unless its direction is cut."""

    def __init__(
        self,
        world: Surroundings,
        members: Mapping[str, Member],
        names: Sequence[str],
        weather: Weather,
        rng: random.Random,
    ) -> None:
        self._world = world
        self._members = members
        self.weather = weather
        # Dice of each link, so that it does not matter in which order a member sends to several others: the library
        # keeps them in a set.
        self._dice = {(source, target): random.Random(rng.getrandbits(64)) for source in names for target in names}
        self._lead = {pair: number * 1e-7 for number, pair in enumerate(self._dice)}
        self.up: set[tuple[str, str]] = set()
        self.cuts: set[tuple[str, str]] = set()
        self._rising: set[tuple[str, str]] = set()
        # Tests look at messages here, and may keep one from being sent by returning False.
        self.tap: Callable[[str, str, RaftMessage], bool] = _let_pass

    # -- messages

    def send(self, source: str, target: str, message: RaftMessage) -> bool:
        """Take a message as a transport does; False when there is no link."""
        world = self._world
        sender = self._members[source]
        if sender.disk.dead:
            # The power went within this very event: nobody hears what the process says after that.
            return False
        if (source, target) not in self.up:
            return False
        world.watch.sent(sender, target, message)
        if not self.tap(source, target, message):
            return True
        head = encode_head(message)
        payload = b"".join(message.payload)
        rng, weather = self._dice[source, target], self.weather
        if (source, target) in self.cuts or rng.random() < weather.loss:
            world.say(lambda: f"{source}→{target} lost {describe(message)}")
            return True
        world.say(lambda: f"{source}→{target} {describe(message)}")
        for _ in range(2 if rng.random() < weather.double else 1):
            delay = weather.delay + rng.random() * weather.jitter + self._lead[source, target]
            if rng.random() < weather.late:
                delay += rng.random() * weather.late_s
            self._deliver_later(source, target, head, payload, delay)
        return True

    def _deliver_later(self, source: str, target: str, head: bytes, payload: bytes, delay: float) -> None:
        receiver = self._members[target]

        def deliver() -> None:
            if (source, target) in self.cuts:
                return
            message = decode(head, memoryview(payload))
            self._world.say(lambda: f"{target} gets {describe(message)} of {source}")
            receiver.raft.receive(source, message)

        self._world.after(delay, deliver, on=receiver)

    # -- links

    def is_cut(self, one: str, other: str) -> bool:
        """Tell whether two machines cannot make a connection: it takes both directions."""
        return (one, other) in self.cuts or (other, one) in self.cuts

    def cut(self, source: str, target: str, *, notice_s: float | None = None) -> None:
        """Let nothing pass in one direction; the sender's link goes down after `notice_s`, if ever."""
        self.cuts.add((source, target))
        if notice_s is not None:
            for pair in ((source, target), (target, source)):
                self._world.after(notice_s, lambda pair=pair: self._drop_if_cut(*pair))  # type: ignore[misc]  # a bound default

    def heal(self) -> None:
        """Undo all cuts; links come up again one after the other."""
        self.cuts.clear()
        self.connect_all()

    def connect_all(self) -> None:
        """Let every link come up that can."""
        for source in self._members:
            for target in self._members:
                if source != target:
                    self.dial(source, target)

    def dial(self, source: str, target: str) -> None:
        """Have one member connect to another one, again and again until it is done."""
        pair = (source, target)
        if pair in self._rising or pair in self.up:
            return
        self._rising.add(pair)
        self._world.after(0.002 + self._dice[pair].random() * 0.03, lambda: self._rise(source, target))

    def _rise(self, source: str, target: str) -> None:
        self._rising.discard((source, target))
        world = self._world
        one, other = self._members[source], self._members[target]
        if not one.alive or not other.alive or (source, target) in self.up:
            return
        if self.is_cut(source, target):
            return
        if one.paused or other.paused:
            self._rising.add((source, target))
            world.after(0.1, lambda: self._rise(source, target))
            return
        hello = other.hello_bytes()
        refusal = one.judge(hello) or other.judge(one.hello_bytes())
        if refusal is not None:
            world.say(lambda: f"{source}→{target} refused: {refusal}")
            world.after(0.5, lambda: self.dial(source, target))
            return
        self.up.add((source, target))
        world.say(lambda: f"{source}→{target} up")
        world.after(0.0, lambda: one.raft.connected(target, one.decode_hello(hello)), on=one)

    def drop(self, source: str, target: str) -> None:
        """Let a link go down, and its owner know."""
        if (source, target) not in self.up:
            return
        self.up.discard((source, target))
        one = self._members[source]
        self._world.say(lambda: f"{source}→{target} down")
        self._world.after(0.0, lambda: one.raft.disconnected(target), on=one)
        self.dial(source, target)

    def _drop_if_cut(self, source: str, target: str) -> None:
        if self.is_cut(source, target):
            self.drop(source, target)

    def gone(self, name: str, *, noticed: bool) -> None:
        """A process is gone: its links with it, those to it when the machine is there to say so."""
        for source, target in sorted(self.up):
            if source == name:
                self.up.discard((source, target))
            elif target == name:
                if noticed:
                    self._world.after(0.001, lambda source=source, target=target: self.drop(source, target))  # type: ignore[misc]  # bound defaults
                else:
                    self._world.after(0.6, lambda source=source, target=target: self._drop_if_old(source, target))  # type: ignore[misc]  # bound defaults

    def _drop_if_old(self, source: str, target: str) -> None:
        if not self._members[target].alive:
            self.drop(source, target)


def describe(message: RaftMessage) -> str:
    """Return a message in a line."""
    fields = dict(message.fields)
    if message.kind is MessageKind.APPEND and "entries" in fields:
        entries = fields["entries"]
        fields["entries"] = [entry[:2] for entry in entries] if len(entries) < 4 else f"{len(entries)} entries"
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{message.kind.name} {text}"


def _let_pass(_source: str, _target: str, _message: RaftMessage) -> bool:
    return True
