"""Inputs from seeds: what a decoder that trusts its input trips over, made from a random number generator alone.

Beside changed bits, cuts and splices these know what formats have in common: lengths that lie, things inside one
another, numbers without end, a part that stands there ten thousand times, the words of the format.
"""

from collections.abc import Callable, Sequence
from random import Random

from tests.fuzz.bounds import Target

_BYTES = (0, 1, 0x1F, 0x20, 0x22, 0x5B, 0x7B, 0x7F, 0x80, 0x81, 0x9F, 0xA1, 0xC0, 0xD8, 0xF6, 0xFB, 0xFF)
_NUMBERS = (0, 1, 3, 4, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_OPENINGS = (b"[", b'{"a":', b"{", b"{{", b'[{"":', b"\x81", b"\xa1\x00", b"\x9f", b"\xc1", b'"\\u00', b"\x01", b"\x02")
_CLOSINGS = {b"[": b"]", b'{"a":': b"}", b"{": b"}", b'[{"': b"}]"}
# How often an input grows to a length that shows what a byte costs, and to the longest there is.
_GROWS = 0.04
_GROWS_WHOLE = 0.001
_GROWN_BYTES = 64 * 1024

Mutation = Callable[[bytearray, Random], None]


def _at(data: bytearray, random: Random) -> int:
    return random.randrange(len(data) + 1)


def _slice(data: bytearray, random: Random, longest: int = 64) -> tuple[int, int]:
    start = _at(data, random)
    return start, min(len(data), start + random.randint(1, longest))


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice(_BYTES)


def _cut_off(data: bytearray, random: Random) -> None:
    del data[_at(data, random) :]


def _cut_out(data: bytearray, random: Random) -> None:
    start, stop = _slice(data, random)
    del data[start:stop]


def _repeat(data: bytearray, random: Random) -> None:
    start, stop = _slice(data, random)
    data[stop:stop] = data[start:stop] * random.choice((1, 1, 2, 5, 20, 130))


def _length(data: bytearray, random: Random) -> None:
    """Write a number where one may stand, of the widths that lengths have."""
    width = random.choice((1, 2, 2, 4, 4, 4, 8))
    at = random.randrange(len(data) + 1)
    number = random.choice((*_NUMBERS, len(data), max(0, len(data) - at - width), random.getrandbits(16)))
    data[at : at + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "big")


def _nest(data: bytearray, random: Random) -> None:
    opening = random.choice(_OPENINGS)
    depth = random.choice((3, 9, 40, 255, 300, 1100))
    at = _at(data, random)
    data[at:at] = opening * depth + (_CLOSINGS.get(opening, b"") * depth if random.random() < 0.5 else b"")


def _number(data: bytearray, random: Random) -> None:
    """Make a number long, or of a kind that is not expected."""
    digits = [at for at, byte in enumerate(data[:4096]) if 0x30 <= byte <= 0x39]
    at = random.choice(digits) if digits else _at(data, random)
    long = random.choice((20, 40, 400, 5000))
    data[at : at + 1] = random.choice(
        (
            b"9" * long,
            b"-" + b"1" * long,
            b"0." + b"3" * long,
            b"1e999",
            b"-0",
            b"1e-7",
            b"2147483648",
            b'"' + b"8" * long,
        )
    )


def _noise(data: bytearray, random: Random) -> None:
    start, stop = _slice(data, random, 16)
    data[start:stop] = random.randbytes(random.randint(0, 16))


_MUTATIONS: tuple[Mutation, ...] = (
    _flip, _flip, _set, _set, _cut_off, _cut_out, _repeat, _length, _length, _nest, _number, _noise,
)  # fmt: skip


def _insert_word(data: bytearray, random: Random, words: Sequence[bytes]) -> None:
    at = _at(data, random)
    data[at : at + random.choice((0, 0, 1, 4))] = random.choice(words)


def _splice(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    start = random.randrange(len(other) + 1)
    stop = min(len(other), start + random.choice((8, 64, 1024, len(other) + 1)))
    at = _at(data, random)
    data[at : at + random.choice((0, stop - start))] = other[start:stop]


def _grow(data: bytearray, random: Random, size: int) -> None:
    """Have a part of it stand there so often that it is that long."""
    start, stop = _slice(data, random, random.choice((1, 2, 4, 16, 64, 1024)))
    if stop > start:
        data[stop:stop] = data[start:stop] * max(0, (size - len(data)) // (stop - start))


def mutated(target: Target, random: Random) -> bytes:
    """Return an input for a decoder; the same from the same state of `random`."""
    data = bytearray(random.choice(target.seeds))
    for _ in range(random.choice((1, 1, 1, 1, 1, 2, 2, 3, 8))):
        turn = random.randrange(len(_MUTATIONS) + 4)
        if turn < len(_MUTATIONS):
            _MUTATIONS[turn](data, random)
        elif turn < len(_MUTATIONS) + 2:
            _insert_word(data, random, target.tokens)
        else:
            _splice(data, random, target.seeds)
    chance = random.random()
    if chance < _GROWS:
        longest = target.bytes_max if chance < _GROWS_WHOLE else min(target.bytes_max, _GROWN_BYTES)
        _grow(data, random, random.randint(1, longest))
    found = bytes(data[: target.bytes_max])
    return target.mend(found) if target.mend is not None and random.random() < 0.7 else found
