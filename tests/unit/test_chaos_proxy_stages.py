"""chaos/proxy/stages.py: each toxic on pieces of bytes, with hands of time that only the test turns."""

import heapq
from collections.abc import Callable
from random import Random

import pytest

from chaos.proxy.stages import STAGES, Stage


class Hand:
    def __init__(self, when: float, number: int, callback: Callable[[], None]) -> None:
        self.when = when
        self.number = number
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: "Hand") -> bool:
        return (self.when, self.number) < (other.when, other.number)


class Hands:
    """Timers that only `turn` moves."""

    def __init__(self) -> None:
        self._now = 100.0
        self._hands: list[Hand] = []
        self._set = 0
        self.called = 0

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Hand:
        self._set += 1
        hand = Hand(max(when, self._now), self._set, callback)
        heapq.heappush(self._hands, hand)
        return hand

    def turn(self, seconds: float) -> None:
        until = self._now + seconds
        while self._hands and self._hands[0].when <= until + 1e-9:
            hand = heapq.heappop(self._hands)
            self._now = hand.when
            if not hand.cancelled:
                self.called += 1
                hand.callback()
        self._now = until


class Bench:
    """A stage between the test and a list: the place and the outlet of the stage."""

    def __init__(self, kind: str, seed: int = 1, **settings: int) -> None:
        self.timers = Hands()
        self.got: list[tuple[int, bytes | None]] = []
        self.kept = 0
        self.pieces = 0
        self.lost = 0
        self.resets = 0
        self.stage: Stage = STAGES[kind](self, settings, Random(seed))
        self.stage.after = self
        self.stage.start()

    def take(self, data: bytes) -> None:
        assert data, "an outlet never gets no bytes"
        self.got.append((self.ms(), data))

    def end(self) -> None:
        self.got.append((self.ms(), None))

    def ms(self) -> int:
        return round((self.timers.time() - 100) * 1000)

    def keep(self, pieces: int, count: int) -> None:
        self.pieces += pieces
        self.kept += count
        assert self.kept >= 0
        assert self.pieces >= 0

    def lose(self, count: int) -> None:
        self.lost += count

    def reset(self) -> None:
        self.resets += 1

    def bytes(self) -> bytes:
        return b"".join(data or b"" for _, data in self.got)


def test_latency_shifts_everything_and_the_end_comes_last() -> None:
    bench = Bench("latency", latency=50, jitter=0)
    bench.stage.take(b"a")
    bench.timers.turn(0.02)
    bench.stage.take(b"bc")
    bench.stage.end()
    assert (bench.kept, bench.pieces) == (3, 3)
    bench.timers.turn(1)
    assert bench.got == [(50, b"a"), (70, b"bc"), (70, None)]
    assert (bench.kept, bench.pieces) == (0, 0)


def test_jitter_stays_in_its_bounds_and_nothing_overtakes() -> None:
    bench = Bench("latency", latency=50, jitter=30)
    sent = bytes(range(200))
    for number in range(200):
        bench.stage.take(sent[number : number + 1])
        bench.timers.turn(0.1)
    assert bench.bytes() == sent
    delays = [at - number * 100 for number, (at, _) in enumerate(bench.got)]
    assert min(delays) < 25
    assert max(delays) > 75
    assert all(20 <= delay <= 80 for delay in delays)
    crowd = Bench("latency", latency=50, jitter=50)
    for number in range(200):
        crowd.stage.take(sent[number : number + 1])
    crowd.timers.turn(1)
    assert crowd.bytes() == sent


@pytest.mark.parametrize("kind", ["latency", "slicer"])
def test_chance_comes_from_the_seed(kind: str) -> None:
    def story(seed: int) -> list[tuple[int, bytes | None]]:
        settings = {"latency": 50, "jitter": 40} if kind == "latency" else SLICES
        bench = Bench(kind, seed, **settings)
        for _ in range(20):
            bench.stage.take(bytes(100))
            bench.timers.turn(0.2)
        return bench.got

    assert story(3) == story(3)
    assert story(3) != story(4)


SLICES = {"average_size": 10, "size_variation": 3, "delay": 2000}


def test_bandwidth_trickles() -> None:
    bench = Bench("bandwidth", rate=10)
    bench.stage.take(bytes(2500))
    bench.stage.end()
    bench.timers.turn(1)
    assert [(at, len(data or b"")) for at, data in bench.got] == [(100, 1000), (200, 1000), (250, 500), (250, 0)]
    bench.timers.turn(1)
    bench.stage.take(bytes(10))  # an idle wire saves nothing up
    bench.timers.turn(1)
    assert bench.got[-1] == (2001, bytes(10))


def test_pieces_share_the_bandwidth() -> None:
    bench = Bench("bandwidth", rate=10)
    bench.stage.take(bytes(500))
    bench.stage.take(bytes(500))
    bench.timers.turn(1)
    assert [at for at, _ in bench.got] == [50, 100]


def test_bandwidth_of_nothing_is_a_hold_until_it_is_changed() -> None:
    bench = Bench("bandwidth", rate=0)
    bench.stage.take(b"abc")
    bench.stage.end()
    bench.timers.turn(3600)
    assert bench.got == []
    bench.stage.retune({"rate": 1})
    bench.timers.turn(1)
    assert [data for _, data in bench.got] == [b"abc", None]


def test_slicer_cuts_everything_into_its_sizes() -> None:
    bench = Bench("slicer", **SLICES)
    sent = bytes(range(256)) * 4
    bench.stage.take(sent)
    bench.stage.end()
    assert bench.got == []  # each slice has a turn of its own
    bench.timers.turn(10)
    assert bench.bytes() == sent
    sizes = [len(data) for _, data in bench.got if data is not None]
    assert max(sizes) <= 13
    assert len(set(sizes)) > 3
    assert [at for at, _ in bench.got] == [2 * number for number in range(len(bench.got))]


def test_slices_without_a_delay_have_a_turn_each() -> None:
    """A socket that is given two of them in one turn of the loop sends them as one."""
    bench = Bench("slicer", average_size=10, size_variation=0, delay=0)
    bench.stage.take(bytes(80))
    bench.timers.turn(0)
    assert [len(data or b"") for _, data in bench.got] == [10] * 8
    assert bench.timers.called == 8


def test_slicer_of_single_bytes_with_a_wild_variation_comes_to_an_end() -> None:
    bench = Bench("slicer", average_size=1, size_variation=500, delay=0)
    bench.stage.take(bytes(10_000))
    bench.timers.turn(1)
    assert len(bench.bytes()) == 10_000


def test_slow_close_is_late_only_with_the_end() -> None:
    bench = Bench("slow_close", delay=300)
    bench.stage.take(b"x")
    bench.stage.end()
    bench.timers.turn(1)
    assert bench.got == [(0, b"x"), (300, None)]


def test_hold_keeps_all_in_order_until_it_leaves() -> None:
    bench = Bench("hold")
    for piece in (b"one", b"two"):
        bench.stage.take(piece)
    bench.stage.end()
    bench.timers.turn(3600)
    bench.stage.retune({})
    assert bench.got == []
    assert bench.kept == 6
    bench.stage.leave()
    assert [data for _, data in bench.got] == [b"one", b"two", None]
    assert (bench.kept, bench.lost) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("latency", {"latency": 60_000, "jitter": 0}),
        ("bandwidth", {"rate": 1}),
        ("slicer", SLICES),
        ("hold", {}),
        ("loss", {"per_mille": 1000, "rto": 200}),
    ],
)
def test_what_leaves_gives_away_and_what_is_dropped_forgets(kind: str, settings: dict[str, int]) -> None:
    for leaves in (True, False):
        bench = Bench(kind, **settings)
        bench.stage.take(bytes(500))
        if leaves:
            bench.stage.leave()
        else:
            bench.stage.drop()
        assert len(bench.bytes()) == (500 if leaves else 0)
        bench.timers.turn(3600)
        assert len(bench.bytes()) == (500 if leaves else 0)
        assert (bench.kept, bench.pieces) == (0, 0)


def test_what_is_lost_comes_later_and_holds_up_what_stands_behind_it() -> None:
    bench = Bench("loss", per_mille=100, rto=200)
    for number in range(200):
        bench.stage.take(bytes([number]))
        bench.timers.turn(0.01)
    bench.stage.end()
    bench.timers.turn(60)
    assert bench.bytes() == bytes(range(200)), "nothing is missing, nothing overtakes"
    assert bench.got[-1][1] is None
    late = [at - 10 * (data or b"")[0] for at, data in bench.got[:-1]]
    assert max(late) >= 200
    assert 0 in late, "others get through at once"
    assert (bench.kept, bench.lost) == (0, 0)


def test_a_link_that_loses_all_still_delivers_and_waits_twice_as_long_each_time() -> None:
    bench = Bench("loss", per_mille=1000, rto=100)
    bench.stage.take(b"x")
    bench.timers.turn(60)
    assert bench.got == [(100 * (1 + 2 + 4 + 8 + 16 + 32), b"x")]


def test_timeout_counts_from_the_last_byte_and_ends_once() -> None:
    bench = Bench("timeout", timeout=100)
    bench.timers.turn(0.08)
    bench.stage.take(b"lost")
    bench.timers.turn(0.08)
    assert bench.got == []
    bench.timers.turn(1)
    assert bench.got == [(180, None)]
    bench.stage.take(b"late")
    bench.stage.leave()
    bench.timers.turn(1)
    assert bench.got == [(180, None)]
    assert bench.lost == 8


def test_timeout_zero_never_ends_but_leaving_does() -> None:
    bench = Bench("timeout", timeout=0)
    bench.timers.turn(3600)
    assert bench.got == []
    bench.stage.leave()
    assert [data for _, data in bench.got] == [None]


def test_limit_data_counts_over_updates() -> None:
    bench = Bench("limit_data", bytes=100)
    bench.stage.take(bytes(4))
    bench.stage.retune({"bytes": 6})
    bench.stage.take(bytes(4))
    bench.stage.take(bytes(4))
    bench.stage.end()
    assert [data for _, data in bench.got] == [bytes(4), bytes(2), None]
    assert bench.lost == 6


def test_reset_peer_waits_for_a_byte_and_then_its_time() -> None:
    bench = Bench("reset_peer", timeout=100)
    bench.timers.turn(10)
    assert bench.resets == 0
    bench.stage.leave()
    assert bench.resets == 0
    bench.stage.take(b"lost")
    bench.timers.turn(0.09)
    assert bench.resets == 0
    bench.timers.turn(0.02)
    assert (bench.resets, bench.lost, bench.got) == (1, 4, [])


def test_reset_peer_that_leaves_too_late_resets_for_bytes_are_gone() -> None:
    bench = Bench("reset_peer", timeout=60_000)
    bench.stage.take(b"lost")
    bench.stage.leave()
    assert bench.resets == 1
