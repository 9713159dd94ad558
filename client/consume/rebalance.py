"""Which member of a consumer group gets which queues: pure functions that every member computes alike.

All members see the same sorted queues and sorted client ids, and each takes its own share; so the results of the
official clients and of this one must agree, or a queue has two owners or none.
"""

import bisect
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace

from client.errors import ConsumeError
from remoting.bodies.registry import MessageQueue

# (my client id, all queues sorted, all client ids sorted) → my queues, sorted. `me` is one of the ids.
Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

VIRTUAL_NODES = 10
# Places of a name on the ring of STICKY: with one, neighbours want the same members, and twice as many queues move.
STICKY_PLACES = 4
_BITS_64 = (1 << 64) - 1
# 2^64 over the golden ratio: its multiples lie far apart.
_GOLDEN = 0x9E3779B97F4A7C15


def allocate(
    strategy: Strategy, me: str, queues: Iterable[MessageQueue], members: Iterable[str]
) -> list[MessageQueue] | None:
    """Return my share, or None when I am not (yet) a member and so must not decide anything."""
    ids = sorted(set(members))
    if me not in ids:
        return None
    # A dict keeps the order that a route's queues have already, and sorting them again costs next to nothing.
    everything = sorted(dict.fromkeys(queues))
    mine = strategy(me, everything, ids)
    assert set(mine) <= set(everything), "a strategy hands out only the queues that it was given"
    return mine


def average(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Give each member one run of neighbouring queues; the first members get the remainder (the default, AVG)."""
    index = members.index(me)
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def average_by_circle(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Deal the queues out one by one, like cards (AVG_BY_CIRCLE)."""
    return list(queues[members.index(me) :: len(members)])


def by_config(mine: Iterable[MessageQueue]) -> Strategy:
    """Take the given queues, as far as they exist (CONFIG)."""
    wanted = frozenset(mine)

    def configured(_me: str, queues: Sequence[MessageQueue], _members: Sequence[str]) -> list[MessageQueue]:
        return [queue for queue in queues if queue in wanted]

    return configured


def by_machine_room(rooms: Iterable[str]) -> Strategy:
    """Share only the queues of brokers named ``room@name`` whose room is listed (MACHINE_ROOM)."""
    wanted = frozenset(rooms)

    def in_rooms(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        near = [queue for queue in queues if _room_prefix(queue.brokerName) in wanted]
        index = members.index(me)
        share, rest = divmod(len(near), len(members))
        mine = near[index * share : (index + 1) * share]
        if index < rest:
            mine.append(near[share * len(members) + index])
        return mine

    return in_rooms


def _room_prefix(broker: str) -> str | None:
    room, at, _name = broker.partition("@")
    return room if at else None


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    """Put members on a ring of hashes, so that few queues move when one comes or goes (CONSISTENT_HASH)."""
    assert virtual_nodes > 0

    def on_ring(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        ring = sorted((_ring_place(f"{member}-{node}"), member) for member in members for node in range(virtual_nodes))
        places = [place for place, _member in ring]
        return [queue for queue in queues if ring[_next(places, _ring_place(_ring_name(queue)))][1] == me]

    return on_ring


def _next(places: list[int], place: int) -> int:
    return bisect.bisect_left(places, place) % len(places)


def _ring_place(text: str) -> int:
    # The first four bytes of MD5: what official clients use, so that a mixed group agrees. It guards nothing.
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _ring_name(queue: MessageQueue) -> str:
    # The text that official clients hash for a queue.
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.brokerName}, queueId={queue.queueId}]"


def sticky(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Share evenly (to one queue), and move few queues when a member comes or goes (STICKY).

    Queues and members have places on a ring, a few each, that nothing but their names decides; those that are nearest
    come together, as long as the member has room. Whoever left and comes back under its name gets its queues back. With
    many queues for each member about 1.5 times as many move as must, with few of them more; AVG moves half of all. No
    rule that knows but the names can do with the fewest every time: of two queues, a and b have one each, so have b and
    c, and so have a and c, and if nobody ever changes the queue that he keeps, two of the three have the same one.

    What was far is never looked at: a thousand queues and members take some ten thousand looks.
    """
    ring = sorted((place, member) for member in members for place in _places(member))
    places = [place for place, _member in ring]
    share, rest = divmod(len(queues), len(members))
    room = dict.fromkeys(members, share)
    taken: set[int] = set()
    mine: list[MessageQueue] = []
    # Of each place of a queue the member that is next from there on, the nearest first.
    looks = []
    for number, queue in enumerate(queues):
        for place in _places(_ring_name(queue)):
            at = _next(places, place)
            looks.append((places[at] - place & _BITS_64, number, place, at))
    heapify(looks)
    while len(taken) < len(queues):
        _distance, number, place, at = looks[0]
        member = ring[at][1]
        if number in taken:
            heappop(looks)
        elif room[member] < 0 or (room[member] == 0 and rest == 0):
            at = (at + 1) % len(ring)
            heapreplace(looks, (places[at] - place & _BITS_64, number, place, at))
        else:
            if room[member] == 0:
                # One more than the others have: as many members as there are queues left over.
                rest -= 1
            room[member] -= 1
            taken.add(number)
            if member == me:
                mine.append(queues[number])
    return sorted(mine)


def _places(name: str) -> list[int]:
    """Return where a name stands on the ring of 64 bits."""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    first = int.from_bytes(digest[:8], "big")
    return [_mixed(first + number * _GOLDEN & _BITS_64) for number in range(STICKY_PLACES)]


def _mixed(bits: int) -> int:
    # The finisher of splitmix64: each bit of what comes in changes half of those that go out.
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & _BITS_64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & _BITS_64
    return bits ^ (bits >> 31)


def machine_room_nearby(
    inner: Strategy, room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str]
) -> Strategy:
    """Share a room's queues among the members in that room by `inner`; all share the rooms that have no member."""

    def nearby(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        by_room: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_room[room_of_broker(queue.brokerName)].append(queue)
        here = room_of_member(me)
        neighbours = [member for member in members if room_of_member(member) == here]
        inhabited = {room_of_member(member) for member in members}
        mine = inner(me, by_room.get(here, []), neighbours)
        for room in sorted(by_room.keys() - inhabited):
            mine += inner(me, by_room[room], members)
        return sorted(mine)

    return nearby


STRATEGIES: dict[str, Strategy] = {
    "AVG": average,
    "AVG_BY_CIRCLE": average_by_circle,
    "CONSISTENT_HASH": consistent_hash(),
    "STICKY": sticky,
}


def strategy_of(wanted: Strategy | str) -> Strategy:
    """Return the strategy of a name, or the one that was given; raises ConsumeError for a name that is none."""
    if not isinstance(wanted, str):
        return wanted
    found = STRATEGIES.get(wanted)
    if found is None:
        raise ConsumeError(
            f"strategy {wanted!r} is none of {', '.join(STRATEGIES)}; by_config, by_machine_room and "
            "machine_room_nearby take arguments and are given as functions"
        )
    return found
