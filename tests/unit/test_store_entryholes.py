"""The damaged ranges of a log, against a set of indexes."""

import random

from store.raftlog.entryholes import Holes


def test_ranges_are_those_of_a_set() -> None:
    rng = random.Random(5)
    for _ in range(300):
        holes, twin = Holes(), set[int]()
        for _ in range(rng.randrange(12)):
            first = rng.randrange(1, 60)
            last = first + rng.randrange(6)
            act = rng.random()
            if act < 0.7:
                holes.add(first, last)
                twin |= set(range(first, last + 1))
            elif act < 0.85:
                holes.remove(first, last)
                twin -= set(range(first, last + 1))
            else:
                holes.cut(first)
                twin = {index for index in twin if index <= first}
        assert [index for first, last in holes.ranges for index in range(first, last + 1)] == sorted(twin)
        assert all(one[1] + 1 < other[0] for one, other in zip(holes.ranges, holes.ranges[1:], strict=False))
        assert bool(holes) == bool(twin)
        assert holes.first == (holes.ranges[0] if twin else None)
        for index in range(70):
            found = holes.at(index)
            assert (found is not None) == (index in twin)
            assert found is None or found in holes.ranges
            later = [one for one in holes.ranges if one[1] > index]
            assert holes.behind(index) == (later[0] if later else None)
